"""A whole fleet whose one worker has a launcher: the coordinator, the parent, and the substrate of a bench."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack, cast

import psutil

from tenure.client.handle import Handle
from tenure.client.options import SubmitOptions
from tenure.protocol.client_messages import Query
from tests import fixtures_launched_handlers as handlers
from tests.fault.instrument import Instrument, Records
from tests.fixtures_fleet import HANDLERS, ROOT, Fleet, Worker, open_fleet
from tests.fixtures_launchers import EXECUTOR, LAUNCHERS, LauncherBench, Premises, as_toml, open_bench, prepare_bench
from tests.waiting import wait_until

PARENT = "parent"
PASSWORD = "parity-password"
SECRET = "parity-secret"
SLOTS = 4
PATIENCE_S = 60.0


@dataclass
class Parity:
    """One launcher's fleet, and what a case may look at."""

    name: str
    fleet: Fleet
    bench: LauncherBench
    folder: Path

    @property
    def records(self) -> Records:
        return Records(self.fleet.database)

    def submit(self, function: Callable[..., Any], *arguments: Any, **said: Unpack[SubmitOptions]) -> Handle[Any]:
        return self.fleet.client.using(**said).submit(function, *arguments)

    def work(self, instrument: Instrument, seconds: float, **said: Unpack[SubmitOptions]) -> Handle[Any]:
        """A task that marks its start and its end."""
        from tests.fixtures_fleet_handlers import work

        return self.submit(work, str(instrument.path), 1, seconds, **said)

    def leases(self, handle: Handle[Any]) -> list[dict[str, Any]]:
        """All leases of a task, oldest first."""
        asked = Query(what="leases", where=(("task_id", handle.task_id),))
        return sorted(self.fleet.client.ask(asked).rows, key=lambda row: row["fence"])

    def state(self, handle: Handle[Any]) -> str:
        (row,) = self.fleet.client.ask(Query(what="tasks", where=(("task_id", handle.task_id),))).rows
        return str(row["state"])

    def wait_for_start(self, instrument: Instrument, handle: Handle[Any]) -> int:
        """Wait until user code of the task runs; the process that runs it."""

        def running() -> list[int]:
            return [each.pid for each in instrument.running() if each.task_id == handle.task_id]

        wait_until(running, "the task runs", PATIENCE_S)
        return running()[0]

    def executors(self, handle: Handle[Any]) -> list[psutil.Process]:
        """The processes on this machine that are executors of the task."""
        found = [(process, _words(process)) for process in psutil.process_iter()]
        return [each for each, words in found if "run-assignment" in words and ticket_of(words, handle.task_id)]

    def executor(self, handle: Handle[Any]) -> psutil.Process:
        """The one executor of the task that runs."""
        (found,) = self.executors(handle)
        return found

    def run_by_hand(self, ticket: str) -> subprocess.CompletedProcess[str]:
        """Start an executor with that ticket beside the launcher, and wait for its end."""
        address = self.folder / "by_hand.url"
        address.write_text(self.fleet.url)
        allowed = ("--allow", HANDLERS, "--allow", handlers.__name__)
        argv = [*EXECUTOR, "run-assignment", "--broker-url-file", str(address), *allowed, "--ticket", ticket]
        env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
        return subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False)

    def journal(self) -> str:
        """What the parent has in hand."""
        return (self.fleet.folder / "workers" / PARENT / "launches.jsonl").read_text()

    def broker_keys(self) -> list[str]:
        """All keys at the broker."""
        connection = self.fleet.server.connect(user=f"default:{PASSWORD}")
        try:
            return [key.decode() for key in cast("list[bytes]", connection.call("KEYS", "*"))]
        finally:
            connection.close()

    def start_parent(self, *more: str) -> None:
        """Start the parent, or its next agent, with `more` options."""
        file = self.folder / "launcher.toml"
        # Substrates that come with Tenure find `tenure` beside the interpreter; others must be told.
        executor = {} if self.name in LAUNCHERS else {"executor": {"program": EXECUTOR}}
        file.write_text(as_toml({**self.bench.options, **executor}))
        options = ("--launcher", self.name, "--launcher-file", str(file), "--enable-writes")
        allowed = ("--allow", handlers.__name__)
        self.fleet.start_worker(Worker(PARENT, SLOTS, 5_000, options=(*options, *allowed, *more)))
        self.fleet.wait_for_workers(PARENT)


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []  # it has ended meanwhile


def ticket_of(words: list[str], task_id: str) -> str:
    """The launch ticket of that task on an executor's command line; "" when it is another one's."""
    return next((word for word in words if word.startswith("{") and f'"{task_id}"' in word), "")


@contextmanager
def open_parity(name: str, folder: Path, *import_path: str) -> Generator[Parity]:
    """A fleet with a password at its broker, whose only worker has that launcher."""
    prepare_bench(name)
    with open_fleet_of_nobody(folder) as fleet:
        fleet.env["PYTHONPATH"] = os.pathsep.join((str(ROOT), *import_path))
        bench_folder = folder / "bench"
        bench_folder.mkdir()
        with open_bench(name, Premises(bench_folder, fleet.url)) as bench:
            parity = Parity(name, fleet, bench, folder)
            parity.start_parent()
            yield parity
            fleet.processes[PARENT].signal(15)
            assert fleet.processes[PARENT].wait(60) == 0


@contextmanager
def open_fleet_of_nobody(folder: Path) -> Generator[Fleet]:
    """A broker with a password, a coordinator, and no worker yet."""

    def prepare(fleet: Fleet) -> None:
        fleet.address = f"redis://:{PASSWORD}@127.0.0.1:{fleet.server.port}"
        fleet.env["HOST_SECRET"] = SECRET

    with open_fleet(folder, (), server_options=("--requirepass", PASSWORD), prepare=prepare) as fleet:
        yield fleet
