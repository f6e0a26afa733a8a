"""A fleet of real processes: a broker, a coordinator and workers on this machine, each of which a test may harm.

`Fleet` starts the installed parts the way `tenure up` does, one process each, but leaves it to the test to start again
what has ended. All of it is known by process id, and when the fleet is closed nothing may be left: while it is open,
this process adopts every orphan, so that nothing can hide.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tenure.client.client import Client
from tenure.client.options import ClientOptions
from tenure.protocol.client_messages import Query
from tests.fixtures_services import require_program
from tests.servers import Server, launch
from tests.waiting import wait_until

HANDLERS = "tests.fixtures_fleet_handlers"
ROOT = Path(__file__).parents[1]
TTL_MS = 2_000
_PR_SET_CHILD_SUBREAPER = 36


class Process:
    """One process of the fleet: started, harmed, started again. It ends with this process, however this one ends."""

    def __init__(self, name: str, arguments: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        self._arguments = list(arguments)
        self._env = {**os.environ, **env}
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = -1

    def start(self) -> None:
        reading, self._owner = os.pipe()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", *self._arguments, "--owner-pipe", str(reading)],
                pass_fds=(reading,),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env=self._env,
                process_group=0,
            )
        os.close(reading)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self, timeout_s: float = 20) -> int:
        assert self._process is not None
        code = self._process.wait(timeout_s)
        if self._owner != -1:
            os.close(self._owner)
            self._owner = -1
        return code

    def said(self) -> str:
        return self.log.read_text(errors="replace")


@dataclass(frozen=True)
class Worker:
    """How a worker is started."""

    name: str
    slots: int = 2
    ttl_ms: int = TTL_MS
    url: str | None = None
    capability: str = "default"
    state: Path | None = None
    options: tuple[str, ...] = ()
    """What else it is started with."""


@dataclass
class Fleet:
    """A broker, a coordinator and workers. Build it with `open_fleet`."""

    folder: Path
    kind: str
    server_options: tuple[str, ...]
    database: Path
    processes: dict[str, Process] = field(default_factory=dict[str, Process])
    address: str | None = None
    """Where the parts find the broker, when that is not where it listens."""
    addresses: dict[str, str] = field(default_factory=dict[str, str])
    """Where single parts find it, by their names, when that is not as the others do."""
    env: dict[str, str] = field(default_factory=dict[str, str])
    """What else the parts find in their environment."""
    _server: Server | None = None
    _client: Client | None = None

    # --- the broker -----------------------------------------------------------------------------

    @property
    def server(self) -> Server:
        assert self._server is not None
        return self._server

    def start_server(self) -> None:
        """Start the broker, at a second time on the same port and folder."""
        port = self._server.port if self._server is not None else 0
        self._server = launch(require_program(self.kind), self.folder, *self.server_options, port=port)

    @property
    def url(self) -> str:
        return self.address or self.server.url

    # --- the parts ------------------------------------------------------------------------------

    def start_coordinator(self, url: str | None = None, module: Sequence[str] = ("tenure",)) -> Process:
        """Start the coordinator; `module` names another program that takes the same arguments."""
        arguments = ["-m", *module, "coordinator", "--database", str(self.database)]
        return self._start("coordinator", arguments, url)

    def start_worker(self, worker: Worker) -> Process:
        """Start a worker, or its next agent."""
        options = [
            "--worker-id",
            worker.name,
            "--state-dir",
            str(worker.state or self.folder),
            "--slots",
            str(worker.slots),
        ]
        options += ["--ttl", f"{worker.ttl_ms}ms", "--allow", HANDLERS, "--capability", worker.capability]
        options += worker.options
        return self._start(worker.name, ["-m", "tenure", "worker", *options], worker.url)

    def _start(self, name: str, arguments: Sequence[str], url: str | None) -> Process:
        env = {"TENURE_BROKER_URL": url or self.addresses.get(name, self.url), "PYTHONPATH": str(ROOT), **self.env}
        process = Process(name, arguments, env, self.folder / f"{name}.log")
        self.processes[name] = process
        process.start()
        return process

    def wait_for_workers(self, *names: str) -> None:
        """Wait until they are ACTIVE, each under its newest agent."""
        pids = {name: self.processes[name].pid for name in names}

        def active() -> bool:
            rows = self.client.ask(Query(what="workers")).rows
            return {(row["worker_id"], row["pid"]) for row in rows if row["state"] == "ACTIVE"} >= set(pids.items())

        wait_until(active, f"{', '.join(names)} are active", 30)

    @property
    def client(self) -> Client:
        """A client that waits for what was lost to be decided, and for a broker that is away."""
        if self._client is None:
            options = ClientOptions(lost="wait", patience_ms=60_000, watch_ms=1_000, resend_ms=1_000)
            self._client = Client(self.url, options=options)
        return self._client

    # --- processes ------------------------------------------------------------------------------

    def everything_of(self, name: str) -> list[psutil.Process]:
        """A worker's agent, runners, children and what they started."""
        agent = psutil.Process(self.processes[name].pid)
        return [agent, *agent.children(recursive=True)]

    def worker_of(self, pid: int) -> str:
        """The worker that a process belongs to."""
        above = {parent.pid for parent in psutil.Process(pid).parents()}
        return next(name for name, process in self.processes.items() if process.pid in above)

    def close(self) -> None:
        """End everything by process id, and see that runners and children end by themselves after their agents."""
        if self._client is not None:
            self._client.close()
        for process in self.processes.values():
            if process.running:
                resume(psutil.Process(process.pid).children(recursive=True))
                process.signal(signal.SIGCONT)
                process.kill()
        if self._server is not None:
            self._server.process.send_signal(signal.SIGCONT)
            self._server.stop()


