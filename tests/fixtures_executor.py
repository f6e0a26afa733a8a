"""Executors as real processes, and a parent played by the test: it takes assignments and starts nothing by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from tenure.broker.base import EntryId, Stream
from tenure.broker.keys import Keys
from tenure.broker.redis_worker import RedisWorker
from tenure.clock import SystemClock
from tenure.protocol.control_messages import CONTROL, Order, Stop
from tenure.protocol.envelope import open_envelope
from tenure.protocol.launch import LaunchTicket
from tenure.protocol.message import decode
from tenure.protocol.timing import expiry_ms
from tenure.protocol.worker_messages import HEARTBEAT, REPORT, Heartbeat, Held, Hello, Report, WorkerEvent
from tests.fixtures_fleet import HANDLERS as FLEET_HANDLERS
from tests.fixtures_fleet import ROOT, Fleet
from tests.fixtures_worker import HANDLERS
from tests.waiting import wait_until

NAMESPACE = "main"
SITE = "default"
PARENT = "parent"
TTL_MS = 60_000
"""Of the parent: long, so that one heartbeat lasts for a test."""


@dataclass
class Parent:
    """A worker with a launcher, as the coordinator sees it."""

    fleet: Fleet
    slots: int = 4
    launched: list[LaunchTicket] = field(default_factory=list[LaunchTicket])
    _sequence: int = 0

    def __post_init__(self) -> None:
        self._face = RedisWorker(self.fleet.server.connect(), Keys(NAMESPACE), site=SITE, worker_id=PARENT)
        self._generation = SystemClock().now_ms()
        self._after = EntryId(0, 0)
        resources = (("gpu", self.slots),)
        self.report(Hello(slots=self.slots, capabilities=("default",), resources=resources, ttl_ms=TTL_MS))
        self.beat()

    def report(self, *events: WorkerEvent) -> None:
        report = Report(worker_id=PARENT, generation=self._generation, window=self.slots, events=events)
        self._face.report([REPORT.dump_json(report)])

    def beat(self) -> None:
        """A heartbeat that lists as launched whatever was taken and not forgotten."""
        self._sequence += 1
        held = tuple(Held(task_id=each.task_id, fence=each.fence, state="launched") for each in self.launched)
        beat = Heartbeat(generation=self._generation, sequence=self._sequence, window=self.slots, held=held)
        self._face.beat(HEARTBEAT.dump_json(beat), expiry_ms(TTL_MS))

    def take(self) -> LaunchTicket:
        """The next assignment, as its executor would be told."""
        taken: list[LaunchTicket] = []

        def look() -> bool:
            for handout in self._face.take(capabilities=("default",), limit=1, block_ms=100):
                assert handout.assignment is not None
                ticket, scope = handout.assignment.ticket, open_envelope(handout.assignment.envelope).scope
                taken.append(
                    LaunchTicket(
                        namespace=NAMESPACE,
                        site=SITE,
                        parent=PARENT,
                        capability="default",
                        is_directed=handout.is_directed,
                        entry=str(handout.entry_id),
                        world=scope.world,
                        run=scope.run,
                        task_id=ticket.task_id,
                        attempt=ticket.attempt,
                        fence=ticket.fence,
                        digest=ticket.digest,
                        ttl_ms=ticket.ttl_ms,
                    )
                )
            return bool(taken)

        wait_until(look, "the parent is given an assignment")
        self.launched.append(taken[0])
        self.beat()
        return taken[0]

    def copy(self, ticket: LaunchTicket) -> LaunchTicket:
        """Put a copy of the ticket's entry where the coordinator knows nothing of it, and the ticket for that."""
        key, server = Keys(NAMESPACE).assignments(Stream(SITE, ticket.capability)), self.fleet.server
        ((_, fields),) = cast("list[list[Any]]", server.admin_list("XRANGE", key, ticket.entry, ticket.entry))
        major, minor = ticket.entry.split("-")
        copied = f"{major}-{int(minor) + 1_000}"
        server.admin("XADD", key, copied, *fields)
        return ticket.model_copy(update={"entry": copied})

    def orders(self) -> list[Order]:
        """What it was told since the last look."""
        found: list[Order] = []
        for entry in self._face.orders(after=self._after, block_ms=0):
            self._after = entry.entry_id
            found.extend(decode(CONTROL, entry.raw).orders)
        return found

    def is_told_to_stop(self, ticket: LaunchTicket) -> bool:
        """Whether a stop for that assignment has come since the last look."""
        return any(isinstance(order, Stop) and order.fence == ticket.fence for order in self.orders())

    def close(self) -> None:
        self._face.close()


@dataclass
class Executors:
    """Runs `tenure run-assignment`. What they say is in `log`, and their private folders are below `place`."""

    fleet: Fleet
    place: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list["subprocess.Popen[bytes]"])

    @property
    def log(self) -> Path:
        return self.place / "executors.log"

    def start(self, ticket: LaunchTicket, *options: str) -> subprocess.Popen[bytes]:
        allowed = ("--allow", FLEET_HANDLERS, "--allow", HANDLERS)
        return self.call("--ticket", ticket.text(), *allowed, *options)

    def call(self, *arguments: str, typed: str = "") -> subprocess.Popen[bytes]:
        (self.place / "tmp").mkdir(exist_ok=True)
        more = {"TENURE_BROKER_URL": self.fleet.url, "TMPDIR": str(self.place / "tmp"), "PYTHONPATH": str(ROOT)}
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tenure", "run-assignment", *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, **more, **self.fleet.env},
                process_group=0,
            )
        assert process.stdin is not None
        with process.stdin as stdin:
            stdin.write(typed.encode())
        self.started.append(process)
        return process

    def run(self, ticket: LaunchTicket, *options: str, timeout_s: float = 30) -> int:
        """Start one and wait for its end; its exit code."""
        return self.start(ticket, *options).wait(timeout_s)

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def left(self) -> Sequence[Path]:
        """What is left of their private folders."""
        return list((self.place / "tmp").iterdir())

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait(20)


@contextmanager
def launching(fleet: Fleet, folder: Path) -> Generator[tuple[Parent, Executors]]:
    """A parent on that fleet, and executors that end with the test."""
    parent, executors = Parent(fleet), Executors(fleet, folder)
    try:
        yield parent, executors
    finally:
        executors.close()
        parent.close()
