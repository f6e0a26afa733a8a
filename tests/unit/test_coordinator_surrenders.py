"""Executors that were told to end from outside: whose word is the cause, and how long their parent's is waited for."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.coordinator.surrenders import patience_ms
from tenure.errors import BrokerUnreachable
from tenure.protocol.envelope import Retry
from tenure.protocol.worker_messages import Cause, Leaving
from tests.scripted_fleet import TTL_MS, ScriptedFleet, verdicts
from tests.scripted_launcher import executor, started, told

PATIENCE_MS = patience_ms(TTL_MS, 1)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path) as fleet:
        yield fleet


def causes(fleet: ScriptedFleet, task: str) -> list[tuple[str, str]]:
    return fleet.records.rows("SELECT state, cause FROM lease WHERE task_id = ? ORDER BY fence", task)


@pytest.mark.parametrize(
    ("ttl_ms", "in_hand", "patience"),
    [(1_000, 1, 500), (30_000, 1, 10_200), (30_000, 50, 15_000), (120_000, 50, 20_000), (3_600_000, 1, 10_200)],
)
def test_the_wait_is_short_against_the_term(ttl_ms: int, in_hand: int, patience: int) -> None:
    assert patience_ms(ttl_ms, in_hand) == patience


@pytest.mark.parametrize("cause", [Cause.EVICTED, Cause.PREEMPTED, Cause.DEADLINE_EXCEEDED, Cause.EXECUTOR_REMOVED])
@pytest.mark.parametrize("proved", [True, False])
def test_what_the_parent_tells_after_it_is_the_cause(fleet: ScriptedFleet, cause: Cause, *, proved: bool) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit(retry=Retry(lost=1, backoff_ms=0))
    launched, worker, hand = started(fleet, parent)
    worker.release(hand, Cause.DRAINED, started=True)
    assert (verdicts(worker), fleet.records.leases(task)) == (["accepted"], ["ACTIVE"])
    worker.report(Leaving(gone=True))
    worker.alive = False
    parent.report(told(launched, cause=cause, proved=proved))
    fleet.live(1_000)

    assert causes(fleet, task)[0] == ("RELEASED", cause)
    assert fleet.records.directives(task) == [("APPROVED", cause, "policy: the submitter's retry budget")]
    assert verdicts(parent) == ["accepted"]
    (lost,) = fleet.records.events("lost")
    assert "w1.x0 gave it up after it had started: drained, and w1 says that w1.x0 is gone" in lost


def test_what_the_parent_has_told_before_is_the_cause(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit()
    launched, worker, hand = started(fleet, parent)
    parent.report(told(launched, cause=Cause.PREEMPTED))
    worker.release(hand, Cause.DRAINED, started=True)

    assert causes(fleet, task) == [("RELEASED", "preempted")]
    assert (verdicts(worker), verdicts(parent)) == (["accepted"], ["accepted"])


def test_a_substrate_that_knows_nothing_leaves_the_executor_its_word(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit()
    launched, worker, hand = started(fleet, parent)
    worker.release(hand, Cause.DRAINED, started=True)
    worker.alive = False
    parent.report(told(launched, cause=Cause.EXECUTOR_DIED))
    fleet.live(1_000)

    assert (causes(fleet, task), verdicts(parent)) == ([("RELEASED", "drained")], ["accepted"])


def test_a_parent_that_tells_nothing_is_not_waited_for_long(fleet: ScriptedFleet) -> None:
    """The executor is heard meanwhile, and says that it holds nothing: that is no news."""
    parent = fleet.worker("w1")
    task = fleet.submit()
    launched, worker, hand = started(fleet, parent)
    worker.release(hand, Cause.DRAINED, started=True)
    fleet.live(PATIENCE_MS - 1_500)
    worker.release(hand, Cause.DRAINED, started=True)
    assert fleet.records.leases(task) == ["ACTIVE"]
    fleet.live(3_000)
    assert causes(fleet, task) == [("RELEASED", "drained")]
    parent.report(told(launched, cause=Cause.EVICTED))
    assert (causes(fleet, task), verdicts(parent)) == ([("RELEASED", "drained")], ["duplicate"])


def test_nobody_is_charged_for_the_wait(fleet: ScriptedFleet) -> None:
    """A campaign pays for as long as its attempts have run, and what was given up does not."""
    fleet.worker("w1")
    task = fleet.submit()
    _, worker, hand = started(fleet, fleet.workers[0])
    fleet.live(1_000)
    worker.release(hand, Cause.DRAINED, started=True)
    fleet.live(PATIENCE_MS + 2_000)
    ((took_ms,),) = fleet.records.rows("SELECT ended_at_ms - bound_at_ms FROM lease WHERE task_id = ?", task)
    assert took_ms == 1_000


def test_it_is_told_that_the_parent_is_asked(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit()
    _, worker, hand = started(fleet, parent)
    worker.release(hand, Cause.DRAINED, started=True)
    last = fleet.client.explain(task)[-1]
    assert last == "It is RUNNING, but w1.x0 was told to end and has given it up: w1 is asked why."


def test_a_result_after_it_is_evidence_and_no_result(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit(retry=Retry(lost=1))
    _, worker, hand = started(fleet, parent)
    worker.release(hand, Cause.DRAINED, started=True)
    worker.finish(hand)
    assert verdicts(worker) == ["accepted", "lease_released"]
    assert (causes(fleet, task)[0], fleet.records.result(task)) == (("RELEASED", "drained"), None)


def test_nothing_that_was_begun_is_taken_back_as_unstarted(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit(retry=Retry(lost=1))
    _, worker, hand = started(fleet, parent)
    worker.release(hand, Cause.DRAINED, started=True)
    worker.release(hand, Cause.UNSTARTED, started=False)
    assert verdicts(worker) == ["accepted", "duplicate"]
    assert (causes(fleet, task)[0], len(fleet.records.directives(task))) == (("RELEASED", "drained"), 1)


def test_a_parent_that_is_not_there_is_not_waited_for(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit()
    _, worker, hand = started(fleet, parent)
    parent.alive = False
    fleet.live(2 * TTL_MS)
    assert fleet.records.leases(task) == ["ACTIVE"]
    worker.release(hand, Cause.DRAINED, started=True)
    assert causes(fleet, task) == [("RELEASED", "drained")]


@pytest.mark.parametrize("cause", [Cause.PROCESS_DIED, Cause.SELF_FENCED])
def test_an_end_that_the_executor_has_seen_itself_waits_for_nobody(fleet: ScriptedFleet, cause: Cause) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit()
    _, worker, hand = started(fleet, parent)
    worker.release(hand, cause, started=True)
    assert causes(fleet, task) == [("RELEASED", cause)]


def test_a_worker_of_its_own_waits_for_nobody(fleet: ScriptedFleet) -> None:
    worker = fleet.worker("w1")
    task = fleet.submit()
    (hand,) = worker.take(1)
    worker.claim(hand)
    worker.release(hand, Cause.DRAINED, started=True)
    assert causes(fleet, task) == [("RELEASED", "drained")]


def test_what_is_cancelled_meanwhile_waits_for_nobody(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit()
    _, worker, hand = started(fleet, parent)
    worker.release(hand, Cause.DRAINED, started=True)
    fleet.client.cancel(task)
    fleet.live(1_000)
    assert (fleet.records.state(task), causes(fleet, task)) == ("CANCELLED", [("RELEASED", "drained")])


@pytest.mark.parametrize("proved", [True, False])
@pytest.mark.parametrize("seconded", [True, False])
def test_a_restart_does_not_forget_it(fleet: ScriptedFleet, *, proved: bool, seconded: bool) -> None:
    """The executor has its verdict, and says nothing more; nor does its end need a proof from anyone else."""
    parent = fleet.worker("w1")
    task = fleet.submit()
    launched, worker, hand = started(fleet, parent)
    if seconded:
        second = executor(fleet, parent, launched, "x1")
        fleet.workers[-1].claim(second)
    fleet.live(1_000)
    worker.release(hand, Cause.DRAINED, started=True)
    worker.alive = False
    fleet.restart()
    assert fleet.records.leases(task) == ["ACTIVE"]
    fleet.live(2_000)
    parent.report(told(launched, cause=Cause.EVICTED, proved=proved))
    fleet.live(1_000)
    assert causes(fleet, task) == [("RELEASED", "evicted")]
    ((took_ms,),) = fleet.records.rows("SELECT ended_at_ms - bound_at_ms FROM lease WHERE task_id = ?", task)
    assert took_ms < 2_000


def test_after_a_restart_a_parent_that_tells_nothing_is_not_waited_for_long(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit()
    _, worker, hand = started(fleet, parent)
    worker.release(hand, Cause.DRAINED, started=True)
    fleet.restart()
    fleet.live(PATIENCE_MS + 2_000)
    assert (causes(fleet, task), parent.alive) == ([("RELEASED", "drained")], True)


@pytest.mark.parametrize("paused", ["broker", "coordinator"])
def test_nobody_is_late_while_the_broker_cannot_be_read(fleet: ScriptedFleet, paused: str) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit()
    launched, worker, hand = started(fleet, parent)
    worker.release(hand, Cause.DRAINED, started=True)
    fleet.live(1_000)
    if paused == "broker":
        fleet.server.down = True
        with pytest.raises(BrokerUnreachable):
            fleet.step()
    fleet.clock.advance_ms(PATIENCE_MS * 3)
    fleet.server.down = False
    fleet.step(2)
    assert fleet.records.leases(task) == ["ACTIVE"]
    parent.report(told(launched, cause=Cause.EVICTED))
    fleet.live(1_000)
    assert causes(fleet, task) == [("RELEASED", "evicted")]
