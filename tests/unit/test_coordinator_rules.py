"""Rules that nothing else held: each of these tests was written for a mutant that survived (see tests/mutants)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.broker.base import EntryId, Stream
from tenure.broker.memory_store import START
from tenure.coordinator import scheduler
from tenure.errors import StoreFull, Superseded
from tenure.protocol.client_messages import Cancel
from tenure.protocol.control_messages import Stop, StopReason
from tenure.protocol.envelope import Retry
from tests.scripted_fleet import EXPIRY_MS, Hand, ScriptedFleet, envelope, granted, refusals


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path) as fleet:
        yield fleet


def test_a_claim_needs_the_capability(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    stranger = fleet.worker("w2", capabilities=("gpu",))
    fleet.submit()
    (hand,) = worker.take()
    stranger.claim(hand)
    assert granted(stranger) == []
    assert refusals(stranger) == ["not_granted"]


def test_another_worker_is_granted_nothing_even_if_it_knows_the_nonce(fleet: ScriptedFleet) -> None:
    worker, thief = fleet.worker(), fleet.worker("w2")
    fleet.submit()
    hand = worker.claim()
    thief.claim(Hand(hand.ticket, hand.nonce))
    assert granted(thief) == []
    assert refusals(thief) == ["wrong_worker"]


def test_a_heartbeat_that_lists_an_older_fence_is_told_to_stop_it(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit(retry=Retry(lost=1))
    older = worker.claim()
    worker.alive = False
    fleet.live(EXPIRY_MS + 1_000)
    worker.alive = True
    fleet.live(1_000)
    assert fleet.records.leases(task) == ["EXPIRED", "OFFERED"]
    worker.read()
    fleet.live(1_000)
    stops = [order for order in worker.read() if isinstance(order, Stop)]
    assert [(stop.fence, stop.reason) for stop in stops] == [(older.ticket.fence, StopReason.SUPERSEDED)]


def test_a_worker_that_comes_back_is_told_at_once_what_is_over(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    fleet.submit()
    hand = worker.claim()
    worker.alive = False
    fleet.live(EXPIRY_MS + 1_000)
    worker.read()
    worker.generation = 2
    worker.hello()
    fleet.step()
    stops = [order for order in worker.read() if isinstance(order, Stop)]
    assert [stop.fence for stop in stops] == [hand.ticket.fence]


def test_an_offer_that_starts_on_its_claim_is_not_published_again_when_its_stream_was_deleted(
    fleet: ScriptedFleet,
) -> None:
    worker = fleet.worker(window=2)
    fleet.submit(start="claimed")
    assert len(worker.take()) == 1
    fleet.server.remove(fleet.broker.keys.assignments(Stream("default", "cpu")))
    fleet.restart()
    fleet.step(3)
    assert worker.take() == [], "the worker that took it may be running it"


def test_what_was_received_stays_on_the_broker_until_it_is_committed(
    fleet: ScriptedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = fleet.client.send(fleet.client.submission(envelope()))
    with monkeypatch.context() as patch:

        def refuse(_: object) -> None:
            raise StoreFull("the disk is full", "Free some space")

        patch.setattr(scheduler, "schedule", refuse)
        with pytest.raises(StoreFull):
            fleet.step()
    fleet.step()
    fleet.client.read()
    assert fleet.client.replies[request].admitted


def test_a_coordinator_that_finds_a_newer_ones_assignments_ends(fleet: ScriptedFleet) -> None:
    fleet.worker()
    newer = EntryId(fleet.coordinator.epoch + 1, 1)
    fleet.server.add(fleet.broker.keys.assignments(Stream("default", "cpu")), b"an assignment of the newer one", newer)
    fleet.client.send(fleet.client.submission(envelope()))
    with pytest.raises(Superseded):
        fleet.step()


def test_an_assignment_whose_task_was_cancelled_while_the_broker_was_full_is_not_sent(fleet: ScriptedFleet) -> None:
    fleet.worker()
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
    stream = fleet.server.stream(fleet.broker.keys.assignments(Stream("default", "cpu")))
    assert fleet.records.state(task) == "CANCELLED"
    assert stream is not None
    assert stream.last_id == START
