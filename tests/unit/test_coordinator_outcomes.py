"""What follows a lost or failed attempt, and how a task is cancelled: nothing runs again without a decision."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.protocol.client_messages import Decide
from tenure.protocol.control_messages import Stop
from tenure.protocol.envelope import Retry
from tenure.protocol.worker_messages import NEVER_RETRIED, Cause, FailureKind
from tests.scripted_fleet import EXPIRY_MS, ScriptedFleet, granted, verdicts

POLICY = "policy: the submitter's retry budget"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path) as fleet:
        yield fleet


def lose(fleet: ScriptedFleet) -> None:
    """Let the newest worker's attempt be lost."""
    worker = fleet.workers[-1]
    worker.release(worker.claim(), Cause.PROCESS_DIED, started=True)


def lost(fleet: ScriptedFleet, **fields: object) -> str:
    """A task whose first attempt was lost."""
    fleet.worker()
    task = fleet.submit(**fields)
    lose(fleet)
    return task


# --- lost ----------------------------------------------------------------------------------------


def test_a_lost_attempt_is_held_for_a_person(fleet: ScriptedFleet) -> None:
    task = lost(fleet)
    fleet.live(60_000)
    assert fleet.records.state(task) == "LOST"
    assert fleet.records.directives(task) == [("PENDING", "process_died", "")]
    assert [str(done.state) for done in fleet.client.read()] == ["LOST"]


def test_an_approved_directive_lets_the_next_attempt_run_under_a_higher_fence(fleet: ScriptedFleet) -> None:
    task = lost(fleet)
    fleet.client.decide(task, approve=True, note="power cut")
    worker = fleet.workers[0]
    worker.finish(worker.claim(), "42")
    assert fleet.records.directives(task) == [("APPROVED", "process_died", "ada")]
    assert fleet.records.rows("SELECT attempt, fence, state FROM lease ORDER BY fence") == [
        (1, 1, "RELEASED"),
        (2, 2, "COMPLETED"),
    ]
    assert fleet.records.result(task) == ("w1", 2, "42")


def test_a_denied_directive_abandons_the_task_for_good(fleet: ScriptedFleet) -> None:
    task = lost(fleet)
    fleet.client.decide(task, approve=False)
    fleet.live(60_000)
    assert fleet.records.state(task) == "ABANDONED"
    assert fleet.records.directives(task) == [("DENIED", "process_died", "ada")]
    assert [str(done.state) for done in fleet.client.read()] == ["LOST", "ABANDONED"]


@pytest.mark.parametrize("first", [True, False], ids=["approved", "denied"])
@pytest.mark.parametrize("second", [True, False], ids=["approve", "deny"])
def test_a_decision_is_never_changed(fleet: ScriptedFleet, *, first: bool, second: bool) -> None:
    task = lost(fleet)
    rows = fleet.client.decide(task, approve=first).rows
    directive, before = rows[0]["directive_id"], fleet.records.directives(task)
    for name in (directive, task):
        reply = fleet.client.decide(name, approve=second)
        if name == directive and first == second:
            assert reply.rows == rows
            continue
        assert reply.refusal is not None
        assert reply.refusal.code == "directive_decided"
    assert fleet.records.directives(task) == before


def test_a_repeated_decision_does_not_decide_about_the_next_attempt_too(fleet: ScriptedFleet) -> None:
    """Its answer was late, so the client asked again; meanwhile the attempt that it allowed was lost."""
    task = lost(fleet)
    ask = Decide(directives=(task,), approve=True)
    fleet.client.send(ask, request_id="same")
    fleet.step()
    lose(fleet)
    fleet.client.read()
    first = fleet.client.replies.pop("same")
    fleet.client.send(ask, request_id="same")
    fleet.step()
    fleet.client.read()

    assert [state for state, _, _ in fleet.records.directives(task)] == ["APPROVED", "PENDING"]
    assert fleet.client.replies["same"] == first


def lost_again_after_an_approval(fleet: ScriptedFleet, ask: Decide) -> None:
    """Two attempts of its task are lost; the coordinator that took the approval between them is not there any more."""
    fleet.client.send(ask, request_id="same")
    fleet.step()
    fleet.restart()
    fleet.step()
    lose(fleet)
    fleet.client.read()
    fleet.client.replies.clear()


