"""A broker in memory that blocks like a real one, and a coordinator's part played by hand, for tests of workers."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock, Thread
from typing import Any, TypeVar

from tenure.artifacts.base import Porter
from tenure.broker.base import (
    Delivery,
    EntryId,
    Handout,
    LogChunk,
    LogKey,
    Mailing,
    Publication,
    Readers,
    Stream,
    StreamEntry,
    WorkerAddress,
)
from tenure.broker.keys import DEFAULT_PERSON, Keys
from tenure.broker.memory import MemoryBroker, MemoryWorker
from tenure.broker.memory_store import MemoryStore
from tenure.clock import SystemClock, SystemEntropy, sortable_id
from tenure.errors import BrokerUnreachable
from tenure.protocol.artifact import Checkpoint
from tenure.protocol.assignment import Assignment, Ticket
from tenure.protocol.control_messages import Control, Granted, Judged, Kept, Order, Registered, Verdict
from tenure.protocol.envelope import CallWork, CommandWork, Envelope, Scope, digest, encode
from tenure.protocol.worker_messages import (
    HEARTBEAT,
    REPORT,
    Checkpointed,
    Claimed,
    Finished,
    Heartbeat,
    Hello,
    Released,
    WorkerEvent,
)
from tenure.workers.agent import Agent
from tenure.workers.options import WorkerOptions
from tenure.workers.shift import Summary
from tests.waiting import wait_until

_T = TypeVar("_T")

SITE = "lab"
WORKER = "lab.w1"
ADDRESS = WorkerAddress(SITE, WORKER)
STREAM = Stream(SITE, "default")
OWN = Stream(SITE, worker_id=WORKER)
READERS = Readers((SITE,), (DEFAULT_PERSON,))
HANDLERS = "tests.fixtures_worker_handlers"


def call(function: str, *args: Any, **fields: Any) -> Envelope:
    """An envelope that calls a function of the handlers for tests."""
    arguments = json.dumps({"args": args, "kwargs": {}})
    work = CallWork(handler=f"{HANDLERS}:{function}", arguments=arguments)
    return Envelope(work=work, scope=Scope(world="world", run="run"), **fields)


def command(*argv: str, **fields: Any) -> Envelope:
    """An envelope that runs a program."""
    stdin, env = fields.pop("stdin", ""), fields.pop("env", ())
    work = CommandWork(argv=argv, stdin=stdin, env=env)
    return Envelope(work=work, scope=Scope(world="world", run="run"), **fields)


def python(script: str, *args: str, **fields: Any) -> Envelope:
    """An envelope that runs a Python script as a command."""
    return command(sys.executable, "-c", script, *args, **fields)


@dataclass
class Wire:
    """The broker, shared by the worker's threads and the test."""

    broker: MemoryBroker = field(default_factory=lambda: MemoryBroker(MemoryStore(SystemClock()), Keys("test")))
    lock: Lock = field(default_factory=Lock)
    cut: bool = False


