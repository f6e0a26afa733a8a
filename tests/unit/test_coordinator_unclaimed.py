"""Offers that nobody claims: which may be offered again, and which may have been started by somebody."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.errors import StreamMissing
from tenure.protocol.envelope import Requirements
from tenure.protocol.worker_messages import Cause, Released
from tests.scripted_fleet import EXPIRY_MS, ScriptedFleet, drop, granted, leave, refusals, verdicts

UNCLAIMED_MS = 15_000


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path, unclaimed_ms=UNCLAIMED_MS) as fleet:
        yield fleet


# --- start on a grant: only the bind gives the right to run --------------------------------------


def test_an_offer_taken_by_a_worker_that_died_goes_to_the_next_under_its_fence(fleet: ScriptedFleet) -> None:
    first, second = fleet.worker("w1"), fleet.worker("w2")
    task = fleet.submit()
    first.take()
    first.alive = False
    fleet.live(UNCLAIMED_MS + 1_000)
    second.claim()

    assert granted(second) == [1]
    assert fleet.records.leases(task) == ["ACTIVE"]


def test_the_late_claim_of_a_copy_is_refused(fleet: ScriptedFleet) -> None:
    first, second = fleet.worker("w1"), fleet.worker("w2")
    fleet.submit()
    (late,) = first.take()
    drop(first, late)
    fleet.live(UNCLAIMED_MS + 1_000)
    second.claim()
    first.claim(late)

    assert refusals(first) == ["wrong_worker"]
    assert (granted(first), granted(second)) == ([], [1])


def test_an_offer_that_a_heartbeat_lists_is_not_offered_again(fleet: ScriptedFleet) -> None:
    """Its claim is on its way, or will be repeated."""
    worker = fleet.worker()
    fleet.submit()
    worker.take()
    fleet.live(10 * UNCLAIMED_MS)
    assert fleet.records.rows("SELECT outbox FROM lease") == [(1,)]


def test_a_heartbeat_of_a_worker_that_cannot_run_it_is_no_claim_to_an_offer(fleet: ScriptedFleet) -> None:
    """A copy of the entry has come to it; the worker that was given the entry itself may still hand it back."""
    first, second = fleet.worker("w1"), fleet.worker("w2", capabilities=("other",))
    task = fleet.submit()
    (hand,) = first.take()
    second.hands.append(hand)
    second.beat()
    fleet.live(1_000)
    second.hands.clear()
    first.release(hand, Cause.SELF_FENCED, started=False)
    assert verdicts(first) == ["accepted"]
    assert fleet.records.leases(task) == ["RELEASED", "OFFERED"]


def test_an_offer_to_a_worker_that_went_away_is_given_to_another(fleet: ScriptedFleet) -> None:
    """Its entry is on the stream of one worker, where nobody else can find it."""
    fleet.worker("w1", labels=(("room", "b12"),), slots=2).alive = False
    task = fleet.submit(requirements=Requirements(labels=(("room", "b12"),)))
    second = fleet.worker("w2", labels=(("room", "b12"),))
    fleet.live(UNCLAIMED_MS + 1_000)
    second.claim()

    assert fleet.records.leases(task) == ["RELEASED", "ACTIVE"]
    assert granted(second) == [2]


# --- start on claim: whoever was given it may be running it --------------------------------------


def test_a_claimed_start_that_was_never_delivered_is_offered_again_at_once(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit(start="claimed")
    fleet.live(UNCLAIMED_MS + 1_000)

    assert fleet.records.leases(task) == ["RELEASED", "OFFERED"]
    assert [hand.ticket.fence for hand in worker.take()] == [2]


def test_a_claimed_start_taken_by_a_worker_that_died_is_lost(fleet: ScriptedFleet) -> None:
    """It may have run: a directive decides, as with any lost lease."""
    first = fleet.worker("w1")
    fleet.worker("w2")
    task = fleet.submit(start="claimed")
    first.take()
    first.alive = False
    fleet.live(UNCLAIMED_MS + EXPIRY_MS + 3_000)

    assert fleet.records.leases(task) == ["EXPIRED"]
    assert fleet.records.directives(task) == [("PENDING", "lease_expired", "")]


def test_the_late_result_of_a_claimed_start_that_was_given_up_is_kept_as_evidence(fleet: ScriptedFleet) -> None:
    worker = fleet.worker("w1")
    task = fleet.submit(start="claimed")
    (hand,) = worker.take()
    worker.alive = False
    fleet.live(UNCLAIMED_MS + EXPIRY_MS + 3_000)
    worker.finish(hand)

    assert verdicts(worker) == ["lease_expired"]
    assert fleet.records.quarantined() == ["lease_expired"]
    assert fleet.records.state(task) == "LOST"


def test_a_claimed_start_that_its_taker_is_heard_not_to_hold_is_offered_again(fleet: ScriptedFleet) -> None:
    """Half a ttl later the taker could not start it without a grant any more."""
    worker = fleet.worker()
    task = fleet.submit(start="claimed")
    drop(worker, worker.take()[0])
    fleet.live(UNCLAIMED_MS + 1_000)
    assert fleet.records.leases(task) == ["OFFERED"]
    fleet.live(10_000)
    assert fleet.records.leases(task) == ["RELEASED", "OFFERED"]


def test_a_claimed_start_lost_with_the_broker_waits_for_everyone_who_could_have_taken_it(fleet: ScriptedFleet) -> None:
    fleet.worker("w1")
    second = fleet.worker("w2")
    task = fleet.submit(start="claimed")
    second.alive = False
    fleet.server.flush()
    with pytest.raises(Exception, match="lost"):
        fleet.step()
    fleet.step()
    fleet.live(8_000)
    assert fleet.records.leases(task) == ["OFFERED"]
    second.alive = True
    fleet.live(2_000)
    assert fleet.records.leases(task) == ["RELEASED", "OFFERED"]


def test_a_claimed_start_that_survived_the_loss_of_the_broker_runs_on(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit(start="claimed")
    (hand,) = worker.take()
    hand.state = "running"
    fleet.server.flush()
    with pytest.raises(Exception, match="lost"):
        fleet.step()
    fleet.step()
    fleet.live(60_000)
    assert fleet.records.leases(task) == ["OFFERED"]
    worker.finish(hand, "42")
    assert fleet.records.result(task) == ("w1", 1, "42")


@pytest.fixture
def rolled_back(tmp_path: Path) -> Iterator[ScriptedFleet]:
    """A broker that has forgotten that its newest entry was delivered to a worker, which runs it and is not heard."""
    with ScriptedFleet(tmp_path, remembered_writes=100, unclaimed_ms=UNCLAIMED_MS) as fleet:
        worker = fleet.worker("w1")
        fleet.submit(start="claimed")
        worker.take()
        worker.alive = False
        fleet.server.lose_newest(1)
        fleet.server.restart()
        fleet.clock.advance_ms(5_000)
        with pytest.raises(StreamMissing, match="restarted or lost"):
            fleet.step()
        fleet.step()
        yield fleet


def test_a_broker_that_lost_data_is_not_believed_that_nobody_was_given_an_offer(rolled_back: ScriptedFleet) -> None:
    rolled_back.live(5_000)
    states = rolled_back.records.rows("SELECT state FROM lease")
    rolled_back.live(2 * EXPIRY_MS)

    assert [*states, *rolled_back.records.rows("SELECT state FROM lease")] == [("OFFERED",), ("EXPIRED",)]


def test_the_doubt_outlives_the_coordinator(rolled_back: ScriptedFleet) -> None:
    rolled_back.live(2_000)
    rolled_back.restart()
    rolled_back.live(5_000)

    assert rolled_back.records.rows("SELECT state FROM lease") == [("OFFERED",)]
    assert rolled_back.worker("w2").take() == []


def test_a_worker_that_has_left_with_nothing_in_hand_is_not_waited_for(rolled_back: ScriptedFleet) -> None:
    rolled_back.live(2_000)
    leave(rolled_back.workers[0], gone=True)
    rolled_back.live(2 * EXPIRY_MS)

    assert rolled_back.records.rows("SELECT state, cause FROM lease") == [("RELEASED", "unstarted")]


@pytest.fixture
def doubted(fleet: ScriptedFleet) -> str:
    """A task that starts on claim and whose entry went with the broker's data; "w1" has it and is not heard."""
    silent = fleet.worker("w1")
    fleet.worker("w2")
    task = fleet.submit(start="claimed")
    silent.take()[0].state = "running"
    silent.alive = False
    fleet.server.flush()
    with pytest.raises(Exception, match="lost"):
        fleet.step()
    fleet.step()
    fleet.live(8_000)
    return task


