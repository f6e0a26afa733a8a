"""A fleet of sites: a broker that lets nobody in without a credential, and everything set up by the command line.

`open_sites` does what an operator does: `tenure broker secure`, a coordinator with the credential that this makes, and
`tenure sites issue` for each site that a test wants. Workers get their site's credential as a file, and nothing else.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tenure.client.client import Client
from tenure.client.options import ClientOptions
from tenure.protocol.client_messages import Query
from tests.fault.instrument import Records
from tests.fixtures_e2e import Place, Printed
from tests.fixtures_fleet import HANDLERS, ROOT, Process, orphans_adopted, resume
from tests.fixtures_services import require_program
from tests.servers import Server, launch
from tests.waiting import wait_until

OWNER_ONLY = 0o600
TTL_MS = 3_000


@dataclass(frozen=True)
class Office:
    """What an operator has: the files with the credentials, and the command line."""

    folder: Path
    home: Path

    def credential(self, name: str) -> Path:
        """The file with the address of `coordinator`, `provisioner`, `operator`, a site or a person."""
        return self.folder / f"{name}.url"

    def url(self, name: str) -> str:
        return self.credential(name).read_text().strip()

    def secrets(self) -> dict[str, str]:
        """Every secret that was handed out, by whose it is."""
        files = sorted(self.folder.glob("*.url"))
        return {path.stem: path.read_text().rpartition("@")[0].rpartition(":")[2] for path in files}

    def issue_site(self, site: str, *capabilities: str, port: int | None = None, more: Sequence[str] = ()) -> Path:
        """`tenure sites issue`; `port` is where the site reaches the broker, when that is elsewhere."""
        options = [word for each in capabilities or ("default",) for word in ("--capability", each)]
        return self._issue("sites", site, *options, *more, port=port)

    def issue_person(self, person: str, role: str) -> Path:
        """`tenure clients issue`."""
        return self._issue("clients", person, "--role", role)

    def _issue(self, noun: str, name: str, *options: str, port: int | None = None) -> Path:
        out = self.credential(name)
        address = () if port is None else ("--address", f"redis://127.0.0.1:{port}/0")
        self.fine(noun, "issue", name, *options, *address, *self.provisioner, "--out", str(out))
        return out

    @property
    def provisioner(self) -> tuple[str, str]:
        return "--provisioner-url-file", str(self.credential("provisioner"))

    def run(self, *arguments: str, person: str = "operator", timeout_s: float = 60) -> Printed:
        """One command of a person."""
        place = Place(self.home, {"TENURE_BROKER_URL_FILE": str(self.credential(person))})
        return place.run(*arguments, timeout_s=timeout_s)

    def fine(self, *arguments: str, person: str = "operator") -> Printed:
        """The same, of what must end well."""
        printed = self.run(*arguments, person=person)
        assert printed.code == 0, printed
        return printed

    def told(self, *arguments: str, person: str = "operator") -> Any:
        """What a command says as JSON."""
        return json.loads(self.fine(*arguments, "--json", person=person).out)


@dataclass
class SiteFleet:
    """Build it with `open_sites`."""

    folder: Path
    server: Server
    office: Office
    processes: dict[str, Process] = field(default_factory=dict[str, Process])
    _clients: dict[str, Client] = field(default_factory=dict[str, Client])

    # --- the parts ------------------------------------------------------------------------------

    def start_coordinator(self, *more: str) -> Process:
        """Start the coordinator, or the next one on the same database."""
        arguments = ("coordinator", "--database", str(self.database), *more)
        return self._start("coordinator", self.office.credential("coordinator"), arguments)

    def start_worker(self, site: str, name: str, *more: str, slots: int = 2, ttl_ms: int = TTL_MS) -> Process:
        """Start a worker of that site, or its next agent, and wait for it."""
        worker_id = f"{site}.{name}"
        arguments = ("worker", "--worker-id", worker_id, "--state-dir", str(self.folder / "hosts" / site))
        kind = ("--slots", str(slots), "--ttl", f"{ttl_ms}ms", "--allow", HANDLERS)
        process = self._start(worker_id, self.office.credential(site), (*arguments, *kind, *more))
        self.wait_for_worker(worker_id)
        return process

    def wait_for_worker(self, worker_id: str) -> None:
        """Wait until it is ACTIVE under its newest agent."""
        pid = self.processes[worker_id].pid

        def active() -> bool:
            assert self.processes[worker_id].running, self.processes[worker_id].said()
            rows = self.rows("workers", worker_id=worker_id)
            return any(row["state"] == "ACTIVE" and row["pid"] == pid for row in rows)

        wait_until(active, f"{worker_id} is active", 600, step_ms=50)

    def _start(self, name: str, credential: Path, arguments: Sequence[str]) -> Process:
        env = {"PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}
        words = ("-m", "tenure", *arguments, "--broker-url-file", str(credential))
        process = Process(name, words, env, self.folder / f"{name}.log")
        self.processes[name] = process
        process.start()
        return process

    # --- what is known --------------------------------------------------------------------------

    @property
    def database(self) -> Path:
        return self.folder / "fleet.db"

    @property
    def records(self) -> Records:
        return Records(self.database)

    def client(self, person: str = "operator") -> Client:
        """A client of that person, in this process."""
        if person not in self._clients:
            options = ClientOptions(patience_ms=60_000, watch_ms=1_000, resend_ms=1_000)
            self._clients[person] = Client(self.office.url(person), options=options)
        return self._clients[person]

    def rows(self, what: Any, **where: str) -> list[dict[str, Any]]:
        """What the coordinator knows, faster than a new process can ask."""
        return list(self.client().ask(Query(what=what, where=tuple(where.items()))).rows)

    def state(self, task_id: str) -> str:
        return str(self.rows("tasks", task_id=task_id)[0]["state"])

    def wait_for(self, task_id: str, state: str, timeout_s: float = 40) -> None:
        wait_until(lambda: self.state(task_id) == state, f"{task_id} is {state}", timeout_s, step_ms=50)

    def leases(self, task_id: str) -> list[dict[str, Any]]:
        """Every lease that there ever was on a task, oldest first."""
        return sorted(self.rows("leases", task_id=task_id), key=lambda row: row["fence"])

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        for process in self.processes.values():
            if process.running:
                resume(psutil.Process(process.pid).children(recursive=True))
                process.signal(signal.SIGCONT)
                process.kill()
        self.server.stop()


@contextmanager
def open_sites(folder: Path, kind: str = "valkey", *server_options: str) -> Generator[SiteFleet]:
    """A broker of that kind that was secured by the command line, with a coordinator, and no site yet."""
    folder.mkdir(exist_ok=True)
    office = Office(folder / "credentials", folder / "home")
    office.folder.mkdir(mode=0o700)
    office.home.mkdir()
    users = folder / "users.acl"
    users.touch(OWNER_ONLY)
    with orphans_adopted():
        server = launch(require_program(kind), folder, "--aclfile", str(users), *server_options)
        fleet = SiteFleet(folder, server, office)
        try:
            place = Place(office.home, {"TENURE_BROKER_URL": server.url})
            secured = place.run("broker", "secure", "--out", str(office.folder), timeout_s=60)
            assert secured.code == 0, secured
            fleet.start_coordinator()
            yield fleet
        finally:
            fleet.close()
