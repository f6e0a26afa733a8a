"""Campaigns: what they admit, what they refuse and in which words, and what becomes of what was reserved."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.protocol.campaign_messages import Budget, CloseCampaign, CreateCampaign
from tenure.protocol.client_messages import Adopt, Reply, Submit
from tenure.protocol.envelope import Envelope, Requirements, Retry
from tenure.protocol.worker_messages import Cause
from tests.scripted_fleet import EXPIRY_MS, ScriptedFleet, envelope

SPAN_MS = 60_000


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path) as fleet:
        yield fleet


def create(fleet: ScriptedFleet, *, budget: Budget | None = None, **terms: Any) -> Reply:
    return fleet.client.ask(CreateCampaign(campaign="x", budget=budget or Budget(), **terms))


def submission(fleet: ScriptedFleet, *envelopes: Envelope, cost: int | None = None, key: str = "") -> Submit:
    items = fleet.client.submission(*(envelopes or (envelope(),)), key=key).items
    return Submit(items=items, campaign="x", cost=cost)


def submit(
    fleet: ScriptedFleet, *envelopes: Envelope, cost: int | None = None, by: str = "ada", key: str = ""
) -> Reply:
    return fleet.client.ask(submission(fleet, *envelopes, cost=cost, key=key), principal=by)


def admitted(fleet: ScriptedFleet, *envelopes: Envelope, cost: int | None = None) -> str:
    reply = submit(fleet, *envelopes, cost=cost)
    assert reply.refusal is None, reply.refusal
    return reply.admitted[0].task_id


def refused(reply: Reply, code: str) -> str:
    assert reply.refusal is not None
    assert reply.refusal.code == code
    return reply.refusal.message


def tasks(fleet: ScriptedFleet) -> int:
    ((count,),) = fleet.records.rows("SELECT COUNT(*) FROM task")
    return int(count)


def sums(fleet: ScriptedFleet) -> tuple[int, ...]:
    """Reserved and used tasks, milliseconds and cost."""
    (row,) = fleet.records.rows(
        "SELECT reserved_tasks, used_tasks, reserved_ms, used_ms, reserved_cost, used_cost FROM campaign"
    )
    return tuple(map(int, row))


# --- campaigns -----------------------------------------------------------------------------------


def test_a_campaign_is_answered_as_it_stands_and_recorded(fleet: ScriptedFleet) -> None:
    (row,) = create(fleet, budget=Budget(tasks=3, attempt_ms=1_500, cost=250), people=("bob", "ada"), note="y").rows
    assert {name: row[name] for name in ("campaign", "state", "most_tasks", "most_attempt_ms", "most_cost")} == {
        "campaign": "x",
        "state": "OPEN",
        "most_tasks": 3,
        "most_attempt_ms": 1_500,
        "most_cost": 250,
    }
    assert (row["people"], row["capabilities"], row["created_by"]) == (["ada", "bob"], [], "ada")
    assert fleet.records.events("campaign_created") == [
        "ada created campaign x: at most 3 tasks; at most 1.5 attempt-seconds; at most 0.25 cost; people ada, bob (y)."
    ]


def test_the_very_same_campaign_again_changes_nothing(fleet: ScriptedFleet) -> None:
    create(fleet, budget=Budget(tasks=3))
    assert create(fleet, budget=Budget(tasks=3)).rows[0]["state"] == "OPEN"
    assert len(fleet.records.events("campaign_created")) == 1


@pytest.mark.parametrize("other", [{"devices": ("arm",)}, {"budget": Budget(tasks=4)}, {"ends_at_ms": 9}])
def test_another_campaign_of_the_same_name_is_refused(fleet: ScriptedFleet, other: dict[str, Any]) -> None:
    create(fleet, budget=Budget(tasks=3))
    assert refused(create(fleet, **other), "name_taken") == "there is or was another campaign 'x'"


def test_the_name_of_a_closed_campaign_is_never_used_again(fleet: ScriptedFleet) -> None:
    create(fleet)
    fleet.client.ask(CloseCampaign(campaign="x"))
    assert refused(create(fleet), "name_taken")


def test_a_campaign_ends_after_it_begins(fleet: ScriptedFleet) -> None:
    assert refused(create(fleet, starts_at_ms=5, ends_at_ms=5), "usage") == "campaign 'x' would end before it begins"


def test_a_closed_campaign_takes_no_more_and_what_it_has_goes_on(fleet: ScriptedFleet) -> None:
    create(fleet)
    task = admitted(fleet)
    (row,) = fleet.client.ask(CloseCampaign(campaign="x", note="enough")).rows
    assert (row["state"], row["reserved_tasks"], row["closed_by"]) == ("CLOSED", 1, "ada")
    assert refused(submit(fleet), "outside_campaign") == "campaign 'x' is closed"
    worker = fleet.worker()
    worker.finish(worker.claim())
    assert fleet.records.state(task) == "SUCCEEDED"
    assert sums(fleet)[:2] == (0, 1)
    assert fleet.records.events("campaign_closed") == ["ada closed campaign x (enough)."]


def test_closing_again_changes_nothing(fleet: ScriptedFleet) -> None:
    create(fleet)
    first = fleet.client.ask(CloseCampaign(campaign="x")).rows
    fleet.clock.advance_ms(5)
    assert fleet.client.ask(CloseCampaign(campaign="x"), principal="eve").rows == first
    assert len(fleet.records.events("campaign_closed")) == 1


@pytest.mark.parametrize("ask", [CloseCampaign(campaign="x"), None])
def test_a_campaign_that_nobody_made_is_unknown(fleet: ScriptedFleet, ask: CloseCampaign | None) -> None:
    reply = submit(fleet) if ask is None else fleet.client.ask(ask)
    assert refused(reply, "unknown_campaign") == "there is no campaign 'x'"
    assert tasks(fleet) == 0


# --- budgets -------------------------------------------------------------------------------------


def test_a_submission_over_the_budget_of_tasks_is_refused_with_the_numbers_and_stores_nothing(
    fleet: ScriptedFleet,
) -> None:
    create(fleet, budget=Budget(tasks=4))
    worker = fleet.worker()
    admitted(fleet)
    worker.finish(worker.claim())
    admitted(fleet)
    reply = submit(fleet, *[envelope()] * 3)
    assert refused(reply, "over_budget") == (
        "campaign 'x' has 2 of 4 tasks left (1 used, 1 reserved), and 3 are asked for"
    )
    assert tasks(fleet) == 2
    assert submit(fleet, *[envelope()] * 2).refusal is None
    assert refused(submit(fleet), "over_budget").startswith("campaign 'x' has 0 of 4 tasks left")


def test_a_refused_submission_is_offered_to_nobody_and_leaves_no_event(fleet: ScriptedFleet) -> None:
    create(fleet, budget=Budget(tasks=1))
    worker = fleet.worker()
    submit(fleet, envelope(), envelope())
    assert fleet.records.events("submitted") == []
    fleet.live(2_000)
    assert worker.take() == []


def test_a_submission_over_the_budget_of_cost_is_refused_with_the_numbers(fleet: ScriptedFleet) -> None:
    create(fleet, budget=Budget(cost=2_500))
    admitted(fleet, envelope(), envelope(), cost=1_000)
    assert refused(submit(fleet, cost=501), "over_budget") == (
        "campaign 'x' has 0.5 of 2.5 cost left (0 used, 2 reserved), and 0.501 are asked for"
    )
    assert submit(fleet, cost=500).refusal is None
    assert submit(fleet, cost=0).refusal is None


def test_where_cost_is_limited_a_task_declares_one(fleet: ScriptedFleet) -> None:
    create(fleet, budget=Budget(cost=2_500))
    assert refused(submit(fleet), "usage") == "campaign 'x' has a budget of cost, and none was declared"


def test_a_cost_without_a_campaign_is_refused(fleet: ScriptedFleet) -> None:
    ask = Submit(items=fleet.client.submission(envelope()).items, cost=5)
    assert refused(fleet.client.ask(ask), "usage").startswith("a cost was declared")


def test_time_is_reserved_for_every_attempt_that_may_follow_by_itself(fleet: ScriptedFleet) -> None:
    create(fleet, budget=Budget(attempt_ms=10_000))
    admitted(fleet, envelope(timeout_ms=1_500, retry=Retry(lost=2, failed=1)))
    assert sums(fleet) == (1, 0, 6_000, 0, 0, 0)
    assert refused(submit(fleet, envelope(timeout_ms=4_001)), "over_budget") == (
        "campaign 'x' has 4 of 10 attempt-seconds left (0 used, 6 reserved), and 4.001 are asked for"
    )
    assert submit(fleet, envelope(timeout_ms=4_000)).refusal is None


def test_where_time_is_limited_a_task_has_a_timeout(fleet: ScriptedFleet) -> None:
    create(fleet, budget=Budget(attempt_ms=10_000))
    assert "for as long as it likes" in refused(submit(fleet), "usage")


def test_without_a_budget_there_is_no_limit_and_the_sums_are_kept(fleet: ScriptedFleet) -> None:
    create(fleet)
    admitted(fleet, *[envelope(timeout_ms=2**53 - 1, retry=Retry(lost=1_000))] * 50, cost=10_000_000_000)
    assert sums(fleet) == (50, 0, 0, 0, 500_000_000_000, 0)


def test_a_repeated_submission_takes_nothing_even_when_nothing_is_left(fleet: ScriptedFleet) -> None:
    create(fleet, budget=Budget(tasks=1))
    ask = submission(fleet, key="k")
    first, again = fleet.client.ask(ask), fleet.client.ask(ask)
    assert [each.admitted[0].fresh for each in (first, again)] == [True, False]
    assert sums(fleet)[:2] == (1, 0)


def test_one_key_twice_in_a_submission_takes_the_place_of_one_task(fleet: ScriptedFleet) -> None:
    create(fleet, budget=Budget(tasks=1))
    assert submit(fleet, envelope(), envelope(), key="k").refusal is None
    assert sums(fleet)[0] == 1


def test_campaigns_survive_the_coordinator(fleet: ScriptedFleet) -> None:
    create(fleet, budget=Budget(tasks=1))
    admitted(fleet)
    fleet.restart()
    fleet.step()
    assert refused(submit(fleet), "over_budget")


# --- what is allowed -----------------------------------------------------------------------------


def test_only_the_capabilities_that_it_names_are_allowed(fleet: ScriptedFleet) -> None:
    create(fleet, capabilities=("cpu", "big"))
    assert submit(fleet).refusal is None
    reply = submit(fleet, envelope(), envelope(capability="gpu"))
    assert refused(reply, "outside_campaign") == "campaign 'x' allows big, cpu, not gpu"
    assert tasks(fleet) == 1


def with_device(*names: str) -> Envelope:
    return envelope(requirements=Requirements(labels=tuple(("device", name) for name in names)))


def test_only_the_devices_that_it_names_may_be_asked_for(fleet: ScriptedFleet) -> None:
    create(fleet, devices=("arm1", "arm2"))
    assert submit(fleet, with_device("arm1"), with_device("arm2")).refusal is None
    assert refused(submit(fleet, with_device("arm3")), "outside_campaign") == (
        "campaign 'x' allows arm1, arm2, not arm3"
    )
    assert refused(submit(fleet, with_device("arm1", "arm3")), "outside_campaign")


def test_a_campaign_that_names_no_device_allows_none(fleet: ScriptedFleet) -> None:
    create(fleet)
    assert refused(submit(fleet, with_device("arm1")), "outside_campaign") == "campaign 'x' allows no device, not arm1"


def test_a_task_that_asks_for_no_device_must_not_come_to_one_either(fleet: ScriptedFleet) -> None:
    create(fleet, devices=("arm1",))
    fleet.worker("w1", labels=(("device", "arm1"),))
    assert submit(fleet).refusal is None
    fleet.worker("w2", labels=(("device", "arm2"), ("room", "b12")))
    assert refused(submit(fleet), "outside_campaign") == ("campaign 'x' allows arm1, and work of cpu may come to arm2")
    assert refused(submit(fleet, envelope(requirements=Requirements(worker="w2"))), "outside_campaign")
    assert submit(fleet, envelope(requirements=Requirements(worker="w1"))).refusal is None
    assert submit(fleet, envelope(requirements=Requirements(labels=(("room", "a1"),)))).refusal is None
    assert submit(fleet, envelope(capability="other")).refusal is None


def test_only_the_people_that_it_names_may_submit(fleet: ScriptedFleet) -> None:
    create(fleet, people=("bob", "eve"))
    assert refused(submit(fleet), "outside_campaign") == "campaign 'x' is for bob, eve, not for ada"
    assert submit(fleet, by="eve").refusal is None


def test_the_dates_are_those_of_submissions(fleet: ScriptedFleet) -> None:
    now_ms = fleet.clock.now_ms()
    create(fleet, starts_at_ms=now_ms + SPAN_MS, ends_at_ms=now_ms + 2 * SPAN_MS)
    assert "begins on" in refused(submit(fleet), "outside_campaign")
    fleet.clock.advance_ms(SPAN_MS)
    assert submit(fleet).refusal is None
    fleet.clock.advance_ms(SPAN_MS)
    assert "has ended on" in refused(submit(fleet), "outside_campaign")


def test_a_fleet_may_take_nothing_without_a_campaign(tmp_path: Path) -> None:
    with ScriptedFleet(tmp_path, campaigns_only=True) as fleet:
        reply = fleet.client.ask(fleet.client.submission(envelope()))
        assert refused(reply, "outside_campaign") == "this fleet takes only submissions that name a campaign"
        create(fleet)
        ask = submission(fleet, key="k")
        assert fleet.client.ask(ask).refusal is None
        assert fleet.client.ask(ask.model_copy(update={"campaign": None})).admitted[0].fresh is False


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
