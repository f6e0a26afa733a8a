"""A coordinator whose broker goes away, fills up, forgets, or does only half of what it was asked."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from tenure.errors import BrokerUnreachable, StreamMissing
from tenure.protocol.client_messages import Cancel
from tests.scripted_fleet import EXPIRY_MS, ScriptedFleet, envelope, verdicts
from tests.tripwire import Killed, Trip, Tripwire, kill


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path) as fleet:
        yield fleet


def unreachable() -> None:
    raise BrokerUnreachable("the connection was reset")


def trip(fleet: ScriptedFleet, trip: Trip) -> Trip:
    """Restart the coordinator on a broker that has this trip."""
    fleet.face = Tripwire(fleet.broker.coordinator(), trip)
    fleet.restart()
    fleet.step()
    trip.calls.clear()
    return trip


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_assignment_whose_publication_failed_is_published_once(
    fleet: ScriptedFleet, when: Literal["before", "after"]
) -> None:
    """Of a task that starts on claim, two entries would be two runs."""
    worker = fleet.worker(slots=8)
    fleet.submit()
    worker.finish(worker.claim())
    fault = trip(fleet, Trip(act=unreachable, when=when))
    fleet.client.send(fleet.client.submission(*[envelope(start="claimed")] * 3))
    fault.at = 2
    with pytest.raises(BrokerUnreachable):
        fleet.step()
    fleet.step(3)

    assert fault.calls[:2] == ["receive", "publish"]
    assert [hand.ticket.fence for hand in worker.take()] == [2, 3, 4]


@pytest.mark.parametrize("start", ["claimed", "granted"])
def test_an_assignment_that_a_crash_kept_from_publication_is_published_by_the_next_coordinator(
    fleet: ScriptedFleet, start: str
) -> None:
    """Under the id that it was given, so that a copy which the crash left on its way is refused."""
    worker = fleet.worker(slots=8)
    fleet.submit()
    worker.finish(worker.claim())
    fault = trip(fleet, Trip(act=kill))
    fleet.client.send(fleet.client.submission(*[envelope(start=start)] * 2))
    fault.at = 2
    with pytest.raises(Killed):
        fleet.step()
    before = fleet.records.rows("SELECT epoch, outbox FROM lease WHERE state = 'OFFERED' ORDER BY outbox")
    fleet.restart()
    fleet.step(2)
    taken = worker.face.take(capabilities=["cpu"], limit=10, block_ms=0)

    assert [(handout.entry_id.major, handout.entry_id.minor) for handout in taken] == before


def test_nothing_expires_while_the_broker_is_away_nor_right_after(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    hand = worker.claim()
    fleet.server.down = True
    for _ in range(600):
        fleet.clock.advance_ms(1_000)
        with pytest.raises(BrokerUnreachable):
            fleet.step()
    fleet.server.down = False
    worker.alive = False
    fleet.live(EXPIRY_MS - 1_000)

    assert fleet.records.state(task) == "RUNNING"
    worker.finish(hand)
    assert verdicts(worker) == ["accepted"]


def test_a_worker_that_stayed_silent_after_the_broker_came_back_is_replaced_a_full_term_later(
    fleet: ScriptedFleet,
) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    worker.claim()
    worker.alive = False
    fleet.live(5_000)
    fleet.server.down = True
    with pytest.raises(BrokerUnreachable):
        fleet.live(1_000)
    fleet.server.down = False
    fleet.step()
    fleet.live(EXPIRY_MS)
    assert fleet.records.state(task) == "RUNNING"
    fleet.live(1_000)
    assert fleet.records.state(task) == "LOST"


def test_a_full_broker_is_waited_for(fleet: ScriptedFleet) -> None:
    """What could not be published is published when there is room, once."""
    worker = fleet.worker(slots=4)
    fleet.client.send(fleet.client.submission(envelope(start="claimed"), envelope(start="claimed")))
    fleet.server.full = True
    fleet.step(3)
    assert worker.take() == []
    fleet.server.full = False
    fleet.step()

    assert [hand.ticket.fence for hand in worker.take()] == [1, 2]
    assert worker.take() == []


def test_an_offer_that_was_given_up_while_the_broker_was_full_is_never_published(fleet: ScriptedFleet) -> None:
    """Else a worker would begin what is not to be run any more."""
    worker = fleet.worker()
    fleet.client.send(fleet.client.submission(envelope()))
    fleet.server.full = True
    fleet.step()
    ((task,),) = fleet.records.rows("SELECT task_id FROM task WHERE state = 'OFFERED'")
    fleet.server.full = False
    fleet.client.send(Cancel(task_ids=(task,)))
    fleet.server.full = True
    fleet.step()
    fleet.server.full = False
    fleet.step()

    assert fleet.records.state(task) == "CANCELLED"
    assert worker.take() == []


def test_a_full_broker_loses_no_task_that_starts_on_claim(fleet: ScriptedFleet) -> None:
    """Nobody was given what was not published, however long that takes."""
    worker = fleet.worker()
    fleet.client.send(fleet.client.submission(envelope(start="claimed")))
    fleet.server.full = True
    fleet.step()
    fleet.live(60_000)
    fleet.server.full = False
    fleet.live(2_000)

    assert len(worker.take()) == 1
    assert fleet.records.rows("SELECT state FROM task") == [("OFFERED",)]


@pytest.mark.parametrize("start", ["claimed", "granted"])
def test_a_full_broker_is_no_reason_to_give_anybody_up(fleet: ScriptedFleet, start: str) -> None:
    """It can be read, but no heartbeat is taken: that nobody is heard on it proves nothing."""
    worker = fleet.worker()
    task = fleet.submit(start=start)
    hand = worker.claim()
    fleet.server.full = True
    fleet.live(600_000)
    fleet.server.full = False
    fleet.live(EXPIRY_MS // 2)

    assert fleet.records.state(task) == "RUNNING"
    assert fleet.records.events("worker_state") == []
    worker.finish(hand)
    assert verdicts(worker) == ["accepted"]


def test_what_was_taken_from_a_full_broker_is_not_given_up(fleet: ScriptedFleet) -> None:
    """A task that starts on its claim runs, while neither claim nor heartbeat can be written."""
    worker = fleet.worker()
    task = fleet.submit(start="claimed")
    fleet.server.full = True
    hands = worker.take()
    fleet.live(600_000)
    fleet.server.full = False
    worker.finish(worker.claim(*hands))

    assert verdicts(worker) == ["accepted"]
    assert fleet.records.leases(task) == ["COMPLETED"]


def test_who_died_while_the_broker_was_full_is_given_up_a_full_term_after_there_is_room(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    worker.claim()
    fleet.server.full = True
    fleet.live(2_000)
    worker.alive = False
    fleet.live(60_000)
    fleet.server.full = False
    fleet.live(EXPIRY_MS - 1_000)
    assert fleet.records.state(task) == "RUNNING"
    fleet.live(2_000)
    assert fleet.records.state(task) == "LOST"


def test_new_streams_wait_for_room_and_are_made_then(fleet: ScriptedFleet) -> None:
    """A hello that needs streams is settled although the broker is full."""
    worker = fleet.worker("w1")
    worker.hello(capabilities=("cpu", "gpu"))
    fleet.server.full = True
    fleet.step(2)
    fleet.server.full = False
    fleet.live(6_000)
    task = fleet.submit(capability="gpu")
    fleet.step()
    worker.claim()

    assert fleet.records.state(task) == "RUNNING"


def test_a_flush_is_noticed_even_when_the_streams_are_made_again_at_once(fleet: ScriptedFleet) -> None:
    """The periodic repair of groups may not hide that everything is gone."""
    worker = fleet.worker()
    fault = trip(fleet, Trip(act=fleet.server.flush, when="after"))
    task = fleet.submit()
    worker.claim()
    fleet.live(4_000)
    fleet.clock.advance_ms(1_500)
    fault.calls.clear()
    fault.at = 1
    with pytest.raises(StreamMissing):
        fleet.step()
    fleet.step()

    assert fleet.records.events("new_incarnation") == [
        "The broker restarted or lost data: 0 offers are looked into, expiry waits a full term."
    ]
    assert fleet.records.state(task) == "RUNNING"
