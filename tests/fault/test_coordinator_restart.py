"""A coordinator that ends anywhere, over a database and a broker that stay as they were, or do not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from tenure.broker.base import CoordinatorBroker, Stream
from tenure.errors import BrokerError, Superseded
from tenure.protocol.client_messages import Cancel
from tenure.protocol.envelope import Retry
from tests.honest_worker import HonestWorker
from tests.scripted_fleet import EXPIRY_MS, ScriptedFleet, ScriptedWorker, envelope, granted, verdicts
from tests.tripwire import Killed, Trip, Tripwire, kill


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path) as fleet:
        yield fleet


def step(fleet: ScriptedFleet) -> None:
    """One turn; the next coordinator starts when this one dies in it."""
    try:
        fleet.step()
    except Killed:
        fleet.restart()
    except BrokerError:
        pass  # seen; the next turn looks the broker over


def work(fleet: ScriptedFleet, worker: ScriptedWorker) -> None:
    """Let an honest worker live for a while."""
    honest = HonestWorker(worker)
    for _ in range(60):
        fleet.clock.advance_ms(500)
        honest.round()
        step(fleet)


def check(fleet: ScriptedFleet) -> None:
    """What holds after every story."""
    rows = fleet.records.rows
    assert rows("SELECT DISTINCT state FROM task") == [("SUCCEEDED",)]
    assert rows("SELECT task_id FROM result GROUP BY task_id HAVING COUNT(*) > 1") == []
    assert rows("SELECT state, COUNT(*) FROM lease WHERE state NOT IN ('COMPLETED', 'RELEASED') GROUP BY state") == []
    assert rows("SELECT COUNT(*) FROM directive") == [(0,)]
    assert rows(
        "SELECT COUNT(*) FROM result r JOIN lease l USING (task_id, fence) WHERE l.state = 'COMPLETED'"
    ) == rows("SELECT COUNT(*) FROM task")


@pytest.mark.parametrize("start", ["granted", "claimed"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", range(1, 25))
def test_a_crash_at_any_call_to_the_broker_loses_nothing_and_repeats_nothing(
    fleet: ScriptedFleet, start: str, when: Literal["before", "after"], at: int
) -> None:
    """Between commit and publication, between publication and orders, between orders and settling, and at the start."""
    trip = Trip(act=kill, when=when, at=at)
    fleet.face = Tripwire(fleet.broker.coordinator(), trip)
    fleet.restart()
    worker = ScriptedWorker(fleet, "w1", "default", 1, fleet.broker.worker(site="default", worker_id="w1"))
    fleet.client.send(fleet.client.submission(*[envelope(start=start)] * 3))
    work(fleet, worker)

    assert len(trip.calls) > at
    check(fleet)
    assert fleet.records.rows("SELECT COUNT(*) FROM quarantine") == [(0,)]


@pytest.mark.parametrize("at", range(1, 25, 2))
def test_a_flush_at_any_call_to_the_broker_loses_no_task(fleet: ScriptedFleet, at: int) -> None:
    fleet.face = Tripwire(fleet.broker.coordinator(), Trip(act=fleet.server.flush, when="after", at=at))
    worker = fleet.worker(slots=2)
    fleet.client.ask(fleet.client.submission(*[envelope()] * 3))
    fleet.restart()
    work(fleet, worker)
    check(fleet)


@pytest.mark.parametrize("at", range(1, 25, 2))
def test_a_restarted_broker_with_its_data_loses_no_task(fleet: ScriptedFleet, at: int) -> None:
    def restart() -> None:
        fleet.server.restart()
        kill()

    fleet.face = Tripwire(fleet.broker.coordinator(), Trip(act=restart, when="after", at=at))
    worker = fleet.worker(slots=2)
    fleet.client.ask(fleet.client.submission(*[envelope()] * 3))
    fleet.restart()
    work(fleet, worker)
    check(fleet)


@pytest.mark.parametrize("writes", [1, 3, 10, 30])
def test_a_replica_that_lacks_the_newest_writes_loses_no_task(tmp_path: Path, writes: int) -> None:
    with ScriptedFleet(tmp_path, remembered_writes=100) as fleet:
        worker = fleet.worker(slots=2)
        fleet.client.ask(fleet.client.submission(*[envelope()] * 3))
        fleet.step()
        worker.claim()
        fleet.server.lose_newest(writes)
        fleet.server.restart()
        fleet.restart()
        work(fleet, worker)
        check(fleet)


def test_leases_and_grants_hold_over_a_restart(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    hand = worker.claim()
    fleet.restart()
    fleet.step()
    worker.claim(hand)
    worker.finish(hand, "42")

    assert (granted(worker), verdicts(worker)) == ([1, 1], ["accepted"])
    assert fleet.records.result(task) == ("w1", 1, "42")


def test_fences_grow_over_restarts(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    for _ in range(3):
        fleet.submit()
        worker.finish(worker.claim())
        fleet.restart()
        fleet.step()
    assert fleet.records.rows("SELECT fence, epoch FROM lease ORDER BY fence") == [(1, 1), (2, 2), (3, 3)]


def test_a_backlog_goes_on_after_a_restart(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    tasks = [fleet.submit() for _ in range(3)]
    fleet.restart()
    fleet.step(2)
    for _ in tasks:
        worker.finish(worker.claim())
    assert [fleet.records.state(task) for task in tasks] == ["SUCCEEDED"] * 3


def test_an_approved_retry_goes_on_after_a_restart(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit(retry=Retry(lost=1, backoff_ms=5_000))
    worker.claim()
    worker.alive = False
    fleet.live(EXPIRY_MS + 1_000)
    fleet.restart()
    fleet.step()
    worker.hands.clear()
    worker.alive = True
    fleet.live(6_000)
    assert fleet.records.state(task) == "OFFERED"


def test_leftover_entries_of_a_crash_are_cleared(fleet: ScriptedFleet) -> None:
    """The crash comes after the commit of a result and before its entry is taken off the stream."""
    trip = Trip(act=kill)
    fleet.face = Tripwire(fleet.broker.coordinator(), trip)
    fleet.restart()
    fleet.step()
    worker = fleet.worker()
    fleet.submit()
    hand = worker.claim()
    trip.calls.clear()
    trip.at = 2
    with pytest.raises(Killed):
        worker.finish(hand)
    assert trip.calls[1] == "post"
    assert pending(fleet.face) == 1
    fleet.restart()
    fleet.step()
    assert pending(fleet.face) == 0


def pending(face: CoordinatorBroker) -> int:
    return len(face.pending(Stream("default", "cpu")))


def test_a_coordinator_that_was_replaced_stops_before_it_writes_or_publishes(fleet: ScriptedFleet) -> None:
    """It was stopped for a while, somebody took over its database by force, and it wakes up."""
    fleet.worker()
    fleet.client.send(fleet.client.submission(envelope()))
    fleet.store.begin_epoch()
    old = fleet.coordinator
    fleet.store.epoch -= 1
    with pytest.raises(Superseded):
        old.step(0)
    assert fleet.records.rows("SELECT COUNT(*) FROM task") == [(0,)]


def test_a_stream_that_belongs_to_a_newer_coordinator_is_not_written_to(fleet: ScriptedFleet) -> None:
    fleet.worker(slots=3)
    fleet.submit()
    assert fleet.records.rows("SELECT COUNT(*) FROM lease") == [(1,)]
    with ScriptedFleet(fleet.options.database.parent / "copy") as newer:
        for _ in range(3):
            newer.restart()
        newer.step()
        newer.worker(slots=1)
        newer.submit()
        ((raw_epoch,),) = newer.records.rows("SELECT epoch FROM lease")
        publication = newer.broker.worker(site="default", worker_id="w1").take(
            capabilities=["cpu"], limit=1, block_ms=0
        )
        assert publication[0].assignment is not None
        cpu = fleet.broker.keys.assignments(Stream("default", "cpu"))
        fleet.server.add(cpu, publication[0].assignment, publication[0].entry_id)
    assert raw_epoch == 4
    fleet.client.send(fleet.client.submission(envelope()))
    with pytest.raises(Superseded):
        fleet.step()


def test_what_was_asked_twice_because_of_a_crash_is_done_once(fleet: ScriptedFleet) -> None:
    trip = Trip(act=kill, when="after")
    fleet.face = Tripwire(fleet.broker.coordinator(), trip)
    fleet.restart()
    fleet.step()
    worker = fleet.worker()
    task = fleet.submit()
    worker.claim()
    trip.calls.clear()
    trip.at = 2
    fleet.client.send(Cancel(task_ids=(task,)))
    step(fleet)
    step(fleet)
    assert len(fleet.records.events("cancel_asked")) == 1
