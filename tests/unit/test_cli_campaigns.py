"""`tenure campaigns`: what was typed becomes a request, and what is on record becomes lines and JSON."""

from datetime import datetime
from typing import Any

import pytest

from tenure.protocol.campaign_messages import Budget, CloseCampaign, CreateCampaign
from tests.fixtures_cli import CommandLine, FakeFleet

ROW: dict[str, Any] = {
    "campaign": "x",
    "state": "OPEN",
    "most_tasks": 1_000,
    "reserved_tasks": 40,
    "used_tasks": 2,
    "most_attempt_ms": None,
    "reserved_attempt_ms": 0,
    "used_attempt_ms": 1_500,
    "most_cost": 2_500,
    "reserved_cost": 0,
    "used_cost": 250,
    "capabilities": ["arm", "cpu"],
    "devices": [],
    "people": [],
    "starts_at_ms": None,
    "ends_at_ms": None,
    "note": "for the paper",
    "created_at_ms": 0,
    "created_by": "ada",
    "closed_at_ms": None,
    "closed_by": None,
}
USAGE = {
    "principal": "ada",
    "capability": "cpu",
    "tasks": 42,
    "reserved_tasks": 40,
    "used_tasks": 2,
    "released_tasks": 0,
    "reserved_cost": 0,
    "used_cost": 250,
    "used_attempt_ms": 1_500,
}