def test_a_pause_of_the_coordinator_is_no_word_of_a_worker(fleet: ScriptedFleet, doubted: str) -> None:
    fleet.clock.advance_ms(60_000)
    fleet.step()
    fleet.live(EXPIRY_MS - 2_000)
    assert fleet.records.leases(doubted) == ["OFFERED"]
    fleet.live(3_000)
    assert fleet.records.leases(doubted) == ["EXPIRED"]


def test_a_hello_is_no_word_about_what_the_worker_holds(fleet: ScriptedFleet, doubted: str) -> None:
    silent = fleet.workers[0]
    silent.hello()
    fleet.clock.advance_ms(1_000)
    fleet.step()
    assert fleet.records.leases(doubted) == ["OFFERED"]
    silent.alive = True
    fleet.live(60_000)
    assert fleet.records.leases(doubted) == ["OFFERED"]


@pytest.mark.parametrize("stays", ["there", "left"])
@pytest.mark.parametrize("coordinator", ["same", "restarted"])
def test_an_agent_that_is_younger_than_an_offer_proves_nothing_about_it(
    fleet: ScriptedFleet, doubted: str, coordinator: str, stays: str
) -> None:
    """The agent before it may have started it, and died with all that it knew."""
    again = fleet.worker("w1", generation=2)
    if stays == "left":
        leave(again, gone=True)
        again.alive = False
    if coordinator == "restarted":
        fleet.restart()
    fleet.live(2 * EXPIRY_MS)

    assert fleet.records.leases(doubted) == ["EXPIRED"]
    assert fleet.records.directives(doubted) == [("PENDING", "lease_expired", "")]


