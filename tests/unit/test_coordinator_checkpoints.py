"""Checkpoints: from the holder only, read first, and the newest is where the next attempt starts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.protocol.artifact import Bundle
from tenure.protocol.client_messages import Assign
from tenure.protocol.control_messages import Kept
from tenure.protocol.envelope import Retry
from tenure.protocol.worker_messages import Cause, Checkpointed, Progressed
from tests.held_porter import HeldPorter, blob_of, objects, stage
from tests.scripted_fleet import EXPIRY_MS, Hand, ScriptedFleet, ScriptedWorker


@pytest.fixture
def porter() -> HeldPorter:
    return HeldPorter()


@pytest.fixture
def fleet(tmp_path: Path, porter: HeldPorter) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path, porter=porter, artifacts="memory:") as fleet:
        settle(fleet)
        yield fleet


def settle(fleet: ScriptedFleet) -> None:
    """Do all jobs, and those that follow from them."""
    assert fleet.porter is not None
    while fleet.porter.jobs:
        fleet.porter.finish()
        fleet.step()


def content(number: int) -> bytes:
    return b"state %d" % number


def saved(fleet: ScriptedFleet, hand: Hand, number: int) -> Checkpointed:
    """What a worker tells of a checkpoint that it has staged."""
    assert fleet.porter is not None
    bundle = stage(fleet.porter, hand.binding, {f"step-{number}": content(number)})
    return Checkpointed(binding=hand.binding, ordinal=number, name=f"step-{number}", bundle=bundle)


def kept(worker: ScriptedWorker) -> list[int]:
    worker.read()
    return [order.ordinal for order in worker.orders if isinstance(order, Kept)]


def checkpoints(fleet: ScriptedFleet) -> list[tuple[int, int, str]]:
    rows = fleet.records.rows("SELECT fence, ordinal, state FROM artifact WHERE kind = 'checkpoint' ORDER BY position")
    return [(row[0], row[1], row[2]) for row in rows]


def running(fleet: ScriptedFleet, **fields: object) -> tuple[str, ScriptedWorker, Hand]:
    worker = fleet.worker()
    task = fleet.submit(retry=Retry(lost=3), **fields)
    return task, worker, worker.claim()


def starts_from(hand: Hand) -> tuple[str, int, int] | None:
    point = hand.ticket.checkpoint
    return None if point is None else (point.name, point.attempt, point.fence)


# --- the way of a checkpoint ---------------------------------------------------------------------


def test_a_checkpoint_is_read_put_on_record_and_into_the_store_and_then_it_is_kept(
    fleet: ScriptedFleet, porter: HeldPorter
) -> None:
    _, worker, hand = running(fleet)
    worker.report(saved(fleet, hand, 1))
    assert (porter.waiting(), checkpoints(fleet), kept(worker)) == (["verify"], [], [])
    porter.finish()
    fleet.step()
    assert (porter.waiting(), checkpoints(fleet), kept(worker)) == (["promote"], [(1, 1, "ACCEPTED")], [])
    porter.finish()
    fleet.step()
    assert (checkpoints(fleet), kept(worker)) == ([(1, 1, "PROMOTED")], [1])
    assert blob_of(content(1)).digest in objects(porter)


def test_a_checkpoint_that_is_told_again_starts_nothing_twice(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    _, worker, hand = running(fleet)
    event = saved(fleet, hand, 1)
    worker.report(event, event)
    worker.report(event)
    porter.finish()
    fleet.step()
    worker.report(event)
    settle(fleet)
    worker.report(event)
    assert kept(worker) == [1, 1]
    assert (porter.begun.count("verify"), porter.begun.count("promote")) == (1, 1)


def test_an_older_checkpoint_gives_way_to_a_newer_one_and_never_the_other_way(fleet: ScriptedFleet) -> None:
    _, worker, hand = running(fleet)
    for number in (1, 3, 2):
        worker.report(saved(fleet, hand, number))
        settle(fleet)
    assert checkpoints(fleet) == [(1, 1, "COLLECTED"), (1, 3, "PROMOTED")]
    assert kept(worker) == [1, 3, 2]


def test_a_checkpoint_that_is_not_what_was_told_is_let_go(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    task, worker, hand = running(fleet)
    event = saved(fleet, hand, 1)
    wrong = Bundle(manifest=event.bundle.manifest, files=1, size=1)
    worker.report(event.model_copy(update={"bundle": wrong}))
    settle(fleet)
    assert (checkpoints(fleet), kept(worker)) == ([], [1])
    assert blob_of(content(1)).digest not in objects(porter)
    assert fleet.records.state(task) == "RUNNING"
    assert "was not taken" in fleet.records.events("checkpoint_refused")[0]


def test_a_checkpoint_waits_for_a_store_that_is_away(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    _, worker, hand = running(fleet)
    event = saved(fleet, hand, 1)
    worker.report(event)
    porter.fail("artifact_store_unreachable")
    fleet.step()
    assert kept(worker) == []
    fleet.live(2_000)
    worker.report(event)
    settle(fleet)
    assert kept(worker) == [1]


def test_without_a_store_a_worker_is_not_left_waiting(tmp_path: Path) -> None:
    with ScriptedFleet(tmp_path) as fleet:
        _, worker, hand = running(fleet)
        bundle = stage(HeldPorter(), hand.binding, {"a": b"a"})
        worker.report(Checkpointed(binding=hand.binding, ordinal=1, name="a", bundle=bundle))
        assert (checkpoints(fleet), kept(worker)) == ([], [1])


# --- who may ------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{"nonce": "f" * 16}, {"digest": "0" * 64}, {"attempt": 7}, {"fence": 99}])
def test_only_the_executor_that_holds_the_lease_has_checkpoints(
    fleet: ScriptedFleet, porter: HeldPorter, changes: dict[str, object]
) -> None:
    _, worker, hand = running(fleet)
    event = saved(fleet, hand, 1)
    worker.report(event.model_copy(update={"binding": hand.binding.model_copy(update=changes)}))
    assert (porter.waiting(), checkpoints(fleet), kept(worker)) == ([], [], [1])


def test_another_worker_has_none(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    _, _, hand = running(fleet)
    second = fleet.worker("w2")
    second.report(saved(fleet, hand, 1))
    assert (porter.waiting(), kept(second)) == ([], [1])


def test_a_stale_worker_cannot_overwrite_what_a_newer_attempt_has_saved(
    fleet: ScriptedFleet, porter: HeldPorter
) -> None:
    _, worker, hand = running(fleet)
    late = saved(fleet, hand, 9)
    worker.alive = False
    fleet.live(EXPIRY_MS + 1_000)
    second = fleet.worker("w2")
    fleet.step()
    newer = second.claim()
    second.report(saved(fleet, newer, 1))
    settle(fleet)
    worker.report(late)
    settle(fleet)
    assert checkpoints(fleet) == [(2, 1, "PROMOTED")]
    assert blob_of(content(9)).digest not in objects(porter)
    assert "stale_fence" in fleet.records.events("checkpoint_refused")[0]


def test_a_checkpoint_whose_lease_ends_while_it_is_read_is_not_taken(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    _, worker, hand = running(fleet)
    worker.report(saved(fleet, hand, 1))
    worker.release(hand, Cause.PROCESS_DIED, started=True)
    settle(fleet)
    assert checkpoints(fleet) == []
    assert blob_of(content(1)).digest not in objects(porter)


def test_a_checkpoint_that_comes_before_its_claim_is_told_again(fleet: ScriptedFleet) -> None:
    """It cannot bind: only the claim says which heartbeats must list the assignment."""
    worker = fleet.worker()
    task = fleet.submit(start="claimed")
    hand = worker.take()[0]
    worker.report(saved(fleet, hand, 1))
    assert (fleet.records.leases(task), checkpoints(fleet), kept(worker)) == (["OFFERED"], [], [])
    worker.claim(hand)
    worker.report(saved(fleet, hand, 1))
    settle(fleet)
    assert checkpoints(fleet) == [(1, 1, "PROMOTED")]


# --- where the next attempt starts ---------------------------------------------------------------


def test_the_next_attempt_starts_from_the_newest_checkpoint_and_says_so(fleet: ScriptedFleet) -> None:
    task, worker, hand = running(fleet)
    assert starts_from(hand) is None
    for number in (5, 6):
        worker.report(saved(fleet, hand, number))
        settle(fleet)
    worker.release(hand, Cause.PROCESS_DIED, started=True)
    again = worker.claim()
    assert starts_from(again) == ("step-6", 1, 1)
    assert "Attempt 2 starts from checkpoint step-6 of attempt 1." in fleet.client.explain(task)
    worker.report(saved(fleet, again, 7))
    settle(fleet)
    worker.release(again, Cause.PROCESS_DIED, started=True)
    assert starts_from(worker.claim()) == ("step-7", 2, 2)


def test_the_next_attempt_waits_until_the_newest_checkpoint_is_in_the_store(
    fleet: ScriptedFleet, porter: HeldPorter
) -> None:
    task, worker, hand = running(fleet)
    worker.report(saved(fleet, hand, 1))
    porter.finish("verify")
    fleet.step()
    worker.release(hand, Cause.PROCESS_DIED, started=True)
    fleet.live(2_000)
    assert (fleet.records.state(task), worker.take()) == ("QUEUED", [])
    porter.finish("promote")
    fleet.live(1_000)
    assert starts_from(worker.claim()) == ("step-1", 1, 1)


def test_nobody_is_assigned_it_meanwhile(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    task, worker, hand = running(fleet)
    worker.report(saved(fleet, hand, 1))
    porter.finish("verify")
    fleet.step()
    worker.release(hand, Cause.PROCESS_DIED, started=True)
    refusal = fleet.client.ask(Assign(task_id=task, worker_id="w1")).refusal
    assert refusal is not None
    assert "newest checkpoint" in refusal.message


def test_a_store_that_stays_away_does_not_hold_up_the_next_attempt_for_ever(
    fleet: ScriptedFleet, porter: HeldPorter
) -> None:
    _, worker, hand = running(fleet)
    worker.report(saved(fleet, hand, 1))
    settle(fleet)
    worker.report(saved(fleet, hand, 2))
    porter.finish("verify")
    fleet.step()
    worker.release(hand, Cause.PROCESS_DIED, started=True)
    fleet.live(62_000)
    assert starts_from(worker.claim()) == ("step-1", 1, 1)


def test_an_offer_that_is_published_again_starts_from_the_same_place(fleet: ScriptedFleet) -> None:
    _, worker, hand = running(fleet)
    worker.report(saved(fleet, hand, 1))
    settle(fleet)
    worker.release(hand, Cause.PROCESS_DIED, started=True)
    fleet.server.restart()
    fleet.restart()
    fleet.step()
    assert [starts_from(each) for each in worker.take()] == [("step-1", 1, 1)]


def test_an_acceptance_that_a_crash_cut_short_is_gone_on_with(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    _, worker, hand = running(fleet)
    worker.report(saved(fleet, hand, 1))
    porter.finish("verify")
    fleet.step()
    fleet.restart()
    fleet.live(2_000)
    settle(fleet)
    assert (checkpoints(fleet), kept(worker)) == ([(1, 1, "PROMOTED")], [1])


def test_a_checkpoint_that_cannot_be_promoted_is_given_up(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    _, worker, hand = running(fleet)
    worker.report(saved(fleet, hand, 1))
    porter.finish("verify")
    fleet.step()
    porter.fail("unknown_artifact")
    fleet.step()
    assert (checkpoints(fleet), kept(worker)) == ([(1, 1, "COLLECTED")], [1])


def test_a_failure_whose_files_were_damaged_takes_no_accepted_checkpoint_with_it(
    fleet: ScriptedFleet, porter: HeldPorter
) -> None:
    worker = fleet.worker()
    fleet.submit(retry=Retry(failed=1))
    hand = worker.claim()
    worker.report(saved(fleet, hand, 1))
    porter.finish("verify")
    fleet.step()
    bundle = stage(porter, hand.binding, {"a": b"a"}, leave_out="a")
    worker.report(worker.finished(hand).model_copy(update={"outputs": bundle}))
    porter.finish("verify")
    fleet.step()
    porter.finish("discard")
    fleet.step()
    settle(fleet)
    fleet.live(1_000)
    assert starts_from(worker.claim()) == ("step-1", 1, 1)


# --- progress ------------------------------------------------------------------------------------


def told(hand: Hand, cursor: int, ppm: int, message: str = "", metrics: str = "") -> Progressed:
    return Progressed(binding=hand.binding, cursor=cursor, fraction_ppm=ppm, message=message, metrics=metrics)


def test_progress_only_grows_and_is_shown_with_its_metrics(fleet: ScriptedFleet) -> None:
    task, worker, hand = running(fleet)
    worker.report(told(hand, 2, 500_000, "half", '{"loss":0.5}'), told(hand, 1, 100_000, "early"))
    (row,) = fleet.client.query("tasks", task_id=task)
    assert (row["progress"], row["message"], row["metrics"], row["cursor"]) == (0.5, "half", '{"loss":0.5}', 2)
    assert any("50 % done: half" in line for line in fleet.client.explain(task))


def test_the_last_progress_of_a_lost_attempt_is_in_its_story_and_the_next_begins_anew(fleet: ScriptedFleet) -> None:
    task, worker, hand = running(fleet)
    worker.report(told(hand, 7, 600_000, "step 6"))
    worker.release(hand, Cause.PROCESS_DIED, started=True)
    assert "it was 60 % done: step 6" in fleet.records.events("lost")[0]
    again = worker.claim()
    (row,) = fleet.client.query("tasks", task_id=task)
    assert row["progress"] is None
    worker.report(told(again, 1, 100_000))
    worker.report(told(hand, 8, 900_000))
    (row,) = fleet.client.query("tasks", task_id=task)
    assert row["progress"] == 0.1
