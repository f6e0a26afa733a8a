"""An executor's core and its taker: one assignment, asked for first and never twice, and an end whatever happens."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from typing import Any

import pytest

from tenure.broker.base import EntryId, Publication, Readers, Stream
from tenure.broker.keys import Keys
from tenure.broker.memory import MemoryBroker
from tenure.broker.memory_store import MemoryStore
from tenure.protocol.assignment import Assignment, Ticket
from tenure.protocol.control_messages import SayHello
from tenure.protocol.envelope import encode
from tenure.protocol.launch import LaunchTicket
from tenure.protocol.worker_messages import Cause, Claimed, Hello, Leaving
from tenure.testing import ManualClock, SeededEntropy
from tenure.workers.actions import Leave
from tenure.workers.claims import Claims
from tenure.workers.freight import StoreAddress
from tenure.workers.inputs import DrainAsked, Taken, WireInput
from tenure.workers.membership import Profile
from tenure.workers.single_taker import SingleTaker
from tests.fixtures_worker_core import Core, granted, quick

PATIENCE_MS = 120_000
HOUR_MS = 3_600_000


def executor(*, registered: bool = True) -> Core:
    """The core of an executor that has said hello."""
    core = Core(registered=False)
    hello = Hello(executor_of="parent", slots=1, capabilities=("default",), ttl_ms=30_000)
    core.claims = Claims(Profile(hello, 1, frozenset(), HOUR_MS, PATIENCE_MS), SeededEntropy(1))
    core.collect()
    if registered:
        core.orders.register()
    return core


def left(core: Core) -> bool:
    return bool(core.seen.all(Leave))


# --- the core ---------------------------------------------------------------------------------------------------------


def test_it_says_whose_executor_it_is_and_wants_nothing_else() -> None:
    core = executor()
    (hello,) = core.seen.told(Hello)
    assert hello.executor_of == "parent"
    assert core.claims.window(core.now_ms) == 0
    core.take(granted(), again=True)
    assert core.claims.pulse(core.now_ms).window == 0


@pytest.mark.parametrize("envelope", [quick(), granted()])
def test_it_starts_nothing_before_the_grant_even_what_starts_on_its_claim(envelope: Any) -> None:
    core = executor()
    (ticket,) = core.take(envelope, again=True)
    core.pass_ms(500)
    assert core.seen.told(Claimed)
    assert core.seen.started() == []
    core.orders.grant(ticket)
    assert core.seen.started() == [ticket.fence]


def test_it_leaves_when_its_result_is_judged() -> None:
    core = executor()
    (ticket,) = core.take(granted(), again=True)
    core.orders.grant(ticket)
    core.end(ticket)
    core.pass_ms(500)
    assert not left(core)
    core.orders.judge(ticket)
    core.pass_ms(1_500)
    assert [told.gone for told in core.seen.told(Leaving)] == [False, True]
    assert left(core)


def test_it_waits_for_the_verdict_on_what_has_run_as_long_as_it_was_told() -> None:
    core = executor()
    (ticket,) = core.take(granted(), again=True)
    core.orders.grant(ticket)
    core.end(ticket)
    core.pass_ms(60_000)
    assert not left(core)
    assert len(core.seen.finished(ticket)) > 1, "the result is told again"
    core.now_ms += HOUR_MS
    core.pass_ms(1_500)
    assert left(core)
    assert [told.gone for told in core.seen.told(Leaving)] == [False], "it is not said that nothing is in hand"


def test_told_to_end_at_once_it_waits_no_longer_than_any_worker() -> None:
    core = executor()
    (ticket,) = core.take(granted(), again=True)
    core.orders.grant(ticket)
    core.end(ticket)
    core.pass_ms(500)
    core.feed(DrainAsked(at_once=True))
    core.pass_ms(4_000)
    assert not left(core)
    core.pass_ms(2_500)
    assert left(core)


def test_what_runs_is_ended_at_once_and_released() -> None:
    core = executor()
    (ticket,) = core.take(granted(), again=True)
    core.orders.grant(ticket)
    core.feed(DrainAsked(at_once=True))
    core.recalled(0)
    core.tree_ended(0)
    (released,) = core.seen.released(ticket)
    assert (released.cause, released.started, released.tree_gone) == (Cause.DRAINED, True, True)


def test_an_assignment_that_is_not_there_any_more_ends_it() -> None:
    core = executor()
    core.feed(Taken((), core.now_ms, again=True, withdrawn=True))
    core.pass_ms(1_500)
    assert left(core)
    assert core.claims.counts() == {"withdrawn": 1}


def test_a_second_executor_runs_nothing_and_leaves() -> None:
    core = executor()
    (ticket,) = core.take(quick(), again=True)
    core.orders.refuse(ticket)
    core.pass_ms(1_500)
    assert core.seen.started() == []
    assert left(core)
    assert core.claims.counts() == {"refused": 1}


def test_a_claim_that_nobody_answers_is_given_back_after_the_patience() -> None:
    core = executor(registered=False)
    (ticket,) = core.take(granted(), again=True)
    for _ in range(PATIENCE_MS // 10_000 - 1):
        core.beat()
        core.pass_ms(10_000)
    core.pass_ms(9_000)
    assert not core.seen.told(Leaving)
    core.pass_ms(1_500)
    (released,) = core.seen.released(ticket)
    assert (released.cause, released.started) == (Cause.UNSTARTED, False)
    core.pass_ms(6_000)
    assert left(core)


def test_the_patience_does_not_count_while_it_runs() -> None:
    core = executor()
    (ticket,) = core.take(granted(), again=True)
    core.orders.grant(ticket)
    for _ in range(13):
        core.beat()
        core.pass_ms(10_000)
    assert not core.seen.told(Leaving)
    core.end(ticket)
    assert len(core.seen.finished(ticket)) == 1


def test_without_a_broker_it_leaves_after_the_patience() -> None:
    core = executor(registered=False)
    core.pass_ms(PATIENCE_MS - 2_000)
    assert not left(core)
    core.pass_ms(4_000)
    assert left(core)
    assert core.claims.counts() == {}


def test_a_coordinator_that_has_forgotten_it_is_told_again_while_it_waits_for_the_verdict() -> None:
    core = executor()
    (ticket,) = core.take(granted(), again=True)
    core.orders.grant(ticket)
    core.end(ticket)
    core.pass_ms(500)
    core.orders.order(SayHello())
    core.orders.register()
    core.orders.judge(ticket)
    core.pass_ms(1_500)
    assert [hello.executor_of for hello in core.seen.told(Hello)] == ["parent", "parent"]
    assert left(core)


# --- the taker --------------------------------------------------------------------------------------------------------


class Front:
    """A desk that keeps what it is told."""

    def __init__(self) -> None:
        self.taken: list[Taken] = []

    def post(self, happened: WireInput) -> None:
        assert isinstance(happened, Taken)
        self.taken.append(happened)

    def pulse(self) -> Any:
        raise NotImplementedError

    def window(self) -> int:
        raise NotImplementedError

    def wait_for_room(self, timeout_s: float) -> int:
        raise NotImplementedError


class Counter:
    """A broker with one assignment, on the capability's stream or on the parent's own."""

    def __init__(self, *, is_directed: bool = False) -> None:
        self.broker = MemoryBroker(MemoryStore(ManualClock()), Keys("main"))
        coordinator = self.broker.coordinator()
        stream = Stream("lab", worker_id="parent") if is_directed else Stream("lab", "default")
        coordinator.ensure_streams(readers=Readers(("lab",)), assignments=[stream])
        envelope = encode(granted())
        self.ticket = Core(registered=False).ticket(granted())
        entry_id = EntryId(3, 9)
        coordinator.publish([Publication(entry_id, Assignment(ticket=self.ticket, envelope=envelope), stream)])
        coordinator.mark("first", "/srv/files")
        self.launched = launched(self.ticket, entry=str(entry_id), is_directed=is_directed)
        self.front, self.store, self.ended = Front(), StoreAddress(""), Event()
        self.ended.set()

    def look(self, ticket: LaunchTicket, times: int = 1) -> Sequence[Taken]:
        taker = SingleTaker(ticket, self.front, ManualClock(), self.store, self.ended)
        for _ in range(times):
            taker.turn(self.broker.worker(site="lab", worker_id="parent.x1"))
        return self.front.taken


def launched(ticket: Ticket, **changes: Any) -> LaunchTicket:
    fields: dict[str, Any] = {
        "namespace": "main",
        "site": "lab",
        "parent": "parent",
        "capability": "default",
        "entry": "3-9",
        "world": "world",
        "run": "run",
        "task_id": ticket.task_id,
        "attempt": ticket.attempt,
        "fence": ticket.fence,
        "digest": ticket.digest,
        "ttl_ms": ticket.ttl_ms,
    }
    return LaunchTicket(**(fields | changes))


@pytest.mark.parametrize("is_directed", [False, True])
def test_the_entry_is_looked_up_once_and_counts_as_delivered_before(is_directed: bool) -> None:  # noqa: FBT001
    counter = Counter(is_directed=is_directed)
    (taken,) = counter.look(counter.launched, times=3)
    (handout,) = taken.handouts
    assert handout.assignment is not None
    assert handout.assignment.ticket == counter.ticket
    assert (taken.again, taken.inherited, taken.withdrawn) == (True, False, False)
    assert str(counter.store) == "/srv/files"


@pytest.mark.parametrize(
    "change",
    [
        {"entry": "3-8"},
        {"capability": "other"},
        {"site": "yard"},
        {"is_directed": True},
        {"task_id": "Z" * 26},
        {"attempt": 2},
        {"fence": 99},
        {"digest": "0" * 64},
    ],
)
def test_what_is_not_the_tickets_assignment_counts_as_withdrawn(change: dict[str, Any]) -> None:
    counter = Counter()
    (taken,) = counter.look(counter.launched.model_copy(update=change))
    assert (list(taken.handouts), taken.withdrawn) == ([], True)
