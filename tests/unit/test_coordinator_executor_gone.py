"""What a parent says of the end of its executors: what follows at once, later, and never."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.coordinator.executors import quiet_ms
from tenure.errors import BrokerUnreachable
from tenure.protocol.envelope import Requirements, Retry
from tenure.protocol.timing import expiry_ms, grace_ms
from tenure.protocol.worker_messages import NEVER_LAUNCHED, Cause
from tests.held_porter import HeldPorter, stage
from tests.scripted_fleet import EXPIRY_MS, TTL_MS, ScriptedFleet, drop, granted, verdicts
from tests.scripted_launcher import executor, launch, started, told

QUIET_MS = quiet_ms(TTL_MS)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path) as fleet:
        yield fleet


@pytest.mark.parametrize("ttl_ms", [1_000, 2_000, 10_000, 30_000, 3_600_000])
def test_the_wait_is_a_grace_and_less_than_the_term(ttl_ms: int) -> None:
    assert grace_ms(ttl_ms) < quiet_ms(ttl_ms) < expiry_ms(ttl_ms)


# --- of an executor that was bound ---------------------------------------------------------------


def test_a_proved_end_is_believed_when_the_executor_stays_quiet(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit(retry=Retry(lost=1, backoff_ms=0))
    launched, worker, _ = started(fleet, parent)
    worker.alive = False
    parent.report(told(launched))
    fleet.live(QUIET_MS - 500)
    assert (fleet.records.leases(task), verdicts(parent)) == (["ACTIVE"], [])
    fleet.live(2_000)

    assert fleet.records.leases(task) == ["RELEASED", "OFFERED"]
    assert (verdicts(parent), fleet.records.directives(task)) == (
        ["accepted"],
        [("APPROVED", "oom_killed", "policy: the submitter's retry budget")],
    )
    assert "w1 says that w1.x0 is gone (oom_killed: exit status 137)" in fleet.records.events("lost")[0]


@pytest.mark.parametrize("cause", [Cause.UNSTARTED, Cause.REFUSED])
def test_a_parent_that_knows_of_no_executor_proves_nothing_of_one_that_was_bound(
    fleet: ScriptedFleet, cause: Cause
) -> None:
    """It has lost its journal, is handed the entry again and lets it be, while what it had launched runs on."""
    parent = fleet.worker("w1")
    task = fleet.submit()
    launched, worker, _ = started(fleet, parent)
    worker.alive = False
    parent.report(told(launched, cause=cause))
    fleet.live(EXPIRY_MS - 1_000)
    assert fleet.records.leases(task) == ["ACTIVE"]
    fleet.live(3_000)

    assert fleet.records.rows("SELECT state, cause FROM lease WHERE task_id = ?", task) == [
        ("EXPIRED", "executor_died")
    ]


def test_what_was_written_before_the_end_disproves_nothing(fleet: ScriptedFleet) -> None:
    """The executor's last heartbeat may be read after its parent has told of the end."""
    parent = fleet.worker("w1")
    task = fleet.submit()
    launched, worker, _ = started(fleet, parent)
    fleet.live(2_000)
    worker.beat()
    worker.alive = False
    parent.report(told(launched))
    fleet.live(QUIET_MS + 2_000)

    assert (fleet.records.leases(task), fleet.records.events("not_gone")) == (["RELEASED"], [])


