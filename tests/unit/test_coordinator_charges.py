"""What becomes of what a campaign's tasks have reserved, and what people read of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.protocol.campaign_messages import Budget
from tenure.protocol.client_messages import Adopt
from tenure.protocol.envelope import Retry
from tenure.protocol.worker_messages import Cause
from tests.scripted_campaign import admitted, create, refused, submit, sums
from tests.scripted_fleet import EXPIRY_MS, ScriptedFleet, envelope


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path) as fleet:
        yield fleet


# --- what becomes of it --------------------------------------------------------------------------


def test_acceptance_settles_and_uses_what_the_attempt_took(fleet: ScriptedFleet) -> None:
    create(fleet, budget=Budget(tasks=1, attempt_ms=10_000, cost=7))
    worker = fleet.worker()
    admitted(fleet, envelope(timeout_ms=3_000, retry=Retry(lost=1)), cost=7)
    assert sums(fleet) == (1, 0, 6_000, 0, 7, 0)
    hand = worker.claim()
    fleet.live(2_000)
    worker.finish(hand)
    assert sums(fleet) == (0, 1, 0, 5, 0, 7)  # a scripted worker says that it took 5 ms


def test_a_worker_that_says_too_much_is_believed_as_far_as_its_lease_goes(fleet: ScriptedFleet) -> None:
    create(fleet)
    worker = fleet.worker()
    admitted(fleet)
    hand = worker.claim()
    fleet.live(2_000)
    worker.report(worker.finished(hand).model_copy(update={"duration_ms": 90_000}))
    assert sums(fleet)[:4] == (0, 1, 0, 2_000)


def test_no_attempt_uses_more_than_was_reserved_for_it(fleet: ScriptedFleet) -> None:
    create(fleet, budget=Budget(attempt_ms=1_500))
    worker = fleet.worker()
    admitted(fleet, envelope(timeout_ms=1_500))
    hand = worker.claim()
    fleet.live(2_000)
    worker.report(worker.finished(hand).model_copy(update={"duration_ms": 90_000}))
    assert sums(fleet)[2:4] == (0, 1_500)


def test_an_accepted_failure_settles_too(fleet: ScriptedFleet) -> None:
    create(fleet, budget=Budget(tasks=1))
    worker = fleet.worker()
    admitted(fleet)
    worker.fail(worker.claim())
    assert sums(fleet)[:2] == (0, 1)


def test_a_failed_attempt_uses_its_time_and_the_next_keeps_its_own(fleet: ScriptedFleet) -> None:
    create(fleet, budget=Budget(attempt_ms=4_000))
    worker = fleet.worker()
    admitted(fleet, envelope(timeout_ms=2_000, retry=Retry(failed=1)))
    hand = worker.claim()
    fleet.live(1_000)
    worker.fail(hand)
    assert sums(fleet)[:4] == (1, 0, 2_000, 5)
    hand = worker.claim()
    fleet.live(1_000)
    worker.finish(hand)
    assert sums(fleet)[:4] == (0, 1, 0, 10)


def test_a_cancelled_task_gives_back_its_place_and_its_cost(fleet: ScriptedFleet) -> None:
    create(fleet, budget=Budget(tasks=1, attempt_ms=5_000, cost=7))
    task = admitted(fleet, envelope(timeout_ms=5_000), cost=7)
    fleet.client.cancel(task)
    assert sums(fleet) == (0, 0, 0, 0, 0, 0)
    assert admitted(fleet, envelope(timeout_ms=5_000), cost=7) != task


def test_a_task_that_is_cancelled_while_it_runs_has_used_its_time(fleet: ScriptedFleet) -> None:
    create(fleet, budget=Budget(tasks=1, attempt_ms=5_000))
    worker = fleet.worker()
    task = admitted(fleet, envelope(timeout_ms=5_000))
    hand = worker.claim()
    fleet.live(3_000)
    fleet.client.cancel(task)
    assert sums(fleet)[:4] == (1, 0, 5_000, 0)
    worker.release(hand, Cause.CANCELLED, started=True)
    assert fleet.records.state(task) == "CANCELLED"
    assert sums(fleet)[:4] == (0, 0, 0, 3_000)


def test_what_was_never_started_uses_no_time(fleet: ScriptedFleet) -> None:
    create(fleet, budget=Budget(attempt_ms=5_000))
    worker = fleet.worker()
    admitted(fleet, envelope(timeout_ms=5_000))
    hand = worker.claim()
    fleet.live(3_000)
    worker.release(hand, Cause.UNSTARTED, started=False)
    assert sums(fleet)[:4] == (1, 0, 5_000, 0)


def lost(fleet: ScriptedFleet, **fields: Any) -> str:
    """A task whose attempt was lost, and a worker that is gone."""
    worker = fleet.worker()
    task = admitted(fleet, envelope(timeout_ms=20_000, **fields))
    worker.claim()
    worker.alive = False
    fleet.live(EXPIRY_MS + 1_000)
    return task


def test_a_lost_attempt_uses_the_time_of_its_lease_and_a_lost_task_keeps_its_place(fleet: ScriptedFleet) -> None:
    create(fleet, budget=Budget(tasks=1, attempt_ms=60_000))
    task = lost(fleet)
    reserved, used, reserved_ms, used_ms, *_ = sums(fleet)
    assert (reserved, used, reserved_ms) == (1, 0, 0)
    assert EXPIRY_MS <= used_ms <= EXPIRY_MS + 1_000
    fleet.client.decide(task, approve=False)
    assert sums(fleet)[:4] == (0, 0, 0, used_ms)


def test_a_lost_attempt_that_may_be_repeated_leaves_the_time_for_the_next(fleet: ScriptedFleet) -> None:
    create(fleet, budget=Budget(attempt_ms=60_000))
    lost(fleet, retry=Retry(lost=1))
    assert sums(fleet)[2] == 20_000


def test_a_person_who_allows_one_more_attempt_reserves_the_time_for_it(fleet: ScriptedFleet) -> None:
    create(fleet, budget=Budget(attempt_ms=60_000))
    task = lost(fleet)
    fleet.client.decide(task, approve=True)
    assert sums(fleet)[:3] == (1, 0, 20_000)


def test_nobody_can_allow_an_attempt_that_the_campaign_has_no_time_for(fleet: ScriptedFleet) -> None:
    create(fleet, budget=Budget(attempt_ms=30_000))
    task = lost(fleet)
    assert "are asked for" in refused(fleet.client.decide(task, approve=True), "over_budget")
    assert fleet.records.state(task) == "LOST"


def test_a_result_that_came_before_its_cancel_took_effect_settles_as_any_other(fleet: ScriptedFleet) -> None:
    create(fleet, budget=Budget(tasks=1))
    worker = fleet.worker()
    task = admitted(fleet)
    hand = worker.claim()
    fleet.client.cancel(task)
    worker.finish(hand)
    assert fleet.records.state(task) == "SUCCEEDED"
    assert sums(fleet)[:2] == (0, 1)


def test_an_adopted_result_settles_and_its_time_counts_once(fleet: ScriptedFleet) -> None:
    create(fleet, budget=Budget(tasks=1, attempt_ms=60_000))
    worker = fleet.worker()
    task = admitted(fleet, envelope(timeout_ms=20_000))
    hand = worker.claim()
    worker.alive = False
    fleet.live(EXPIRY_MS + 1_000)
    used_ms = sums(fleet)[3]
    worker.finish(hand)
    ((evidence,),) = fleet.records.rows("SELECT quarantine_id FROM quarantine")
    fleet.client.ask(Adopt(quarantine_id=evidence))
    assert fleet.records.state(task) == "SUCCEEDED"
    assert sums(fleet)[:4] == (0, 1, 0, used_ms)


# --- what people read ----------------------------------------------------------------------------


def test_usage_is_told_by_person_and_kind_of_work(fleet: ScriptedFleet) -> None:
    create(fleet)
    worker = fleet.worker()
    submit(fleet, cost=3)
    worker.finish(worker.claim())
    submit(fleet, envelope(), envelope(), cost=4, by="bob")
    fleet.client.cancel(submit(fleet, envelope(capability="gpu"), cost=5).admitted[0].task_id)
    rows = fleet.client.query("usage", campaign="x")
    told = ("principal", "capability", "reserved_tasks", "used_tasks", "released_tasks", "reserved_cost", "used_cost")
    assert [tuple(row[name] for name in told) for row in rows] == [
        ("ada", "cpu", 0, 1, 0, 0, 3),
        ("ada", "gpu", 0, 0, 1, 0, 0),
        ("bob", "cpu", 2, 0, 0, 8, 0),
    ]


def test_tasks_and_campaigns_are_listed_by_each_other(fleet: ScriptedFleet) -> None:
    create(fleet, budget=Budget(tasks=2))
    task = admitted(fleet)
    other = fleet.submit()
    assert [row["task_id"] for row in fleet.client.query("tasks", campaign="x")] == [task]
    assert [row["campaign"] for row in fleet.client.query("tasks")] == [None, "x"]
    assert fleet.client.query("tasks", task_id=other)[0]["campaign"] is None
    (row,) = fleet.client.query("campaigns", state="OPEN")
    assert (row["campaign"], row["most_tasks"], row["reserved_tasks"]) == ("x", 2, 1)
    assert fleet.client.query("campaigns", state="CLOSED") == []


def test_the_story_of_a_task_says_what_it_counts_against(fleet: ScriptedFleet) -> None:
    create(fleet, budget=Budget(attempt_ms=5_000))
    task = admitted(fleet, envelope(timeout_ms=5_000), cost=1_250)
    assert fleet.client.explain(task)[0].endswith(
        "It counts against campaign x: it reserves 1 task and cost 1.25; attempt-seconds used: 0, 5 more reserved."
    )
    fleet.client.cancel(task)
    assert "it has given back 1 task and cost 1.25" in fleet.client.explain(task)[0]
    assert "campaign" not in fleet.client.explain(fleet.submit())[0]
