"""A whole fleet whose one worker has a launcher: the coordinator, the parent, and the substrate of a bench."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack, cast
from urllib.parse import urlsplit

import psutil

from tenure.broker.credentials import digest_of
from tenure.broker.principals import Principal
from tenure.client.handle import Handle
from tenure.client.options import SubmitOptions
from tenure.launchers.catalog import known_launchers
from tenure.protocol.client_messages import Query
from tenure.protocol.principal_messages import IssueSite
from tests import fixtures_launched_handlers as handlers
from tests.fault.instrument import Instrument, Records
from tests.fixtures_fleet import HANDLERS, ROOT, Fleet, Worker, open_fleet
from tests.fixtures_launchers import EXECUTOR, LauncherBench, Premises, as_toml, open_bench, prepare_bench
from tests.secured import ADMIN, SecuredBroker
from tests.secured import PASSWORD as ADMIN_PASSWORD
from tests.waiting import wait_until

PARENT = "parent"
SITE = "hall"
PASSWORD = "parity-password"
SECRET = "parity-secret"
SLOTS = 4
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Seat:
    """Who the parent is, how it and its executors reach the broker, and who may look at everything there."""

    parent: str = PARENT
    url: str = ""
    admin: str = f"default:{PASSWORD}"

    @property
    def password(self) -> str:
        """What may be seen nowhere."""
        return urlsplit(self.url).password or PASSWORD


@dataclass
class Parity:
    """One launcher's fleet, and what a case may look at."""

    name: str
    fleet: Fleet
    bench: LauncherBench
    folder: Path
    seat: Seat = field(default_factory=Seat)

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
        address.write_text(self.seat.url or self.fleet.url)
        allowed = ("--allow", HANDLERS, "--allow", handlers.__name__)
        argv = [*EXECUTOR, "run-assignment", "--broker-url-file", str(address), *allowed, "--ticket", ticket]
        env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
        return subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False)

    def journal(self) -> str:
        """What the parent has in hand."""
        return (self.fleet.folder / "workers" / self.seat.parent / "launches.jsonl").read_text()

    def broker_keys(self) -> list[str]:
        """All keys at the broker."""
        connection = self.fleet.server.connect(user=self.seat.admin)
        try:
            return [key.decode() for key in cast("list[bytes]", connection.call("KEYS", "*"))]
        finally:
            connection.close()

    def start_parent(self, *more: str) -> None:
        """Start the parent, or its next agent, with `more` options."""
        file = self.folder / "launcher.toml"
        # Substrates that come with Tenure find `tenure` beside the interpreter; others must be told.
        own = {"site", *(each.name for each in known_launchers() if each.origin == "tenure")}
        executor = {} if self.name in own else {"executor": {"program": EXECUTOR}}
        file.write_text(as_toml({**self.bench.options, **executor}))
        launcher = "local" if self.name == "site" else self.name
        options = ("--launcher", launcher, "--launcher-file", str(file), "--enable-writes")
        allowed = ("--allow", handlers.__name__)
        self.fleet.start_worker(Worker(self.seat.parent, SLOTS, 5_000, options=(*options, *allowed, *more)))
        self.fleet.wait_for_workers(self.seat.parent)


def zombies(parity: Parity) -> list[psutil.Process]:
    """What the worker is the parent of, and has ended without being collected."""
    below = psutil.Process(parity.fleet.processes[parity.seat.parent].pid).children(recursive=True)
    return [each for each in below if each.status() == psutil.STATUS_ZOMBIE]


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []  # it has ended meanwhile


def holders(environment: Mapping[str, str], *secrets: str) -> list[str]:
    """The variables in whose value one of the secrets stands, alone or as a part, such as a password in an address."""
    return [name for name, value in environment.items() if any(secret in value for secret in secrets)]


def ticket_of(words: list[str], task_id: str) -> str:
    """The launch ticket of that task on an executor's command line; "" when it is another one's."""
    return next((word for word in words if word.startswith("{") and f'"{task_id}"' in word), "")


@contextmanager
def open_parity(name: str, folder: Path, *import_path: str) -> Generator[Parity]:
    """A fleet with a password at its broker, whose only worker has that launcher."""
    prepare_bench(name)
    open_fleet_there = open_fleet_with_site if name == "site" else open_fleet_of_nobody
    with open_fleet_there(folder) as fleet:
        fleet.env["PYTHONPATH"] = os.pathsep.join((str(ROOT), *import_path))
        bench_folder = folder / "bench"
        bench_folder.mkdir()
        with open_bench(name, Premises(bench_folder, fleet.url)) as bench:
            parity = Parity(name, fleet, bench, folder)
            if name == "site":
                parent = f"{SITE}.{PARENT}"
                parity.seat = Seat(parent, fleet.addresses[parent], f"{ADMIN}:{ADMIN_PASSWORD}")
            parity.start_parent()
            yield parity
            fleet.processes[parity.seat.parent].signal(15)
            assert fleet.processes[parity.seat.parent].wait(60) == 0


@contextmanager
def open_fleet_of_nobody(folder: Path) -> Generator[Fleet]:
    """A broker with a password, a coordinator, and no worker yet."""

    def prepare(fleet: Fleet) -> None:
        fleet.address = f"redis://:{PASSWORD}@127.0.0.1:{fleet.server.port}"
        fleet.env["HOST_SECRET"] = SECRET

    with open_fleet(folder, (), server_options=("--requirepass", PASSWORD), prepare=prepare) as fleet:
        yield fleet


@contextmanager
def open_fleet_with_site(folder: Path) -> Generator[Fleet]:
    """A broker that lets nobody in without a credential, and a compute site whose parent has none but its own."""
    users = folder / "users.acl"
    users.write_text(f"user default off\nuser {ADMIN} on #{digest_of(ADMIN_PASSWORD)} ~* &* +@all\n")
    secrets: dict[Principal, str] = {}

    def prepare(fleet: Fleet) -> None:
        secured = SecuredBroker(fleet.server, folder, secrets=secrets)
        secured.open()
        fleet.address = secured.person_url("default")
        fleet.addresses["coordinator"] = secured.coordinator_url
        fleet.addresses[f"{SITE}.{PARENT}"] = secured.site_url(SITE, ("default",))
        fleet.env["HOST_SECRET"] = SECRET

    with open_fleet(folder, (), server_options=("--aclfile", str(users)), prepare=prepare) as fleet:
        digest = digest_of(secrets[Principal("main", "site", SITE)])
        fleet.client.ask(IssueSite(site=SITE, capabilities=("default",), secret_digest=digest))
        yield fleet