def test_an_executor_that_is_heard_is_not_gone(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit()
    launched, worker, hand = started(fleet, parent)
    for _ in range(10):
        parent.report(told(launched))
        fleet.live(2_000)

    assert (fleet.records.leases(task), verdicts(parent)) == (["ACTIVE"], [])
    assert len(fleet.records.events("not_gone")) == 1
    worker.finish(hand)
    parent.report(told(launched))
    assert (fleet.records.state(task), verdicts(parent)) == ("SUCCEEDED", ["duplicate"])


def test_a_result_that_was_on_its_way_counts(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit()
    launched, worker, hand = started(fleet, parent)
    worker.alive = False
    parent.report(told(launched))
    worker.finish(hand)
    fleet.live(EXPIRY_MS)

    assert fleet.records.result(task) == ("w1.x0", 1, "1")


def test_a_result_whose_files_are_being_read_counts(tmp_path: Path) -> None:
    porter = HeldPorter()
    with ScriptedFleet(tmp_path, porter=porter, artifacts="memory:") as fleet:
        porter.finish()
        fleet.step()
        parent = fleet.worker("w1")
        task = fleet.submit()
        launched, worker, hand = started(fleet, parent)
        bundle = stage(porter, hand.binding, {"a.txt": b"alpha"})
        worker.report(worker.finished(hand).model_copy(update={"outputs": bundle}))
        worker.alive = False
        parent.report(told(launched))
        fleet.live(QUIET_MS + 2_000)
        assert fleet.records.leases(task) == ["ACTIVE"]
        porter.finish("verify")
        fleet.step()

        assert fleet.records.state(task) == "SUCCEEDED"


def test_an_unproved_end_lets_the_lease_run_out_with_its_cause(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit()
    launched, worker, _ = started(fleet, parent)
    worker.alive = False
    parent.report(told(launched, proved=False, cause=Cause.NODE_GONE))
    fleet.live(EXPIRY_MS - 1_000)
    assert (fleet.records.leases(task), verdicts(parent)) == (["ACTIVE"], [])
    fleet.live(3_000)

    assert (fleet.records.leases(task), verdicts(parent)[0]) == (["EXPIRED"], "accepted")
    assert fleet.records.directives(task) == [("PENDING", "node_gone", "")]
    assert fleet.records.rows("SELECT cause FROM lease") == [("node_gone",)]
    assert "and w1 says that w1.x0 is gone (node_gone: exit status 137)" in fleet.records.events("lost")[0]


def test_a_proof_may_come_later_and_is_not_taken_back(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit()
    launched, worker, _ = started(fleet, parent)
    worker.alive = False
    parent.report(told(launched, proved=False))
    parent.report(told(launched))
    parent.report(told(launched, proved=False))
    fleet.live(QUIET_MS + 2_000)

    assert fleet.records.leases(task) == ["RELEASED"]


@pytest.mark.parametrize(("proved", "state"), [(True, "RELEASED"), (False, "EXPIRED")])
@pytest.mark.parametrize("cause", sorted(NEVER_LAUNCHED))
def test_what_was_bound_has_died(fleet: ScriptedFleet, cause: Cause, *, proved: bool, state: str) -> None:
    """A substrate has taken an executor back that had claimed in the last moment, and saw it end, or did not."""
    parent = fleet.worker("w1")
    task = fleet.submit()
    launched, worker, _ = started(fleet, parent)
    worker.alive = False
    parent.report(told(launched, cause=cause, proved=proved))
    fleet.live(EXPIRY_MS + 2_000)

    assert fleet.records.rows("SELECT state, cause FROM lease WHERE task_id = ?", task) == [(state, "executor_died")]


@pytest.mark.parametrize("later", [None, Cause.REFUSED])
def test_the_newest_of_two_causes_without_a_proof_counts(fleet: ScriptedFleet, later: Cause | None) -> None:
    """It was not seen for long, and then its node is known to be gone."""
    parent = fleet.worker("w1")
    task = fleet.submit()
    launched, worker, _ = started(fleet, parent)
    worker.alive = False
    parent.report(told(launched, proved=False, cause=Cause.UNSCHEDULABLE))
    fleet.live(2_000)
    parent.report(told(launched, proved=False, cause=Cause.NODE_GONE))
    if later is not None:  # by a parent that has lost its journal
        parent.report(told(launched, cause=later, nonce="d" * 16))
    fleet.live(EXPIRY_MS)

    assert fleet.records.rows("SELECT state, cause FROM lease WHERE task_id = ?", task) == [("EXPIRED", "node_gone")]


def test_a_parent_that_begins_anew_is_answered_under_its_newest_word(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    fleet.submit()
    launched, worker, _ = started(fleet, parent)
    worker.alive = False
    parent.report(told(launched))
    parent.report(told(launched, nonce="d" * 16))
    fleet.live(QUIET_MS + 2_000)

    parent.read()
    assert [order.nonce for order in parent.orders if order.kind == "judged"] == ["d" * 16]


@pytest.mark.parametrize("restart", [False, True])
def test_an_end_that_the_executor_could_not_prove_is_not_proved_by_its_parent(
    fleet: ScriptedFleet, *, restart: bool
) -> None:
    """It has left processes behind, says the executor; that it is gone itself says nothing about them."""
    parent = fleet.worker("w1")
    task = fleet.submit()
    launched, worker, hand = started(fleet, parent)
    worker.release(hand, Cause.CANCELLED, started=True, tree_gone=False)
    worker.alive = False
    if restart:
        fleet.restart()
    parent.report(told(launched))
    fleet.live(EXPIRY_MS - 1_000)
    assert fleet.records.leases(task) == ["ACTIVE"]
    fleet.live(2_000)

    assert fleet.records.leases(task) == ["EXPIRED"]


@pytest.mark.parametrize("restart", [False, True])
def test_an_end_that_may_be_that_of_a_second_executor_proves_nothing(fleet: ScriptedFleet, *, restart: bool) -> None:
    """A node is cut off, its pod is started again elsewhere, is refused and ends: the first one may run on."""
    parent = fleet.worker("w1")
    task = fleet.submit()
    launched, worker, _ = started(fleet, parent)
    second = executor(fleet, parent, launched, "x1")
    fleet.workers[-1].claim(second)
    fleet.workers[-1].alive = False
    if restart:
        fleet.restart()
        fleet.live(1_000)
    worker.alive = False
    parent.report(told(launched))
    fleet.live(EXPIRY_MS - 2_000)
    assert fleet.records.leases(task) == ["ACTIVE"]
    fleet.live(4_000)

    assert (fleet.records.leases(task), verdicts(parent)) == (["EXPIRED"], ["accepted"])


def test_a_restart_forgets_what_was_told_and_is_told_again(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit()
    launched, worker, _ = started(fleet, parent)
    worker.alive = False
    parent.report(told(launched))
    fleet.live(1_000)
    fleet.restart()
    fleet.live(QUIET_MS + 1_000)
    assert (fleet.records.leases(task), verdicts(parent)) == (["ACTIVE"], [])
    parent.report(told(launched))
    fleet.live(QUIET_MS + 2_000)

    assert (fleet.records.leases(task), verdicts(parent)) == (["RELEASED"], ["accepted"])


@pytest.mark.parametrize("paused", ["broker", "coordinator"])
def test_nobody_is_quiet_while_heartbeats_cannot_be_read(fleet: ScriptedFleet, paused: str) -> None:
    """Also in the first look afterwards, which may come before the executor could say anything."""
    parent = fleet.worker("w1")
    task = fleet.submit()
    launched, worker, _ = started(fleet, parent)
    fleet.live(1_000)
    parent.report(told(launched))
    worker.alive = False
    fleet.live(1_000)
    if paused == "broker":
        fleet.server.down = True
        with pytest.raises(BrokerUnreachable):
            fleet.step()
    fleet.clock.advance_ms(60_000)
    fleet.server.down = False
    fleet.step(2)
    assert fleet.records.leases(task) == ["ACTIVE"]
    worker.alive = True
    fleet.live(EXPIRY_MS)

    assert (fleet.records.leases(task), verdicts(parent)) == (["ACTIVE"], [])


def test_the_end_of_an_executor_proves_the_end_of_a_cancelled_task(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit()
    launched, worker, _ = started(fleet, parent)
    worker.alive = False
    fleet.client.cancel(task)
    parent.report(told(launched))
    fleet.live(QUIET_MS + 2_000)

    assert (fleet.records.state(task), verdicts(parent)) == ("CANCELLED", ["accepted"])


# --- of an executor that never came --------------------------------------------------------------


@pytest.mark.parametrize("start", ["granted", "claimed"])
def test_an_offer_is_given_back_and_offered_again_in_a_moment(fleet: ScriptedFleet, start: str) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit(start=start)
    for _ in range(2):
        launched = launch(parent)
        parent.beat()
        fleet.live(1_000)
        drop(parent, launched)
        parent.report(told(launched, cause=Cause.LAUNCH_REFUSED))
        assert parent.take() == []
        fleet.live(1_100)

    assert fleet.records.leases(task) == ["RELEASED", "RELEASED", "OFFERED"]
    assert fleet.records.rows("SELECT DISTINCT attempt, cause FROM lease ORDER BY fence") == [
        (1, "launch_refused"),
        (1, None),
    ]
    assert (verdicts(parent), fleet.records.directives(task)) == (["accepted"] * 2, [])
    assert len(fleet.records.events("not_launched")) == 1


def test_executors_that_end_before_they_claim_are_started_less_and_less_often(fleet: ScriptedFleet) -> None:
    """An image that cannot run costs no attempt, so nothing else would end the haste, or the record of it."""
    parent = fleet.worker("w1")
    task = fleet.submit()
    waits: list[int] = []
    for number in range(8):
        launched = launch(parent)
        drop(parent, launched)
        event = told(launched, cause=Cause.EXECUTOR_DIED).model_copy(update={"detail": f"process {number} has ended"})
        parent.report(event)
        began_ms = fleet.clock.elapsed_ms()
        while fleet.records.leases(task)[-1] != "OFFERED":
            fleet.live(1_000)
        waits.append((fleet.clock.elapsed_ms() - began_ms) // 1_000)

    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert len(fleet.records.events("not_launched")) == 1
    assert set(fleet.records.rows("SELECT attempt FROM lease")) == {(1,)}


def test_an_executor_that_comes_after_all_is_refused(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    fleet.submit()
    launched = launch(parent)
    parent.report(told(launched, cause=Cause.UNSCHEDULABLE))
    late = executor(fleet, parent, launched)
    fleet.workers[-1].claim(late)

    assert granted(fleet.workers[-1]) == []


def test_telling_it_again_changes_nothing(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit()
    launched = launch(parent)
    parent.report(told(launched), told(launched))
    fleet.live(1_100)
    parent.report(told(launched))

    assert verdicts(parent) == ["accepted", "duplicate", "duplicate"]
    assert fleet.records.leases(task) == ["RELEASED", "OFFERED"]


# --- of somebody else's executor -----------------------------------------------------------------


def test_only_its_parent_is_believed_about_a_lease(fleet: ScriptedFleet) -> None:
    parent, liar = fleet.worker("w1"), fleet.worker("w2")
    task = fleet.submit()
    launched, worker, _ = started(fleet, parent)
    worker.alive = False
    liar.report(told(launched))
    worker.report(told(launched))
    fleet.live(QUIET_MS + 2_000)

    assert (verdicts(liar), verdicts(worker)) == (["wrong_worker"], ["wrong_worker"])
    assert fleet.records.leases(task) == ["ACTIVE"]


def test_only_who_lists_an_offer_is_believed_about_it(fleet: ScriptedFleet) -> None:
    parent, liar = fleet.worker("w1"), fleet.worker("w2")
    task = fleet.submit()
    launched = launch(parent)
    fleet.live(1_000)
    liar.report(told(launched))

    assert (verdicts(liar), fleet.records.leases(task)) == (["wrong_worker"], ["OFFERED"])


def test_what_is_for_another_worker_is_not_given_back(fleet: ScriptedFleet) -> None:
    parent, liar = fleet.worker("w1", labels=(("room", "lab"),)), fleet.worker("w2")
    fleet.submit(requirements=Requirements(labels=(("room", "lab"),)))
    launched = launch(parent)
    liar.report(told(launched))
    parent.report(told(launched))
    liar.report(told(launched))

    assert (verdicts(liar), verdicts(parent)) == (["wrong_worker"] * 2, ["accepted"])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"fence": 7}, "unknown_fence"),
        ({"task_id": "0" * 26}, "unknown_task"),
        ({"digest": "0" * 64}, "digest_mismatch"),
        ({"attempt": 3}, "wrong_attempt"),
    ],
)
def test_a_false_binding_is_refused(fleet: ScriptedFleet, changes: dict[str, Any], reason: str) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit()
    launched, worker, _ = started(fleet, parent)
    worker.alive = False
    parent.report(told(launched, **changes))
    fleet.live(QUIET_MS + 2_000)

    assert (verdicts(parent), fleet.records.leases(task)) == ([reason], ["ACTIVE"])


def test_a_worker_of_another_site_is_not_heard_as_the_parent(fleet: ScriptedFleet) -> None:
    fleet.store.run("add_site", ("lab", "lab", 0))
    fleet.restart()
    parent = fleet.worker("w1")
    task = fleet.submit()
    launched, worker, _ = started(fleet, parent)
    worker.alive = False
    liar = fleet.worker("lab.w3", site="lab")
    liar.report(told(launched))
    liar.worker_id = "w1"
    liar.report(told(launched))
    fleet.live(QUIET_MS + 2_000)

    assert (verdicts(liar), fleet.records.leases(task)) == (["wrong_worker"], ["ACTIVE"])
    assert any("wrong_site" in text for text in fleet.records.events("refused"))


def test_after_a_good_end_its_parent_hears_that_all_is_settled(fleet: ScriptedFleet) -> None:
    """What becomes of most executors: the substrate says that they are over when their result is long accepted."""
    parent = fleet.worker("w1")
    fleet.submit()
    launched, worker, hand = started(fleet, parent)
    worker.finish(hand)
    parent.report(told(launched, cause=Cause.EXECUTOR_DIED))

    assert verdicts(parent) == ["duplicate"]