def test_a_decision_repeated_to_the_next_coordinator_is_not_about_the_next_attempt(fleet: ScriptedFleet) -> None:
    """The answer was lost with the one that took it; a task's id alone does not say which attempt was meant."""
    task = lost(fleet)
    ask = Decide(directives=(task,), approve=True)
    lost_again_after_an_approval(fleet, ask)
    fleet.client.send(ask, request_id="same")
    fleet.step()
    fleet.client.read()

    assert [state for state, _, _ in fleet.records.directives(task)] == ["APPROVED", "PENDING"]
    refusal = fleet.client.replies["same"].refusal
    assert refusal is not None
    assert refusal.code == "directive_decided"
    assert pending(fleet) in refusal.remedy
    assert fleet.client.decide(pending(fleet), approve=True).refusal is None


def pending(fleet: ScriptedFleet) -> str:
    ((directive,),) = fleet.records.rows("SELECT directive_id FROM directive WHERE state = 'PENDING'")
    return str(directive)


@pytest.mark.parametrize(("person", "note", "approve"), [("bob", "", True), ("ada", "new", True), ("ada", "", False)])
def test_a_decision_that_cannot_be_a_repeated_one_is_taken_by_the_next_coordinator(
    fleet: ScriptedFleet, person: str, note: str, *, approve: bool
) -> None:
    task = lost(fleet)
    lost_again_after_an_approval(fleet, Decide(directives=(task,), approve=True))
    other = fleet.client.ask(Decide(directives=(task,), approve=approve, note=note), principal=person)
    assert other.refusal is None
    assert [by for _, _, by in fleet.records.directives(task)] == ["ada", person]


@pytest.mark.parametrize("approve", [True, False])
def test_a_repeated_decision_that_names_its_directive_is_answered_as_before(
    fleet: ScriptedFleet, *, approve: bool
) -> None:
    task = lost(fleet)
    ask = Decide(directives=(pending(fleet),), approve=approve)
    first = fleet.client.ask(ask)
    fleet.restart()
    again = fleet.client.ask(ask)
    other = fleet.client.ask(ask, principal="bob")

    assert first.rows == again.rows
    assert other.refusal is not None
    assert len(fleet.records.events("directive_approved" if approve else "directive_denied")) == 1
    assert [by for _, _, by in fleet.records.directives(task)] == ["ada"]


def test_of_several_decisions_the_possible_ones_are_made(fleet: ScriptedFleet) -> None:
    task = lost(fleet)
    rows = fleet.client.decide("nothing", task, approve=True).rows
    assert [row["state"] for row in rows] == ["REFUSED", "APPROVED"]


def test_a_directive_that_does_not_exist_is_said(fleet: ScriptedFleet) -> None:
    refusal = fleet.client.ask(Decide(directives=("nothing",), approve=True)).refusal
    assert refusal is not None
    assert refusal.code == "unknown_directive"


def test_a_budget_for_lost_attempts_is_used_up_then_the_task_is_held(fleet: ScriptedFleet) -> None:
    task = lost(fleet, retry=Retry(lost=2))
    lose(fleet)
    lose(fleet)
    assert fleet.records.directives(task) == [
        ("APPROVED", "process_died", POLICY),
        ("APPROVED", "process_died", POLICY),
        ("PENDING", "process_died", ""),
    ]


