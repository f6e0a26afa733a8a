"""Every reason for a refusal, reached; and what a refused result may never do."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.protocol.control_messages import Reason, SayHello, Stop
from tenure.protocol.envelope import Scope
from tenure.protocol.message import MAX_ENTRY_BYTES
from tenure.protocol.principal_messages import IssueSite, Revoke
from tenure.protocol.worker_messages import REPORT, Cause, Claimed, Report
from tests.held_porter import HeldPorter, stage
from tests.scripted_fleet import EXPIRY_MS, RUN, WORLD, ScriptedFleet, drop, granted, leave, refusals, verdicts

OTHER_TASK = "0" * 26


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path) as fleet:
        fleet.store.run("add_site", ("lab", "lab", 0))
        fleet.restart()
        fleet.step()
        yield fleet


def after_retry(fleet: ScriptedFleet) -> tuple[Any, Any, str]:
    """A worker whose lease ran out, the hand that it still has, and the task, which another worker runs now."""
    late = fleet.worker("late")
    task = fleet.submit()
    hand = late.claim()
    late.alive = False
    fleet.live(EXPIRY_MS + 1_000)
    fleet.client.decide(task, approve=True)
    fleet.worker("next")
    fleet.step()
    fleet.workers[-1].claim()
    return late, hand, task


# --- results -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "scope", "reason"),
    [
        ({"task_id": OTHER_TASK}, None, Reason.UNKNOWN_TASK),
        ({"fence": 99}, None, Reason.UNKNOWN_FENCE),
        ({"digest": "0" * 64}, None, Reason.DIGEST_MISMATCH),
        ({"attempt": 2}, None, Reason.WRONG_ATTEMPT),
        ({}, Scope(world="other", run=RUN), Reason.WORLD_MISMATCH),
        ({}, Scope(world=WORLD, run="other"), Reason.RUN_MISMATCH),
        ({"nonce": "f" * 16}, None, Reason.SECOND_EXECUTOR),
    ],
)
def test_a_result_that_differs_in_one_thing_is_rejected_for_it(
    fleet: ScriptedFleet, changes: dict[str, Any], scope: Scope | None, reason: Reason
) -> None:
    """And the right one is accepted afterwards: a lie costs nobody the lease."""
    worker = fleet.worker()
    task = fleet.submit()
    hand = worker.claim()
    worker.finish(hand, "13", scope=scope, **changes)
    worker.finish(hand, "42")

    assert verdicts(worker) == [reason, "accepted"]
    assert fleet.records.quarantined() == [reason]
    assert fleet.records.result(task) == ("w1", 1, "42")


def test_the_result_of_another_worker_is_rejected(fleet: ScriptedFleet) -> None:
    worker, liar = fleet.worker("w1"), fleet.worker("w2")
    task = fleet.submit()
    hand = worker.claim()
    liar.finish(hand, "13")

    assert verdicts(liar) == [Reason.WRONG_WORKER]
    assert fleet.records.state(task) == "RUNNING"


def test_a_result_without_a_grant_is_rejected(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    worker.finish(worker.take()[0])

    assert verdicts(worker) == [Reason.NOT_GRANTED]
    assert fleet.records.leases(task) == ["OFFERED"]


def test_a_result_after_the_lease_ran_out_is_rejected(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    hand = worker.claim()
    worker.alive = False
    fleet.live(EXPIRY_MS + 1_000)
    worker.finish(hand)

    assert verdicts(worker) == [Reason.LEASE_EXPIRED]
    assert fleet.records.state(task) == "LOST"


def test_a_result_under_a_stale_fence_is_rejected_while_the_next_attempt_runs(fleet: ScriptedFleet) -> None:
    late, hand, task = after_retry(fleet)
    late.finish(hand, "13")
    fleet.workers[-1].finish(fleet.workers[-1].hands[0], "42")

    assert verdicts(late) == [Reason.STALE_FENCE]
    assert fleet.records.result(task) == ("next", 2, "42")
    assert fleet.records.quarantined() == [Reason.STALE_FENCE]


def test_a_result_after_the_assignment_was_given_back_is_rejected(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    fleet.submit()
    hand = worker.claim()
    worker.window = 0
    worker.release(hand, Cause.UNSTARTED, started=False)
    worker.finish(hand)

    assert verdicts(worker) == ["accepted", Reason.LEASE_RELEASED]


def test_a_result_of_a_cancelled_task_is_rejected(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    hand = worker.claim()
    fleet.client.cancel(task)
    worker.release(hand, Cause.CANCELLED, started=True)
    worker.finish(hand)

    assert verdicts(worker) == ["accepted", Reason.CANCELLED]
    assert fleet.records.state(task) == "CANCELLED"


def test_the_same_result_again_is_a_duplicate_and_changes_nothing(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    hand = worker.claim()
    worker.finish(hand, "42")
    worker.finish(hand, "42")

    assert verdicts(worker) == ["accepted", "duplicate"]
    assert fleet.records.quarantined() == []
    assert [done.task_id for done in fleet.client.read()] == [task]


def test_another_result_of_the_same_executor_does_not_replace_the_first(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    hand = worker.claim()
    worker.finish(hand, "42")
    worker.finish(hand, "13")

    assert fleet.records.result(task) == ("w1", 1, "42")


def test_a_rejected_result_is_kept_once_however_often_it_comes(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    fleet.submit()
    hand = worker.claim()
    for _ in range(3):
        worker.finish(hand, digest="0" * 64)

    assert verdicts(worker) == [Reason.DIGEST_MISMATCH] * 3
    assert fleet.records.quarantined() == [Reason.DIGEST_MISMATCH]
    assert len(fleet.records.events("rejected")) == 1


# --- claims --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"task_id": OTHER_TASK}, Reason.UNKNOWN_TASK),
        ({"fence": 99}, Reason.UNKNOWN_FENCE),
        ({"digest": "0" * 64}, Reason.DIGEST_MISMATCH),
        ({"attempt": 2}, Reason.WRONG_ATTEMPT),
    ],
)
def test_a_claim_that_differs_in_one_thing_is_refused_for_it(
    fleet: ScriptedFleet, changes: dict[str, Any], reason: Reason
) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    hand = worker.take()[0]
    worker.report(Claimed(binding=hand.binding.model_copy(update=changes), after_beat=0))

    assert refusals(worker) == [reason]
    assert fleet.records.leases(task) == ["OFFERED"]


def test_of_two_workers_that_claim_one_assignment_one_is_granted(fleet: ScriptedFleet) -> None:
    first, second = fleet.worker("w1"), fleet.worker("w2")
    fleet.submit()
    hand = first.claim()
    second.report(Claimed(binding=hand.binding.model_copy(update={"nonce": "f" * 16}), after_beat=0))

    assert (granted(first), granted(second), refusals(second)) == ([1], [], [Reason.WRONG_WORKER])


def test_a_second_executor_of_one_worker_is_refused(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    fleet.submit()
    hand = worker.claim()
    worker.report(Claimed(binding=hand.binding.model_copy(update={"nonce": "f" * 16}), after_beat=0))

    assert (granted(worker), refusals(worker)) == ([1], [Reason.SECOND_EXECUTOR])


def test_a_claim_repeated_with_its_nonce_is_granted_again(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    fleet.submit()
    worker.claim(worker.claim())
    assert granted(worker) == [1, 1]


def test_a_claim_after_the_end_is_refused(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    fleet.submit()
    hand = worker.claim()
    worker.finish(hand)
    worker.claim(hand)
    assert refusals(worker) == [Reason.TASK_OVER]


def test_the_claim_of_a_cancelled_offer_is_refused(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    hand = worker.take()[0]
    fleet.client.cancel(task)
    worker.claim(hand)
    assert refusals(worker) == [Reason.CANCELLED]


def test_the_claim_of_a_stale_fence_is_refused(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    fleet.submit()
    hand = worker.take()[0]
    worker.release(hand, Cause.UNSTARTED, started=False)
    worker.claim(hand)
    assert refusals(worker) == [Reason.STALE_FENCE]


# --- renewals ------------------------------------------------------------------------------------


def test_a_worker_that_lists_the_lease_of_another_is_stopped_and_renews_nothing(fleet: ScriptedFleet) -> None:
    worker, liar = fleet.worker("w1"), fleet.worker("w2")
    task = fleet.submit()
    hand = worker.claim()
    worker.alive = False
    liar.hands.append(hand)
    fleet.live(1_000)
    assert [order for order in liar.read() if isinstance(order, Stop)] == [
        Stop.model_validate({"task_id": task, "fence": 1, "reason": "superseded"}, strict=False)
    ]
    fleet.live(EXPIRY_MS)
    assert fleet.records.leases(task) == ["EXPIRED"]


def test_renewing_an_expired_lease_is_answered_with_a_stop(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    worker.claim()
    worker.alive = False
    fleet.live(EXPIRY_MS + 1_000)
    worker.alive = True
    fleet.live(1_000)

    assert [order.kind for order in worker.read()] == ["stop"]
    assert fleet.records.leases(task) == ["EXPIRED"]


def test_a_lease_that_a_living_worker_does_not_list_is_lost_at_once(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    drop(worker, worker.claim())
    fleet.live(1_000)
    assert fleet.records.directives(task) == [("PENDING", "not_held", "")]


def test_a_heartbeat_written_before_the_claim_need_not_list_it(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    hand = worker.take()[0]
    drop(worker, hand)
    fleet.clock.advance_ms(1_500)
    worker.beat()
    worker.hands.append(hand)
    worker.claim(hand)
    fleet.live(1_000)
    assert fleet.records.leases(task) == ["ACTIVE"]


@pytest.mark.parametrize("restart", [False, True])
def test_nor_need_one_that_was_written_before_a_result_without_a_claim(tmp_path: Path, *, restart: bool) -> None:
    """The work is over at once, and its files are still being read when two older heartbeats are seen."""
    porter = HeldPorter()
    with ScriptedFleet(tmp_path, porter=porter, artifacts="memory:") as fleet:
        porter.finish()
        fleet.step()
        worker = fleet.worker()
        task = fleet.submit(start="claimed")
        hand = worker.take()[0]
        drop(worker, hand)
        fleet.clock.advance_ms(1_500)
        worker.beat()
        worker.hands.append(hand)
        bundle = stage(porter, hand.binding, {"a.txt": b"alpha"})
        hand.state = "finished"
        worker.report(worker.finished(hand).model_copy(update={"outputs": bundle}))
        if restart:
            fleet.restart()
        fleet.step()
        assert fleet.records.leases(task) == ["ACTIVE"]
        drop(worker, hand)
        worker.beat()  # made before the work began, too, and late
        worker.hands.append(hand)
        fleet.clock.advance_ms(1_000)
        fleet.step()
        assert fleet.records.leases(task) == ["ACTIVE"]
        fleet.live(2_000)
        assert fleet.records.leases(task) == ["ACTIVE"]
        drop(worker, hand)
        fleet.live(2_000)
        assert fleet.records.directives(task) == [("PENDING", "not_held", "")]


# --- who speaks ----------------------------------------------------------------------------------


def test_a_worker_that_has_not_said_hello_is_asked_to_and_then_believed(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    hand = worker.claim()
    worker.generation = 2
    worker.finish(hand)
    assert [order for order in worker.read() if isinstance(order, SayHello)] == [SayHello()]
    assert (verdicts(worker), fleet.records.state(task)) == ([], "RUNNING")
    worker.hello()
    worker.finish(hand)
    assert (verdicts(worker), fleet.records.state(task)) == (["accepted"], "SUCCEEDED")


@pytest.mark.parametrize("standing", ["registered", "offline"])
def test_a_result_from_another_sites_inbox_is_kept_as_evidence_only(fleet: ScriptedFleet, standing: str) -> None:
    """Who speaks is decided by the inbox."""
    worker = fleet.worker()
    task = fleet.submit()
    hand = worker.claim()
    if standing == "offline":
        leave(worker, gone=True)
    worker.face = fleet.broker.worker(site="lab", worker_id="w1")
    worker.finish(hand)

    assert (verdicts(worker), fleet.records.state(task)) == ([], "RUNNING")
    assert fleet.records.quarantined() == [Reason.WRONG_SITE]


def test_a_result_of_a_site_that_was_revoked_is_kept_as_evidence_only(fleet: ScriptedFleet) -> None:
    fleet.client.ask(IssueSite(site="north", capabilities=("cpu",), secret_digest="a" * 64))
    worker = fleet.worker("north.w1", site="north")
    task = fleet.submit()
    hand = worker.claim()
    fleet.client.ask(Revoke(holder="site", name="north"))
    worker.finish(hand)

    assert fleet.records.state(task) == "LOST"
    assert fleet.records.quarantined() == [Reason.SITE_REVOKED]


def test_a_result_of_an_older_generation_is_kept_as_evidence_only(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    hand = worker.claim()
    worker.generation = 2
    worker.hello()
    fleet.step()
    worker.generation = 1
    worker.finish(hand)

    assert (verdicts(worker), fleet.records.state(task)) == ([], "RUNNING")
    assert fleet.records.quarantined() == [Reason.OLD_GENERATION]


def test_what_another_site_says_in_a_workers_name_changes_nothing(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    worker.face = fleet.broker.worker(site="lab", worker_id="w1")
    leave(worker, gone=True)

    assert fleet.records.worker("w1") == "ACTIVE"
    assert fleet.records.events("refused") == ["A leaving from w1 on the inbox of lab was refused: wrong_site."]


# --- what cannot be read -------------------------------------------------------------------------


@pytest.mark.parametrize("raw", [b"", b"{", b'{"worker_id": "w1"}', b"\xff" * 50, b"[" * 5_000])
def test_what_cannot_be_read_is_recorded_and_dropped_and_blocks_nobody(fleet: ScriptedFleet, raw: bytes) -> None:
    worker = fleet.worker()
    worker.face.report([raw])
    fleet.client.face.ask(raw)
    task = fleet.submit()
    worker.finish(worker.claim())

    assert fleet.records.state(task) == "SUCCEEDED"
    assert len(fleet.records.events("malformed")) == 2
    fleet.restart()
    fleet.step()
    assert len(fleet.records.events("malformed")) == 2


def test_a_flood_of_rubbish_is_recorded_once(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    for _ in range(5):
        worker.face.report([b"{"] * 100)
        fleet.step(2)
    assert len(fleet.records.events("malformed")) == 1


def test_a_flood_of_different_rubbish_is_recorded_up_to_a_limit(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    for size in range(1, 1_500):
        worker.face.report([b"x" * (MAX_ENTRY_BYTES + size)])
        fleet.step()
    assert len(fleet.records.events("malformed")) == 1_000


def test_an_entry_that_the_store_refuses_is_recorded_and_blocks_nobody(fleet: ScriptedFleet) -> None:
    """A number beyond 64 bits is one: the database cannot hold it."""
    worker = fleet.worker()
    task = fleet.submit()
    hand = worker.claim()
    giant = fleet.broker.worker(site="default", worker_id="w2")
    hello = Report.model_validate_json(_hello("w2", 1)).model_copy(update={"generation": 10**30})
    giant.report([REPORT.dump_json(hello)])
    worker.finish(hand)

    assert fleet.records.state(task) == "SUCCEEDED"
    assert len(fleet.records.events("refused")) + len(fleet.records.events("malformed")) == 1
    fleet.restart()
    fleet.step()


def _hello(worker_id: str, generation: int) -> str:
    return (
        f'{{"worker_id":"{worker_id}","generation":{generation},"window":1,'
        '"events":[{"kind":"hello","slots":1,"capabilities":["cpu"],"ttl_ms":10000}]}'
    )


def test_every_reason_is_reached_by_a_test_here() -> None:
    """A stranger is not refused but asked to say hello, so that reason is never sent; kinds have their own file."""
    source = Path(__file__).read_text()
    assert [reason.name for reason in Reason if f"Reason.{reason.name}" not in source] == [
        "UNREGISTERED_WORKER",
        "OTHER_KIND",
    ]
