"""A fleet whose every step is written by the test: a real coordinator and store, a broker in memory, a manual clock.

Nothing happens by itself. `fleet.step()` is one turn of the coordinator, `fleet.live(ms)` lets time pass while the
workers that are alive keep their heartbeats. Records are read from the database file, never from the coordinator.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from tenure.broker.base import CoordinatorBroker, EntryId, WorkerBroker
from tenure.broker.keys import Keys
from tenure.broker.memory import MemoryBroker, MemoryClient
from tenure.broker.memory_store import START, MemoryStore
from tenure.coordinator.coordinator import Coordinator
from tenure.coordinator.options import CoordinatorOptions
from tenure.coordinator.store.database import Database
from tenure.errors import BrokerFull
from tenure.protocol.assignment import Ticket
from tenure.protocol.client_messages import (
    MAIL,
    REQUEST,
    Ask,
    Cancel,
    Decide,
    Done,
    Explain,
    Item,
    Query,
    Reply,
    Request,
    Submit,
)
from tenure.protocol.control_messages import CONTROL, Granted, Judged, Order, Refused
from tenure.protocol.envelope import CallWork, Envelope, Scope, encode
from tenure.protocol.message import decode
from tenure.protocol.worker_messages import (
    HEARTBEAT,
    REPORT,
    Binding,
    Cause,
    Claimed,
    Failure,
    FailureKind,
    Finished,
    Heartbeat,
    Held,
    Hello,
    Leaving,
    Outcome,
    Released,
    Report,
    WorkerEvent,
)
from tenure.testing import ManualClock, SeededEntropy
from tests.held_porter import HeldPorter

WORLD = "main"
RUN = "r1"
TTL_MS = 10_000
EXPIRY_MS = 11_750
"""ttl + grace + margin of a lease with a ttl of ten seconds."""

Row = tuple[Any, ...]


def envelope(**fields: Any) -> Envelope:
    """A small task on capability "cpu" that may be lost for ten seconds."""
    given: dict[str, Any] = {
        "capability": "cpu",
        "work": CallWork(handler="tasks:double"),
        "scope": Scope(world=WORLD, run=RUN),
        "lease_ttl_ms": TTL_MS,
    }
    return Envelope(**(given | fields))


class ScriptedFleet:
    """One coordinator with everything around it.

    Attributes:
        face: what the coordinator is given as its broker; replace it before `start` to make it fail.
    """

    def __init__(
        self, folder: Path, *, remembered_writes: int = 0, porter: HeldPorter | None = None, **options: Any
    ) -> None:
        self.porter = porter
        self.clock = ManualClock()
        self.entropy = SeededEntropy()
        self.server = MemoryStore(self.clock, remembered_writes=remembered_writes)
        self.broker = MemoryBroker(self.server, Keys(WORLD))
        self.face: CoordinatorBroker = self.broker.coordinator()
        self.options = CoordinatorOptions(database=folder / "fleet.db", namespace=WORLD, **options)
        self.workers: list[ScriptedWorker] = []
        self.records = Records(self.options.database)
        self.start()
        self.step()
        self.client = self.connect("c1")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.records.close()
        self.store.close()

    def start(self) -> None:
        """A new coordinator on the database and the broker as they are."""
        self.store = Database(self.options.database)
        self.coordinator = Coordinator(
            self.options,
            store=self.store,
            broker=self.face,
            clock=self.clock,
            entropy=self.entropy,
            porter=self.porter,
        )

    def restart(self) -> None:
        """End the coordinator where it is and start another one; nothing but the database is carried over."""
        self.store.close()
        if self.porter is not None:
            self.porter.die()
        self.start()

    def step(self, turns: int = 1) -> None:
        for _ in range(turns):
            self.coordinator.step(0)

    def live(self, duration_ms: int) -> None:
        """Let time pass in steps that the coordinator looks at, while every worker that is alive beats."""
        parts = [duration_ms % 1_000] if duration_ms % 1_000 else []
        for part_ms in parts + [1_000] * (duration_ms // 1_000):
            self.clock.advance_ms(part_ms)
            for worker in self.workers:
                if worker.alive:
                    with suppress(BrokerFull):
                        worker.beat()
            self.step()

    def connect(self, client_id: str, person: str = "default") -> ScriptedClient:
        return ScriptedClient(self, client_id, self.broker.client(client_id=client_id, person=person))

    def worker(self, worker_id: str = "w1", generation: int = 1, site: str = "default", **hello: Any) -> ScriptedWorker:
        """A worker that has said hello and beats."""
        worker = ScriptedWorker(self, worker_id, site, generation, self.broker.worker(site=site, worker_id=worker_id))
        self.workers.append(worker)
        worker.hello(**hello)
        self.step()
        return worker

    def submit(self, **fields: Any) -> str:
        """One task; answers its id."""
        return self.client.submit(envelope(**fields))


class Records:
    """What the database file says, read over a connection of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def rows(self, sql: str, *parameters: object) -> list[Row]:
        if self._connection is None:
            self._connection = sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)
        return self._connection.execute(sql, parameters).fetchall()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def state(self, task_id: str) -> str:
        ((state,),) = self.rows("SELECT state FROM task WHERE task_id = ?", task_id)
        return str(state)

    def leases(self, task_id: str) -> list[str]:
        """The states of a task's leases, in order of their fences."""
        return [str(row[0]) for row in self.rows("SELECT state FROM lease WHERE task_id = ? ORDER BY fence", task_id)]

    def directives(self, task_id: str) -> list[tuple[str, str, str]]:
        """State, reason and who decided, in order."""
        sql = "SELECT state, reason, COALESCE(decided_by, '') FROM directive WHERE task_id = ? ORDER BY next_attempt"
        return [(str(state), str(reason), str(by)) for state, reason, by in self.rows(sql, task_id)]

    def result(self, task_id: str) -> tuple[str, int, str | None] | None:
        """Worker, fence and value of the accepted result."""
        rows = self.rows("SELECT worker_id, fence, value FROM result WHERE task_id = ?", task_id)
        return (str(rows[0][0]), int(rows[0][1]), rows[0][2]) if rows else None

    def quarantined(self) -> list[str]:
        """The reasons of everything in quarantine, in order of arrival."""
        return [str(row[0]) for row in self.rows("SELECT reason FROM quarantine ORDER BY quarantine_id")]

    def worker(self, worker_id: str) -> str:
        ((state,),) = self.rows("SELECT state FROM worker WHERE worker_id = ?", worker_id)
        return str(state)

    def events(self, kind: str) -> list[str]:
        return [str(row[0]) for row in self.rows("SELECT text FROM event WHERE kind = ? ORDER BY event_id", kind)]