def test_an_agent_that_was_restarted_before_an_offer_is_believed_about_it(fleet: ScriptedFleet) -> None:
    fleet.worker("w1").alive = False
    worker = fleet.worker("w1", generation=2)
    task = fleet.submit(start="claimed")
    drop(worker, worker.take()[0])
    fleet.server.flush()
    with pytest.raises(Exception, match="lost"):
        fleet.step()
    fleet.step()
    worker.hello()
    fleet.live(10_000)
    assert fleet.records.leases(task) == ["RELEASED", "OFFERED"]


def test_a_directed_start_on_claim_that_was_given_up_gives_back_slot_and_resources(fleet: ScriptedFleet) -> None:
    worker = fleet.worker(resources=(("gpu", 1),))
    needs = Requirements(resources=(("gpu", 1),))
    task = fleet.submit(start="claimed", requirements=needs)
    worker.take()
    worker.alive = False
    fleet.live(UNCLAIMED_MS + EXPIRY_MS + 3_000)
    assert fleet.records.state(task) == "LOST"
    worker.hands.clear()
    worker.alive = True
    fleet.live(2_000)
    other = fleet.submit(requirements=needs)
    assert fleet.records.state(other) == "OFFERED"


# --- given back ----------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["granted", "claimed"])
def test_an_assignment_given_back_unstarted_uses_up_no_attempt(fleet: ScriptedFleet, start: str) -> None:
    worker = fleet.worker()
    task = fleet.submit(start=start)
    worker.release(worker.take()[0], Cause.UNSTARTED, started=False)

    assert verdicts(worker) == ["accepted"]
    assert fleet.records.rows("SELECT fence, attempt, state FROM lease ORDER BY fence") == [
        (1, 1, "RELEASED"),
        (2, 1, "OFFERED"),
    ]
    assert fleet.records.directives(task) == []


def test_a_refused_assignment_waits_a_second_before_it_is_offered_again(fleet: ScriptedFleet) -> None:
    """A worker that refuses everything cannot spin the loop."""
    worker = fleet.worker()
    task = fleet.submit()
    worker.release(worker.take()[0], Cause.REFUSED, started=False)
    assert fleet.records.leases(task) == ["RELEASED"]
    fleet.live(1_000)
    fleet.step()
    assert fleet.records.leases(task) == ["RELEASED", "OFFERED"]


def test_why_a_worker_cannot_run_a_task_is_told_once(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    for _ in range(3):
        hand = worker.claim()
        drop(worker, hand)
        worker.report(
            Released(binding=hand.binding, cause=Cause.REFUSED, started=False, tree_gone=True, detail="too old")
        )
        fleet.live(2_000)
    assert fleet.client.explain(task).count("w1 cannot run it and gave it back: too old.") == 1


def test_giving_back_twice_is_answered_and_changes_nothing(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    (hand,) = worker.take()
    worker.release(hand, Cause.REFUSED, started=False)
    worker.release(hand, Cause.REFUSED, started=False)

    assert verdicts(worker) == ["accepted", "duplicate"]
    assert fleet.records.leases(task) == ["RELEASED"]


def test_what_had_started_is_lost_when_it_is_given_up(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    worker.release(worker.claim(), Cause.PROCESS_DIED, started=True)

    assert fleet.records.leases(task) == ["RELEASED"]
    assert fleet.records.directives(task) == [("PENDING", "process_died", "")]
    assert fleet.records.state(task) == "LOST"


@pytest.mark.parametrize("start", ["granted", "claimed"])
def test_what_had_started_without_a_bind_is_never_offered_again_by_itself(fleet: ScriptedFleet, start: str) -> None:
    worker = fleet.worker()
    task = fleet.submit(start=start)
    worker.release(worker.take()[0], Cause.PROCESS_DIED, started=True)

    assert fleet.records.state(task) == "LOST"
    assert fleet.records.directives(task) == [("PENDING", "process_died", "")]


def test_without_proof_of_the_end_the_lease_runs_on(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    worker.release(worker.claim(), Cause.SELF_FENCED, started=True, tree_gone=False)

    fleet.live(EXPIRY_MS)
    assert fleet.records.leases(task) == ["ACTIVE"]
    assert verdicts(worker) == []
    assert fleet.records.events("not_ended") == ["w1 could not end attempt 1."]
    fleet.live(1_000)
    assert fleet.records.leases(task) == ["EXPIRED"]


def test_nobody_gives_back_what_another_worker_has_in_hand(fleet: ScriptedFleet) -> None:
    """It may have started it already."""
    holder, liar = fleet.worker("w1"), fleet.worker("w2")
    task = fleet.submit(start="claimed")
    (hand,) = holder.take()
    fleet.live(1_000)
    liar.release(hand, Cause.UNSTARTED, started=False)

    assert verdicts(liar) == ["not_granted"]
    assert fleet.records.leases(task) == ["OFFERED"]