def tend(fleet: Fleet, *names: str) -> None:
    """Start again those workers that have ended, as `tenure up` does."""
    for name in names:
        if not fleet.processes[name].running:
            fleet.start_worker(Worker(name))


def resume(processes: Iterable[psutil.Process]) -> None:
    """SIGCONT what still runs."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.resume()


@contextmanager
def orphans_adopted() -> Generator[None]:
    """While entered, every orphan becomes a child of this process; at the end none may be left."""
    before = {child.pid for child in psutil.Process().children()}
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
        wait_until(lambda: not _left(before), "every process that was started has ended")
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        for child in _left(before):
            for process in (*child.children(recursive=True), child):
                with suppress(psutil.NoSuchProcess):
                    process.kill()


def _left(before: set[int]) -> list[psutil.Process]:
    """Children that came since; those that have ended are reaped."""
    left: list[psutil.Process] = []
    for child in psutil.Process().children():
        if child.pid in before:
            continue
        with suppress(psutil.NoSuchProcess, ChildProcessError):
            if child.status() != psutil.STATUS_ZOMBIE or os.waitpid(child.pid, os.WNOHANG) == (0, 0):
                left.append(child)
    return left


@contextmanager
def open_fleet(
    folder: Path,
    workers: Sequence[Worker] = (Worker("w1"), Worker("w2")),
    *,
    kind: str = "valkey",
    server_options: tuple[str, ...] = (),
    prepare: Callable[[Fleet], None] = lambda _: None,
    coordinator_url: str | None = None,
    database: Path | None = None,
) -> Generator[Fleet]:
    """A running fleet; at the end everything is ended, and nothing may be left.

    `prepare` is called when the broker is there and nothing else is.
    """
    fleet = Fleet(folder, kind, server_options, database or folder / "fleet.db")
    with orphans_adopted():
        try:
            fleet.start_server()
            prepare(fleet)
            fleet.start_coordinator(coordinator_url)
            for worker in workers:
                fleet.start_worker(worker)
            fleet.wait_for_workers(*(worker.name for worker in workers))
            yield fleet
        finally:
            fleet.close()