class ScriptedClient:
    """Asks, and keeps what it was told."""

    def __init__(self, fleet: ScriptedFleet, client_id: str, face: MemoryClient) -> None:
        self.fleet = fleet
        self.client_id = client_id
        self.face = face
        self.replies: dict[str, Reply] = {}
        self.told: list[Done] = []
        self._after = START
        self._numbers = count(1)

    def send(self, ask: Ask, *, request_id: str = "", principal: str = "ada") -> str:
        """Send without waiting for the answer; the request's id."""
        name = request_id or f"q{next(self._numbers)}"
        request = Request(client_id=self.client_id, request_id=name, principal=principal, ask=ask)
        self.face.ask(REQUEST.dump_json(request))
        return name

    def ask(self, ask: Ask, *, principal: str = "ada") -> Reply:
        """Send, let the coordinator take one turn, and read the answer."""
        name = self.send(ask, principal=principal)
        self.fleet.step()
        self.read()
        return self.replies[name]

    def read(self) -> list[Done]:
        """Take in replies and notices; every task that this client was told the end of so far."""
        for entry in self.face.answers(after=self._after, block_ms=0):
            self._after = entry.entry_id
            for answer in decode(MAIL, entry.raw).answers:
                if isinstance(answer, Reply):
                    self.replies[answer.request_id] = answer
                else:
                    self.told.extend(answer.done)
        return self.told

    def submit(self, *envelopes: Envelope, key: str = "") -> str:
        """Submit; answers the first task's id."""
        return self.ask(self.submission(*envelopes, key=key)).admitted[0].task_id

    def submission(self, *envelopes: Envelope, key: str = "", watch: bool = True) -> Submit:
        items = tuple(
            Item(key=key or f"{self.client_id}-{next(self._numbers)}", envelope=encode(each).decode())
            for each in envelopes
        )
        return Submit(items=items, watch=watch)

    def cancel(self, *task_ids: str) -> Reply:
        return self.ask(Cancel(task_ids=task_ids))

    def decide(self, *wanted: str, approve: bool, note: str = "") -> Reply:
        return self.ask(Decide(directives=wanted, approve=approve, note=note))

    def query(self, what: Any, **where: str) -> list[dict[str, Any]]:
        return list(self.ask(Query(what=what, where=tuple(where.items()))).rows)

    def explain(self, task_id: str) -> list[str]:
        """The sentences of the story."""
        return [str(line["text"]) for line in self.ask(Explain(task_id=task_id)).rows]


@dataclass
class Hand:
    """One assignment in a worker's hands."""

    ticket: Ticket
    nonce: str
    state: Literal["claimed", "launched", "running", "finished", "stopping"] = "claimed"

    @property
    def binding(self) -> Binding:
        return Binding(
            task_id=self.ticket.task_id,
            attempt=self.ticket.attempt,
            fence=self.ticket.fence,
            digest=self.ticket.digest,
            nonce=self.nonce,
        )