def test_an_expired_lease_uses_the_budget_for_lost_attempts(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit(retry=Retry(lost=1))
    worker.claim()
    worker.alive = False
    fleet.live(EXPIRY_MS + 1_000)
    assert fleet.records.directives(task) == [("APPROVED", "lease_expired", POLICY)]
    second = fleet.worker("w2")
    fleet.step()
    second.claim()
    assert granted(second) == [2]


def test_an_approval_by_a_person_uses_up_no_budget(fleet: ScriptedFleet) -> None:
    task = lost(fleet)
    fleet.client.decide(task, approve=True)
    assert fleet.records.rows("SELECT lost_count, failed_count FROM task") == [(0, 0)]


def test_the_next_attempt_waits_twice_as_long_each_time(fleet: ScriptedFleet) -> None:
    task = lost(fleet, retry=Retry(lost=3, backoff_ms=2_000, backoff_max_ms=5_000))
    waits = [waited(fleet, task)]
    for _ in range(2):
        lose(fleet)
        waits.append(waited(fleet, task))
    assert waits == [2_000, 4_000, 5_000]


def waited(fleet: ScriptedFleet, task: str) -> int:
    start_ms = fleet.clock.elapsed_ms()
    while fleet.records.state(task) == "QUEUED":
        fleet.clock.advance_ms(500)
        fleet.workers[0].beat()
        fleet.step()
    return fleet.clock.elapsed_ms() - start_ms


# --- failed --------------------------------------------------------------------------------------


def test_a_failure_ends_the_task(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit(retry=Retry(lost=5))
    worker.fail(worker.claim())
    assert fleet.records.state(task) == "FAILED"
    assert fleet.records.directives(task) == []
    (done,) = fleet.client.read()
    assert (done.state, done.failure and done.failure.message) == ("FAILED", "ValueError: no")


def test_a_budget_for_failed_attempts_is_used_up_then_the_task_has_failed(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit(retry=Retry(failed=1))
    worker.fail(worker.claim())
    assert (fleet.records.state(task), fleet.client.read()) == ("OFFERED", [])
    worker.fail(worker.claim())
    assert fleet.records.state(task) == "FAILED"
    assert fleet.records.directives(task) == [("APPROVED", "failed_exception", POLICY)]
    assert fleet.records.rows("SELECT attempt FROM failed_attempt") == [(1,)]


def test_lost_and_failed_attempts_have_separate_budgets(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit(retry=Retry(lost=1, failed=1))
    worker.fail(worker.claim())
    lose(fleet)
    assert fleet.records.rows("SELECT lost_count, failed_count, next_attempt FROM task") == [(1, 1, 3)]
    worker.finish(worker.claim())
    assert fleet.records.state(task) == "SUCCEEDED"


@pytest.mark.parametrize("kind", sorted(NEVER_RETRIED))
def test_a_failure_that_another_attempt_cannot_cure_is_never_repeated(fleet: ScriptedFleet, kind: FailureKind) -> None:
    worker = fleet.worker()
    task = fleet.submit(retry=Retry(failed=5))
    worker.fail(worker.claim(), kind)
    assert fleet.records.state(task) == "FAILED"


def test_the_same_failure_again_is_a_duplicate(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    fleet.submit(retry=Retry(failed=3))
    hand = worker.claim()
    worker.fail(hand)
    worker.fail(hand)
    assert verdicts(worker) == ["accepted", "duplicate"]
    assert fleet.records.rows("SELECT failed_count FROM task") == [(1,)]


# --- cancelled -----------------------------------------------------------------------------------


def test_cancelling_a_queued_task_ends_it(fleet: ScriptedFleet) -> None:
    task = fleet.submit()
    assert fleet.client.cancel(task).rows == ({"task_id": task, "state": "CANCELLED"},)
    fleet.worker()
    fleet.step(2)
    assert fleet.records.leases(task) == []


def test_cancelling_an_offer_that_waits_for_a_grant_ends_it(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    fleet.client.cancel(task)
    assert (fleet.records.state(task), fleet.records.leases(task)) == ("CANCELLED", ["RELEASED"])
    assert worker.take() == []


def test_cancelling_a_running_task_is_unconfirmed_until_its_end_is_proved(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    hand = worker.claim()
    assert fleet.client.cancel(task).rows == ({"task_id": task, "state": "CANCELLING"},)
    assert [order.fence for order in worker.read() if isinstance(order, Stop)] == [1]
    hand.state = "running"
    fleet.live(3_000)
    assert [str(order.reason) for order in worker.read() if isinstance(order, Stop)] == ["cancelled"] * 3
    assert fleet.records.state(task) == "CANCELLING"
    worker.release(hand, Cause.CANCELLED, started=True)
    assert fleet.records.state(task) == "CANCELLED"
    assert [str(done.state) for done in fleet.client.read()] == ["CANCELLED"]


def test_cancelling_an_unreachable_worker_is_confirmed_when_the_lease_is_over(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit(retry=Retry(lost=5))
    worker.claim()
    worker.alive = False
    fleet.client.cancel(task)
    fleet.live(EXPIRY_MS)
    assert fleet.records.state(task) == "CANCELLING"
    fleet.live(1_000)
    assert (fleet.records.state(task), fleet.records.directives(task)) == ("CANCELLED", [])


def test_cancelling_goes_on_after_a_restart(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    worker.claim()
    fleet.client.cancel(task)
    worker.read()
    fleet.restart()
    fleet.step()
    fleet.live(1_000)
    assert [str(order.reason) for order in worker.read() if isinstance(order, Stop)] == ["cancelled"]


def test_cancelling_what_may_have_started_on_claim_waits_for_the_claim_and_stops_it(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit(start="claimed")
    hand = worker.take()[0]
    fleet.client.cancel(task)
    assert fleet.records.state(task) == "CANCELLING"
    worker.claim(hand)
    assert [order.kind for order in worker.orders if order.kind in {"granted", "stop"}] == ["stop"]
    worker.release(hand, Cause.CANCELLED, started=True)
    assert fleet.records.state(task) == "CANCELLED"


def test_a_claim_that_is_repeated_after_a_cancel_is_stopped_and_not_granted_again(fleet: ScriptedFleet) -> None:
    """The grant was lost, and nothing has started."""
    worker = fleet.worker()
    task = fleet.submit()
    hand = worker.claim()
    fleet.client.cancel(task)
    worker.read()
    worker.claim(hand)

    assert [order.kind for order in worker.orders[-2:]] == ["stop", "stop"]
    assert granted(worker) == [1]
    worker.release(hand, Cause.CANCELLED, started=False)
    assert fleet.records.state(task) == "CANCELLED"


def test_cancelling_what_nobody_was_given_ends_when_that_is_known(fleet: ScriptedFleet) -> None:
    fleet.worker()
    task = fleet.submit(start="claimed")
    fleet.client.cancel(task)
    fleet.live(17_000)
    assert fleet.records.state(task) == "CANCELLED"


def test_cancelling_a_lost_task_denies_its_directive(fleet: ScriptedFleet) -> None:
    task = lost(fleet)
    assert fleet.client.cancel(task).rows == ({"task_id": task, "state": "CANCELLED"},)
    assert fleet.records.directives(task) == [("DENIED", "process_died", "ada")]


@pytest.mark.parametrize("end", ["SUCCEEDED", "FAILED", "CANCELLED", "ABANDONED"])
def test_a_terminal_task_stays_as_it_is(fleet: ScriptedFleet, end: str) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    match end:
        case "SUCCEEDED":
            worker.finish(worker.claim())
        case "FAILED":
            worker.fail(worker.claim())
        case "CANCELLED":
            fleet.client.cancel(task)
        case _:
            lose(fleet)
            fleet.client.decide(task, approve=False)
    assert fleet.client.cancel(task).rows == ({"task_id": task, "state": end},)
    assert fleet.records.state(task) == end


def test_cancelling_one_unknown_task_cancels_none(fleet: ScriptedFleet) -> None:
    task = fleet.submit()
    refusal = fleet.client.cancel(task, "0" * 26).refusal
    assert refusal is not None
    assert (refusal.code, fleet.records.state(task)) == ("unknown_task", "QUEUED")


@pytest.mark.parametrize("first", ["cancel", "finish"])
def test_a_result_and_a_cancel_that_meet_give_one_end(fleet: ScriptedFleet, first: str) -> None:
    """An accepted value ends the task, even when a cancel was asked for: it is done."""
    worker = fleet.worker()
    task = fleet.submit()
    hand = worker.claim()
    if first == "cancel":
        fleet.client.cancel(task)
        worker.finish(hand, "42")
    else:
        worker.finish(hand, "42")
        fleet.client.cancel(task)
    worker.release(hand, Cause.CANCELLED, started=True)

    assert verdicts(worker) == ["accepted", "duplicate"]
    assert (fleet.records.state(task), fleet.records.result(task)) == ("SUCCEEDED", ("w1", 1, "42"))
    assert [str(done.state) for done in fleet.client.read()] == ["SUCCEEDED"]


def test_a_failure_after_a_cancel_is_not_repeated(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit(retry=Retry(failed=5))
    hand = worker.claim()
    fleet.client.cancel(task)
    worker.fail(hand)
    assert (fleet.records.state(task), fleet.records.leases(task)) == ("FAILED", ["COMPLETED"])


def test_giving_back_what_is_being_cancelled_cancels_it(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    hand = worker.claim()
    fleet.client.cancel(task)
    worker.release(hand, Cause.UNSTARTED, started=False)
    assert (fleet.records.state(task), fleet.records.leases(task)) == ("CANCELLED", ["RELEASED"])
