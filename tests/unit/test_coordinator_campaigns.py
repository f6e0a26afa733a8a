"""Campaigns: what they admit, and what they refuse in which words."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tenure.protocol.campaign_messages import Budget, CloseCampaign, CreateCampaign
from tenure.protocol.cancellation_messages import CancelMany
from tenure.protocol.client_messages import Submit
from tenure.protocol.envelope import Envelope, Requirements, Retry, encode
from tests.scripted_campaign import admitted, create, refused, submission, submit, sums, tasks
from tests.scripted_fleet import ScriptedFleet, envelope

SPAN_MS = 60_000


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path) as fleet:
        yield fleet


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


@pytest.mark.parametrize("moment", ["starts_at_ms", "ends_at_ms"])
def test_a_moment_that_has_no_date_is_none(moment: str) -> None:
    CreateCampaign.model_validate({"campaign": "x", moment: 253_402_300_799_999})
    with pytest.raises(ValidationError):
        CreateCampaign.model_validate({"campaign": "x", moment: 253_402_300_800_000})


def test_a_campaign_that_is_over_already_is_refused_with_the_dates_and_its_name_stays_free(
    fleet: ScriptedFleet,
) -> None:
    message = refused(create(fleet, ends_at_ms=fleet.clock.now_ms()), "usage")
    assert message.startswith("campaign 'x' would be over already: it ends on ")
    assert message.count(" UTC") == 2
    assert create(fleet, ends_at_ms=fleet.clock.now_ms() + SPAN_MS).rows[0]["state"] == "OPEN"


def test_the_very_same_campaign_again_changes_nothing_also_when_it_is_over(fleet: ScriptedFleet) -> None:
    ends_at_ms = fleet.clock.now_ms() + SPAN_MS
    create(fleet, ends_at_ms=ends_at_ms)
    fleet.clock.advance_ms(2 * SPAN_MS)
    assert create(fleet, ends_at_ms=ends_at_ms).refusal is None


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
    fleet.client.ask(CloseCampaign(campaign="x"))
    assert fleet.client.ask(ask).admitted[0].fresh is False
    assert sums(fleet)[:2] == (1, 0)


def test_one_key_twice_in_a_submission_takes_the_place_of_one_task(fleet: ScriptedFleet) -> None:
    create(fleet, budget=Budget(tasks=1))
    assert submit(fleet, envelope(), envelope(), key="k").refusal is None
    assert sums(fleet)[0] == 1


def test_what_is_cancelled_with_its_campaign_gives_back_all_that_it_holds(fleet: ScriptedFleet) -> None:
    create(fleet, budget=Budget(tasks=40, cost=40))
    admitted(fleet, *[envelope()] * 40, cost=1)
    fleet.client.ask(CancelMany(campaign="x"))
    fleet.step(3)
    assert sums(fleet) == (0, 0, 0, 0, 0, 0)
    assert submit(fleet, *[envelope()] * 40, cost=1).refusal is None


def test_sites_are_not_told_of_campaigns(fleet: ScriptedFleet) -> None:
    create(fleet)
    worker = fleet.worker()
    task = admitted(fleet, cost=77)
    (handout,) = worker.face.take(capabilities=["cpu"], limit=1, block_ms=0)
    assert handout.assignment is not None
    assert handout.assignment.ticket.task_id == task
    assert handout.assignment.envelope == encode(envelope())


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