class PatientWorker:
    """A worker's face that waits for what is not there yet."""

    def __init__(self, wire: Wire, worker_id: str = WORKER) -> None:
        self._wire = wire
        self._inner: MemoryWorker = wire.broker.worker(site=SITE, worker_id=worker_id)
        self._clock = SystemClock()

    def take(self, *, capabilities: Sequence[str], limit: int, block_ms: int) -> list[Handout]:
        return self._patiently(lambda: self._inner.take(capabilities=capabilities, limit=limit, block_ms=0), block_ms)

    def retake(self, *, capabilities: Sequence[str], limit: int) -> list[Handout]:
        return self._do(lambda: self._inner.retake(capabilities=capabilities, limit=limit))

    def look(self, entry: StreamEntry) -> Handout | None:
        return self._do(lambda: self._inner.look(entry))

    def orders(self, *, after: EntryId, block_ms: int) -> list[Delivery]:
        return self._patiently(lambda: self._inner.orders(after=after, block_ms=0), block_ms)

    def report(self, reports: Sequence[bytes]) -> None:
        self._do(lambda: self._inner.report(reports))

    def beat(self, heartbeat: bytes, ttl_ms: int) -> str:
        return self._do(lambda: self._inner.beat(heartbeat, ttl_ms))

    def print(self, log: LogKey, chunks: Sequence[LogChunk], keep: int) -> None:
        self._do(lambda: self._inner.print(log, chunks, keep))

    def store_address(self) -> str:
        return self._do(self._inner.store_address)

    def farewell(self) -> None:
        self._do(self._inner.farewell)

    def marker(self) -> str:
        return self._do(self._inner.marker)

    def close(self) -> None:
        with self._wire.lock:
            self._inner.close()

    def _do(self, step: Callable[[], _T]) -> _T:
        with self._wire.lock:
            if self._wire.cut:
                raise BrokerUnreachable("the wire is cut")
            return step()

    def _patiently(self, read: Callable[[], list[_T]], block_ms: int) -> list[_T]:
        until_ms = self._clock.elapsed_ms() + block_ms
        while True:
            found = self._do(read)
            if found or self._clock.elapsed_ms() >= until_ms:
                return found
            self._clock.sleep_ms(1)


