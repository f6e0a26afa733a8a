"""Results with files: read before they are accepted, in the store afterwards, and one verdict whatever happens."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.coordinator import promotion
from tenure.errors import StreamMissing
from tenure.protocol.artifact import Bundle
from tenure.protocol.client_messages import CollectArtifacts
from tenure.protocol.envelope import Retry, Scope
from tenure.protocol.worker_messages import Failure, FailureKind, Finished, Outcome
from tests.held_porter import HeldPorter, digests, objects, places, stage
from tests.scripted_fleet import EXPIRY_MS, RUN, WORLD, Hand, ScriptedFleet, ScriptedWorker, verdicts

FILES = {"a.txt": b"alpha", "b/c.bin": b"\x00" * 1_000}
OTHER = {"a.txt": b"omega"}


@pytest.fixture
def porter() -> HeldPorter:
    return HeldPorter()


@pytest.fixture
def fleet(tmp_path: Path, porter: HeldPorter) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path, porter=porter, artifacts="memory:") as fleet:
        porter.finish()
        fleet.step()
        yield fleet


def report(hand: Hand, outputs: Bundle | None, value: str = "1") -> Finished:
    outcome = Outcome(value=value)
    return Finished(
        binding=hand.binding, scope=Scope(world=WORLD, run=RUN), outcome=outcome, duration_ms=5, outputs=outputs
    )


def ended(fleet: ScriptedFleet, worker: ScriptedWorker, **fields: object) -> tuple[str, Hand, Finished]:
    """A task that has ended, its files staged, its result told, its files not read yet."""
    task = fleet.submit(**fields)
    hand = worker.claim()
    hand.state = "finished"
    assert fleet.porter is not None
    finished = report(hand, stage(fleet.porter, hand.binding, FILES))
    worker.report(finished)
    return task, hand, finished


def artifacts(fleet: ScriptedFleet) -> list[tuple[str, int, str]]:
    return [(row[0], row[1], row[2]) for row in fleet.records.rows("SELECT kind, fence, state FROM artifact")]


def settle(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    """Do all jobs, and those that follow from them."""
    while porter.jobs:
        porter.finish()
        fleet.step()


# --- the way of a good result --------------------------------------------------------------------


def test_files_are_read_then_the_result_is_accepted_then_they_are_in_the_store(
    fleet: ScriptedFleet, porter: HeldPorter
) -> None:
    worker = fleet.worker()
    task, _, finished = ended(fleet, worker)
    assert (fleet.records.state(task), verdicts(worker), porter.waiting()) == ("RUNNING", [], ["verify"])
    assert (fleet.records.result(task), artifacts(fleet), objects(porter)) == (None, [], set())

    porter.finish("verify")
    fleet.step()
    assert (fleet.records.state(task), verdicts(worker)) == ("SUCCEEDED", ["accepted"])
    assert (artifacts(fleet), objects(porter)) == ([("outputs", 1, "ACCEPTED")], set())
    assert [done.outputs for done in fleet.client.read()] == [finished.outputs]

    porter.finish("promote")
    fleet.step()
    assert artifacts(fleet) == [("outputs", 1, "PROMOTED")]
    assert objects(porter) > digests(FILES)
    assert places(porter) == set()


def test_a_result_that_is_told_again_while_its_files_are_read_starts_nothing_twice(
    fleet: ScriptedFleet, porter: HeldPorter
) -> None:
    worker = fleet.worker()
    _, hand, finished = ended(fleet, worker)
    worker.report(finished, finished)
    worker.report(finished, report(hand, stage(porter, hand.binding, OTHER), "2"))
    assert porter.waiting() == ["verify"]
    settle(fleet, porter)
    worker.report(finished)
    assert verdicts(worker) == ["accepted", "duplicate"]
    assert porter.begun.count("verify") == porter.begun.count("promote") == 1
    assert objects(porter).isdisjoint(digests(OTHER))


def test_who_asks_later_is_told_of_the_files_too(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    worker = fleet.worker()
    task, _, finished = ended(fleet, worker)
    settle(fleet, porter)
    (row,) = fleet.client.query("tasks", task_id=task)
    assert finished.outputs is not None
    assert row["outputs"] == finished.outputs.model_dump(mode="json")
    assert any("It left 2 files" in line for line in fleet.client.explain(task))


def test_notes_about_a_good_result_are_kept_and_told(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    hand = worker.claim()
    worker.report(report(hand, None).model_copy(update={"notes": ("A process was left behind and ended.",)}))
    (row,) = fleet.client.query("tasks", task_id=task)
    assert row["notes"] == ["A process was left behind and ended."]
    assert "A process was left behind and ended." in fleet.client.explain(task)


def test_a_failure_brings_no_files_in(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    hand = worker.claim()
    outcome = Outcome(failure=Failure(kind=FailureKind.EXCEPTION, message="no"))
    worker.report(report(hand, stage(porter, hand.binding, FILES)).model_copy(update={"outcome": outcome}))
    settle(fleet, porter)
    assert (fleet.records.state(task), artifacts(fleet), objects(porter)) == ("FAILED", [], set())
    assert places(porter) == set()


# --- files that are not what was told ------------------------------------------------------------


@pytest.mark.parametrize("retry", [0, 1])
def test_a_bundle_that_was_never_staged_is_a_failure(fleet: ScriptedFleet, porter: HeldPorter, retry: int) -> None:
    worker = fleet.worker()
    task = fleet.submit(retry=Retry(failed=retry))
    hand = worker.claim()
    worker.report(report(hand, stage(porter, hand.binding, FILES, leave_out="a.txt")))
    settle(fleet, porter)
    assert verdicts(worker) == ["accepted"]
    assert (artifacts(fleet), objects(porter), places(porter)) == ([], set(), set())
    assert fleet.records.state(task) == ("FAILED" if not retry else "OFFERED")
    table = "failed_attempt" if retry else "result"
    ((failure,),) = fleet.records.rows(f"SELECT failure FROM {table}")  # noqa: S608 - one of the two
    assert Failure.model_validate_json(failure).kind is FailureKind.OUTPUTS_DAMAGED


def test_other_bytes_than_told_are_a_failure(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    hand = worker.claim()
    bundle = stage(porter, hand.binding, FILES)
    worker.report(report(hand, bundle.model_copy(update={"size": 7})))
    settle(fleet, porter)
    assert (fleet.records.state(task), objects(porter)) == ("FAILED", set())


def test_a_store_that_is_away_for_a_while_is_tried_again(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    worker = fleet.worker()
    task, _, finished = ended(fleet, worker)
    porter.fail("artifact_store_unreachable")
    fleet.step()
    worker.report(finished)
    assert (fleet.records.state(task), porter.waiting()) == ("RUNNING", [])
    fleet.live(1_000)
    worker.report(finished)
    assert porter.waiting() == ["verify"]
    settle(fleet, porter)
    assert (fleet.records.state(task), verdicts(worker)) == ("SUCCEEDED", ["accepted"])


def test_a_store_that_stays_away_is_a_failure_in_the_end(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    worker = fleet.worker()
    task, hand, finished = ended(fleet, worker)
    hand.state = "finished"
    began_ms = fleet.clock.elapsed_ms()
    while fleet.records.state(task) == "RUNNING":
        if porter.waiting():
            porter.fail("artifact_store_unreachable")
        fleet.live(2_000)
        worker.report(finished)
    assert 120_000 <= fleet.clock.elapsed_ms() - began_ms <= 240_000
    assert fleet.records.state(task) == "FAILED"
    (done,) = fleet.client.read()
    assert (done.failure and done.failure.kind, done.outputs) == (FailureKind.OUTPUTS_NOT_STORED, None)


def test_files_without_a_store_are_a_failure(tmp_path: Path) -> None:
    with ScriptedFleet(tmp_path) as fleet:
        worker = fleet.worker()
        task = fleet.submit()
        hand = worker.claim()
        worker.report(report(hand, stage(HeldPorter(), hand.binding, FILES)))
        assert (fleet.records.state(task), verdicts(worker)) == ("FAILED", ["accepted"])
        (done,) = fleet.client.read()
        assert done.failure is not None
        assert done.failure.kind is FailureKind.OUTPUTS_NOT_STORED


def test_a_collection_and_a_check_exclude_each_other(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    worker = fleet.worker()
    ended(fleet, worker)
    fleet.client.ask(CollectArtifacts(min_age_ms=0))
    fleet.step(4)
    assert porter.waiting() == ["verify"]
    porter.finish("verify")
    fleet.step()
    assert sorted(porter.waiting()) == ["promote", "tidy"]
    fleet.submit()
    hand = fleet.worker("w2").claim()
    fleet.workers[1].report(report(hand, stage(porter, hand.binding, OTHER)))
    assert sorted(porter.waiting()) == ["promote", "tidy"]
    porter.finish("tidy")
    fleet.step()
    assert sorted(porter.waiting()) == ["promote", "verify"]


# --- what happens while the files are read -------------------------------------------------------


def test_a_lease_that_expires_meanwhile_lets_nothing_in(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    worker = fleet.worker()
    task, _, finished = ended(fleet, worker)
    worker.alive = False
    fleet.live(EXPIRY_MS + 1_000)
    porter.finish("verify")
    fleet.step()
    worker.report(finished)
    settle(fleet, porter)
    assert (fleet.records.state(task), fleet.records.quarantined()) == ("LOST", ["lease_expired"])
    assert set(verdicts(worker)) == {"lease_expired"}
    assert (artifacts(fleet), objects(porter)) == ([], set())
    assert places(porter) == {(1, finished.binding.nonce)}


def test_a_newer_fence_meanwhile_lets_nothing_in(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    worker = fleet.worker()
    task, _, _ = ended(fleet, worker, retry=Retry(lost=1))
    worker.alive = False
    fleet.live(EXPIRY_MS + 1_000)
    second = fleet.worker("w2")
    fleet.step()
    hand = second.claim()
    porter.finish("verify")
    fleet.step()
    settle(fleet, porter)
    assert (fleet.records.quarantined(), objects(porter)) == (["stale_fence"], set())
    second.finish(hand, "2")
    assert fleet.records.result(task) == ("w2", 2, "2")


def test_a_cancel_meanwhile_comes_too_late(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    worker = fleet.worker()
    task, _, _ = ended(fleet, worker)
    fleet.client.cancel(task)
    settle(fleet, porter)
    assert (fleet.records.state(task), verdicts(worker)) == ("SUCCEEDED", ["accepted"])


def test_a_flush_meanwhile_changes_nothing(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    worker = fleet.worker()
    task, _, _ = ended(fleet, worker)
    fleet.server.flush()
    with pytest.raises(StreamMissing):
        fleet.step()
    porter.finish()
    fleet.live(2_000)
    assert (fleet.records.state(task), verdicts(worker)) == ("SUCCEEDED", ["accepted"])


def test_a_restart_before_the_files_are_read_reads_them_again(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    worker = fleet.worker()
    task, _, finished = ended(fleet, worker)
    fleet.restart()
    fleet.step()
    porter.finish()
    fleet.step()
    worker.report(finished)
    settle(fleet, porter)
    assert (fleet.records.state(task), verdicts(worker)) == ("SUCCEEDED", ["accepted"])
    assert artifacts(fleet) == [("outputs", 1, "PROMOTED")]


def test_a_restart_between_acceptance_and_promotion_promotes_at_the_next_start(
    fleet: ScriptedFleet, porter: HeldPorter
) -> None:
    worker = fleet.worker()
    ended(fleet, worker)
    porter.finish("verify")
    fleet.step()
    fleet.restart()
    fleet.live(2_000)
    assert "promote" in porter.waiting()
    settle(fleet, porter)
    assert artifacts(fleet) == [("outputs", 1, "PROMOTED")]
    assert objects(porter) > digests(FILES)


def test_a_restart_after_the_promotion_promotes_once_more_and_harms_nothing(
    fleet: ScriptedFleet, porter: HeldPorter
) -> None:
    worker = fleet.worker()
    ended(fleet, worker)
    porter.finish("verify")
    fleet.step()
    porter.finish("promote")
    fleet.restart()
    fleet.live(2_000)
    settle(fleet, porter)
    assert artifacts(fleet) == [("outputs", 1, "PROMOTED")]


def test_a_promotion_that_fails_is_tried_until_it_succeeds(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    worker = fleet.worker()
    task, _, _ = ended(fleet, worker)
    porter.finish("verify")
    fleet.step()
    for _ in range(3):
        porter.fail("artifact_store_full")
        fleet.live(10_000)
    settle(fleet, porter)
    assert artifacts(fleet) == [("outputs", 1, "PROMOTED")]
    assert len(fleet.records.events("not_promoted")) == 1
    assert fleet.records.state(task) == "SUCCEEDED"


def test_promotions_that_fail_do_not_stand_before_others(
    fleet: ScriptedFleet, porter: HeldPorter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promotion, "_PORTION", 2)
    for number in range(3):
        ended(fleet, fleet.worker(f"w{number}"))
        porter.finish("verify")
        fleet.step()
    assert porter.fail("artifact_store_unreachable") == 3
    fleet.live(5_000)
    assert porter.waiting() == ["promote"] * 3


def test_an_end_that_the_database_refuses_is_recorded_and_holds_up_nothing(
    fleet: ScriptedFleet, porter: HeldPorter
) -> None:
    worker = fleet.worker()
    task, _, _ = ended(fleet, worker)
    fleet.store._connection.execute(
        "CREATE TRIGGER no_artifacts BEFORE INSERT ON artifact BEGIN SELECT RAISE(ABORT, 'not today'); END"
    )
    porter.finish("verify")
    fleet.step()
    assert fleet.records.state(task) == "RUNNING"
    assert "not today" in fleet.records.events("refused")[0]
    assert fleet.submit()