@pytest.fixture
def tenure(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    made = [ROW | {"reserved_tasks": 0}]
    fleet = FakeFleet(rows={"campaigns": [ROW], "usage": [USAGE], "create_campaign": made, "close_campaign": [ROW]})
    return CommandLine(fleet, capsys)


def test_everything_that_is_typed_is_asked_for(tenure: CommandLine) -> None:
    line = (
        "campaigns create x --tasks 1000 --attempt-time 1h30m --cost 2.5 --capability cpu --capability arm "
        "--device arm1 --person ada --starts 2030-01-31T09:00+00:00 --ends 2030-02-01T00:00+01:00 --note why"
    )
    printed = tenure(*line.split())
    assert (printed.code, printed.out) == (0, "Campaign x is OPEN.\n")
    assert tenure.fleet.asked == [
        CreateCampaign(
            campaign="x",
            budget=Budget(tasks=1_000, attempt_ms=5_400_000, cost=2_500),
            capabilities=("cpu", "arm"),
            devices=("arm1",),
            people=("ada",),
            starts_at_ms=1_896_080_400_000,
            ends_at_ms=1_896_130_800_000,
            note="why",
        )
    ]


def test_what_is_not_typed_has_no_limit(tenure: CommandLine) -> None:
    tenure("campaigns", "create", "x")
    assert tenure.fleet.asked == [CreateCampaign(campaign="x")]


@pytest.mark.parametrize(("held", "words"), [(40, "40 tasks of it have"), (1, "1 task of it has")])
def test_one_that_was_there_already_is_said_to_be(tenure: CommandLine, held: int, words: str) -> None:
    tenure.fleet.rows["create_campaign"] = [ROW | {"reserved_tasks": held}]
    assert tenure("campaigns", "create", "x").out == (
        f"Campaign x is OPEN. It was there already, and {words} not ended.\n"
    )


def test_a_date_alone_is_its_first_moment_in_this_hosts_time_zone(tenure: CommandLine) -> None:
    tenure("campaigns", "create", "x", "--ends", "2030-01-31")
    (ask,) = tenure.fleet.asked
    assert isinstance(ask, CreateCampaign)
    assert ask.ends_at_ms == datetime(2030, 1, 31).astimezone().timestamp() * 1000


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--cost", "1.2345"),
        ("--cost", "-1"),
        ("--cost", "much"),
        ("--attempt-time", "3 hours"),
        ("--starts", "tomorrow"),
        ("--tasks", "-1"),
        ("--capability", "a b"),
        ("--device", ""),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_asked(tenure: CommandLine, option: str, value: str) -> None:
    assert tenure("campaigns", "create", "x", option, value).code == 2
    assert tenure.fleet.asked == []


def test_closing_says_what_goes_on(tenure: CommandLine) -> None:
    assert "40 tasks that have not ended go on." in tenure("campaigns", "close", "x", "--note", "enough").out
    assert tenure.fleet.asked == [CloseCampaign(campaign="x", note="enough")]
    assert tenure("campaigns", "close", "x", "--json").json() == ROW
    tenure.fleet.rows["close_campaign"] = [ROW | {"state": "CLOSED", "reserved_tasks": 1}]
    assert tenure("campaigns", "close", "x").out == ("Campaign x is CLOSED. Its 1 task that has not ended goes on.\n")


def test_a_list_shows_what_is_taken_of_what_is_allowed(tenure: CommandLine) -> None:
    heading, line = tenure("campaigns", "list").out.splitlines()
    assert heading.split() == ["CAMPAIGN", "STATE", "TASKS", "ATTEMPT", "SECONDS", "COST", "ENDS", "CREATED", "BY"]
    assert line.split() == ["x", "OPEN", "42", "of", "1000", "1.5", "0.25", "of", "2.5", "-", "ada"]
    assert tenure("campaigns", "list", "--json").json() == [ROW]


@pytest.mark.parametrize("command", ["list", "show x"])
@pytest.mark.parametrize("form", ["", "--json"])
def test_a_list_that_may_go_on_is_said_to_stop(tenure: CommandLine, command: str, form: str) -> None:
    for limit, remark in ((1, "The list stops after 1; ask for more with --limit.\n"), (2, "")):
        assert tenure("campaigns", *command.split(), "--limit", str(limit), *form.split()).err == remark


def test_no_campaigns_are_said_in_words(tenure: CommandLine) -> None:
    tenure.fleet.rows["campaigns"] = []
    assert tenure("campaigns", "list").out == "There are no campaigns.\n"


def test_one_is_shown_with_what_is_left_and_who_used_it(tenure: CommandLine) -> None:
    lines = tenure("campaigns", "show", "x").out.splitlines()
    assert lines[0] == "Campaign x is OPEN."
    assert lines[1].endswith("for the paper")
    assert lines[2] == "Capabilities: arm, cpu. Devices: none. People: everyone."
    cells = [line.split() for line in lines[4:8]]
    assert cells == [
        ["BUDGET", "ALLOWED", "USED", "RESERVED", "LEFT"],
        ["tasks", "1000", "2", "40", "958"],
        ["attempt-seconds", "no", "limit", "1.5", "0", "-"],
        ["cost", "2.5", "0.25", "0", "2.25"],
    ]
    assert lines[-1].split() == ["ada", "cpu", "42", "40", "2", "0", "1.5", "0.25"]
    assert tenure("campaigns", "show", "x", "--json").json() == {**ROW, "usage": [USAGE]}


def test_its_dates_and_its_end_are_shown(tenure: CommandLine) -> None:
    ended = {"state": "CLOSED", "closed_at_ms": 5, "closed_by": "bob", "starts_at_ms": 5, "ends_at_ms": 6_000}
    tenure.fleet.rows["campaigns"] = [ROW | ended]
    out = tenure("campaigns", "show", "x").out
    assert "is CLOSED, closed by bob on " in out
    assert "Takes submissions from " in out


def test_one_that_does_not_exist_is_unknown(tenure: CommandLine) -> None:
    tenure.fleet.rows["campaigns"] = []
    printed = tenure("campaigns", "show", "y", "--json")
    assert (printed.code, '"unknown_campaign"' in printed.err) == (2, True)


def test_submissions_name_their_campaign_and_cost(tenure: CommandLine) -> None:
    tenure("submit", "--campaign", "x", "--cost", "0.25", "--", "wc")
    assert tenure.fleet.options == [{"campaign": "x", "cost": "0.25"}]
    tenure("tasks", "list", "--campaign", "x")
    assert dict(tenure.fleet.asked[-1].where) == {"campaign": "x"}  # type: ignore[union-attr]