class Bench:
    """A worker's agent in threads of this process, and the coordinator's part in the hands of the test."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.wire = Wire()
        self.coordinator = self.wire.broker.coordinator()
        self.coordinator.ensure_streams(readers=READERS, assignments=[STREAM, OWN])
        self.coordinator.mark("first")
        root = str(Path(__file__).parents[1])
        settings: dict[str, Any] = {"allow": (HANDLERS,), "ttl_ms": 5_000, "import_path": (root,), **options}
        self.porter: Callable[[str], Porter] | None = settings.pop("porter", None)
        self.options = WorkerOptions(state_dir=folder, worker_id=WORKER, site=SITE, **settings)
        self.events: list[WorkerEvent] = []
        self.epoch = 1
        self.grants = True
        self.judges = True
        self._sequence = 0
        self._summary: list[Summary] = []
        self._clock = SystemClock()
        self._registered: set[int] = set()
        self.start()

    # --- the worker -----------------------------------------------------------------------------

    def start(self) -> None:
        """Start an agent."""
        connect = partial(PatientWorker, self.wire)
        self.agent = Agent(self.options, connect, self._clock, SystemEntropy(), self.porter)
        self._summary = []
        self._thread = Thread(target=lambda: self._summary.append(self.agent.run()), name="agent", daemon=True)
        self._thread.start()

    def drain(self, times: int = 1) -> Summary:
        """Ask the agent to end, answer what it says meanwhile, and return its summary."""
        for _ in range(times):
            self.agent.request_drain()
        self.until(lambda: not self._thread.is_alive(), "the agent has ended", 20)
        self._thread.join()
        return self._summary[0]

    def close(self) -> None:
        """End the agent if it still runs."""
        self.wire.cut = False
        if self._thread.is_alive():
            self.drain(2)

    def beat(self) -> Heartbeat | None:
        """The worker's newest heartbeat."""
        with self.wire.lock:
            raw = self.coordinator.sites.heartbeats([ADDRESS])[0]
        return HEARTBEAT.validate_json(raw) if raw else None

    # --- the coordinator ------------------------------------------------------------------------

    def publish(
        self,
        *envelopes: Envelope,
        fence: int | None = None,
        task_id: str | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> list[Ticket]:
        """Publish an assignment of each envelope."""
        tickets: list[Ticket] = []
        with self.wire.lock:
            for envelope in envelopes:
                self._sequence += 1
                raw = encode(envelope)
                ticket = Ticket(
                    task_id=task_id or sortable_id(self._clock.now_ms(), SystemEntropy()),
                    attempt=1,
                    fence=fence or self._sequence,
                    digest=digest(raw),
                    epoch=self.epoch,
                    start=envelope.start,
                    exclusive=envelope.exclusive,
                    ttl_ms=envelope.lease_ttl_ms,
                    checkpoint=checkpoint,
                )
                entry = EntryId(self.epoch, self._sequence)
                assignment = Assignment(ticket=ticket, envelope=raw)
                self.coordinator.publish([Publication(entry, assignment, STREAM)])
                tickets.append(ticket)
        return tickets

    def order(self, *orders: Order, epoch: int | None = None) -> None:
        """Post orders to the worker."""
        raw = Control(epoch=epoch or self.epoch, orders=orders).model_dump_json().encode()
        with self.wire.lock:
            self.coordinator.post([Mailing(raw, ADDRESS)], {}, 1_000)

    def turn(self) -> None:
        """Read what the worker reports; register, grant and judge it as far as that is switched on."""
        with self.wire.lock:
            deliveries = self.coordinator.receive(readers=READERS, limit=1_000, block_ms=0)
            self.coordinator.settle(deliveries)
        for delivery in deliveries:
            report = REPORT.validate_json(delivery.raw)
            for event in report.events:
                self.events.append(event)
                self._answer(event, report.generation)

    def until(self, predicate: Callable[[], object], description: str, timeout_s: float = 30) -> None:
        """Play the coordinator until `predicate` holds."""

        def holds() -> object:
            self.turn()
            return predicate()

        wait_until(holds, description, timeout_s)

    def of(self, kind: type[_T], ticket: Ticket) -> list[_T]:
        """What was reported of that kind about that assignment."""
        return [
            event
            for event in self.events
            if isinstance(event, kind) and getattr(event, "binding").fence == ticket.fence  # noqa: B009
        ]

    def result(self, ticket: Ticket, timeout_s: float = 10) -> Finished:
        """The result of that assignment, waited for."""
        self.until(lambda: self.of(Finished, ticket), f"a result of {ticket.fence} among {self.events}", timeout_s)
        return self.of(Finished, ticket)[0]

    def released(self, ticket: Ticket, timeout_s: float = 10) -> Released:
        """The release of that assignment, waited for."""
        self.until(lambda: self.of(Released, ticket), f"a release of {ticket.fence} among {self.events}", timeout_s)
        return self.of(Released, ticket)[0]

    def _answer(self, event: WorkerEvent, generation: int) -> None:
        match event:
            case Hello(ordinal=ordinal):
                self.order(Registered(generation=generation, ordinal=ordinal))
            case Claimed(binding=binding) if self.grants:
                self.order(Granted(task_id=binding.task_id, fence=binding.fence, nonce=binding.nonce))
            case Checkpointed(binding=binding, ordinal=ordinal) if self.judges:
                self.order(Kept(task_id=binding.task_id, fence=binding.fence, nonce=binding.nonce, ordinal=ordinal))
            case Finished(binding=binding) | Released(binding=binding) if self.judges:
                verdict = Verdict.ACCEPTED
                self.order(Judged(task_id=binding.task_id, fence=binding.fence, nonce=binding.nonce, verdict=verdict))
            case _:
                pass


def results_of(bench: Bench, *envelopes: Envelope, timeout_s: float = 20) -> list[Finished]:
    """The results of all of these, in order. What a busy worker gives back unstarted is offered again."""
    tickets = bench.publish(*envelopes)
    return [_result_of(bench, *each, timeout_s) for each in zip(envelopes, tickets, strict=True)]


def _result_of(bench: Bench, envelope: Envelope, ticket: Ticket, timeout_s: float) -> Finished:
    over = (Finished, Released)
    bench.until(lambda: any(bench.of(kind, ticket) for kind in over), f"{ticket.fence} is over", timeout_s)
    if bench.of(Finished, ticket):
        return bench.of(Finished, ticket)[0]
    assert not bench.of(Released, ticket)[0].started
    return _result_of(bench, envelope, bench.publish(envelope)[0], timeout_s)