@dataclass
class ScriptedWorker:
    """Says only what it is told to say, true or not."""

    fleet: ScriptedFleet
    worker_id: str
    site: str
    generation: int
    face: WorkerBroker
    alive: bool = True
    window: int = 1
    sequence: int = 0
    capabilities: tuple[str, ...] = ("cpu",)
    hands: list[Hand] = field(default_factory=list[Hand])
    orders: list[Order] = field(default_factory=list[Order])
    after: EntryId = START
    remaining_ms: int | None = None

    # --- what it sends ---

    def report(self, *events: WorkerEvent) -> None:
        """One inbox entry, and one turn of the coordinator."""
        self.send(*events)
        self.fleet.step()

    def send(self, *events: WorkerEvent) -> None:
        report = Report(worker_id=self.worker_id, generation=self.generation, window=self.window, events=events)
        self.face.report([REPORT.dump_json(report)])

    def hello(self, *, slots: int = 1, window: int | None = None, **fields: Any) -> None:
        self.window = slots if window is None else window
        self.capabilities = fields.pop("capabilities", self.capabilities)
        held = tuple(Held(task_id=h.ticket.task_id, fence=h.ticket.fence, state=h.state) for h in self.hands)
        given: dict[str, Any] = {"capabilities": self.capabilities, "ttl_ms": TTL_MS, "held": held}
        self.remaining_ms = fields.get("remaining_ms", self.remaining_ms)
        self.send(Hello(slots=slots, **(given | fields)))

    def beat(self, *, sequence: int | None = None) -> str:
        """Write a heartbeat that lists all hands; the coordinator's echo."""
        self.sequence = self.sequence + 1 if sequence is None else sequence
        held = tuple(Held(task_id=h.ticket.task_id, fence=h.ticket.fence, state=h.state) for h in self.hands)
        beat = Heartbeat(
            generation=self.generation,
            sequence=self.sequence,
            window=self.window,
            held=held,
            remaining_ms=self.remaining_ms,
        )
        return self.face.beat(HEARTBEAT.dump_json(beat), TTL_MS)

    # --- what it does with assignments ---

    def take(self, limit: int = 1_000) -> list[Hand]:
        """Read assignments; nothing is said about them yet."""
        taken = self.face.take(capabilities=self.capabilities, limit=limit, block_ms=0)
        fresh = [
            Hand(handout.assignment.ticket, self.fleet.entropy.token(8))
            for handout in taken
            if handout.assignment is not None
        ]
        self.hands.extend(fresh)
        return fresh

    def claim(self, *hands: Hand) -> Hand:
        """Take what there is (or claim the given hands), claim it, and read the answers; the first hand."""
        chosen = hands or tuple(self.take())
        self.report(*(self.claimed(hand) for hand in chosen))
        self.read()
        for hand in chosen:
            hand.state = "running"
        return chosen[0]

    def claimed(self, hand: Hand) -> Claimed:
        return Claimed(binding=hand.binding, after_beat=self.sequence)

    def finished(self, hand: Hand, value: str = "1") -> Finished:
        scope = Scope(world=WORLD, run=RUN)
        return Finished(binding=hand.binding, scope=scope, outcome=Outcome(value=value), duration_ms=5)

    def finish(self, hand: Hand, value: str = "1", *, scope: Scope | None = None, **changes: Any) -> None:
        """Report a value; `changes` falsify the binding."""
        self._end(hand, Outcome(value=value), scope, changes)

    def fail(self, hand: Hand, kind: FailureKind = FailureKind.EXCEPTION) -> None:
        self._end(hand, Outcome(failure=Failure(kind=kind, message="ValueError: no")), None, {})

    def release(self, hand: Hand, cause: Cause, *, started: bool, tree_gone: bool = True) -> None:
        drop(self, hand)
        self.report(Released(binding=hand.binding, cause=cause, started=started, tree_gone=tree_gone))

    # --- what it is told ---

    def read(self) -> list[Order]:
        """The orders that are new since the last look."""
        fresh: list[Order] = []
        for entry in self.face.orders(after=self.after, block_ms=0):
            self.after = entry.entry_id
            fresh.extend(decode(CONTROL, entry.raw).orders)
        self.orders.extend(fresh)
        return fresh

    def _end(self, hand: Hand, outcome: Outcome, scope: Scope | None, changes: dict[str, Any]) -> None:
        drop(self, hand)
        binding = hand.binding.model_copy(update=changes)
        self.report(
            Finished(binding=binding, scope=scope or Scope(world=WORLD, run=RUN), outcome=outcome, duration_ms=5)
        )


def drop(worker: ScriptedWorker, hand: Hand) -> None:
    """Let a worker forget an assignment without a word."""
    worker.hands = [each for each in worker.hands if each is not hand]


def leave(worker: ScriptedWorker, *, gone: bool) -> None:
    """Let a worker drain (`gone` False) or end."""
    worker.report(Leaving(gone=gone))


def granted(worker: ScriptedWorker) -> list[int]:
    """The fences that a worker was granted so far, in order."""
    worker.read()
    return [order.fence for order in worker.orders if isinstance(order, Granted)]


def refusals(worker: ScriptedWorker) -> list[str]:
    """The reasons why claims of a worker were refused so far, in order."""
    worker.read()
    return [str(order.reason) for order in worker.orders if isinstance(order, Refused)]


def verdicts(worker: ScriptedWorker) -> list[str]:
    """The verdicts that a worker was given so far, a rejection by its reason, in order."""
    worker.read()
    return [str(order.reason or order.verdict) for order in worker.orders if isinstance(order, Judged)]
