"""`tenure campaigns`: budgets that submissions count against, and what became of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, final

import click

from tenure.cli.desk import collect, with_desk
from tenure.cli.output import Column, counted, listed, moment
from tenure.cli.records import Listing, limit_option, one_row, print_list, query, remark_end
from tenure.errors import UsageError
from tenure.protocol.amounts import decimal_text, thousandths
from tenure.protocol.durations import duration_ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tenure.cli.desk import Desk
    from tenure.protocol.campaign_messages import CreateCampaign

CAMPAIGNS: Final = Listing(
    what="campaigns",
    identity="campaign",
    columns=(
        Column("CAMPAIGN", "campaign"),
        Column("STATE", "state"),
        Column("TASKS", "tasks", right=True),
        Column("ATTEMPT SECONDS", "attempt_ms", right=True, spare=2),
        Column("COST", "cost", right=True, spare=1),
        Column("ENDS", "ends_at_ms", moment, spare=3),
        Column("CREATED BY", "created_by", spare=4),
    ),
    empty="There are no campaigns.",
)
STATES: Final = ("OPEN", "CLOSED")
_BUDGET: Final = (
    Column("BUDGET", "unit"),
    Column("ALLOWED", "most", right=True),
    Column("USED", "used", right=True),
    Column("RESERVED", "reserved", right=True),
    Column("LEFT", "left", right=True),
)
_USAGE: Final = (
    Column("SUBMITTED BY", "principal"),
    Column("CAPABILITY", "capability"),
    Column("TASKS", "tasks", right=True),
    Column("RESERVED", "reserved_tasks", right=True, spare=2),
    Column("USED", "used_tasks", right=True),
    Column("RELEASED", "released_tasks", right=True, spare=3),
    Column("ATTEMPT SECONDS", "used_attempt_ms", decimal_text, right=True, spare=1),
    Column("COST", "used_cost", decimal_text, right=True),
)
_MOST_ROWS: Final = 1_000


@final
@dataclass(frozen=True, slots=True)
class CampaignForm:
    """What `tenure campaigns create` was given."""

    campaign: str
    tasks: int | None
    attempt_time: str | None
    cost: str | None
    capability: tuple[str, ...]
    device: tuple[str, ...]
    person: tuple[str, ...]
    starts: str | None
    ends: str | None
    note: str

    def ask(self) -> CreateCampaign:
        """The request. Raises `UsageError`."""
        from tenure.protocol.campaign_messages import Budget, CreateCampaign

        budget = Budget(
            tasks=self.tasks,
            attempt_ms=None if self.attempt_time is None else duration_ms(self.attempt_time, "--attempt-time"),
            cost=None if self.cost is None else thousandths(self.cost, "--cost"),
        )
        return CreateCampaign(
            campaign=self.campaign,
            budget=budget,
            capabilities=self.capability,
            devices=self.device,
            people=self.person,
            starts_at_ms=date_ms(self.starts, "--starts"),
            ends_at_ms=date_ms(self.ends, "--ends"),
            note=self.note,
        )


@click.group()
def campaigns() -> None:
    """Make, list, show and close campaigns: budgets that submissions count against."""


@campaigns.command("create")
@click.argument("campaign")
@click.option("--tasks", type=click.IntRange(0), metavar="N", help="The most tasks; what was cancelled does not count.")
@click.option("--attempt-time", metavar="DURATION", help="The most time of all attempts together, such as 100h.")
@click.option("--cost", metavar="AMOUNT", help="The most that tasks may declare together, in any unit.")
@click.option("--capability", multiple=True, metavar="NAME", help="A kind of work that it allows; repeatable.")
@click.option("--device", multiple=True, metavar="NAME", help="A value of the label device; without any: no device.")
@click.option("--person", multiple=True, metavar="NAME", help="Who may submit to it; without any: everyone who may.")
@click.option("--starts", metavar="DATE", help="Submissions are taken from then on, such as 2030-01-31T09:00.")
@click.option("--ends", metavar="DATE", help="Submissions are taken until then; a date alone is its first moment.")
@click.option("--note", default="", metavar="TEXT", help="What it is for; kept with it.")
@with_desk
def create_campaign(desk: Desk, /, **options: object) -> None:
    """Make a campaign. What it allows never changes; budgets that are not given have no limit."""
    (row,) = desk.ask(collect(CampaignForm, options).ask()).rows
    text = f"Campaign {row['campaign']} is {row['state']}."
    # The very same one a second time is no error: then others may have submitted to it by now.
    held = row["reserved_tasks"]
    verb = "has" if held == 1 else "have"
    desk.output.answer(
        row, f"{text} It was there already, and {counted(held, 'task')} of it {verb} not ended." if held else text
    )


@campaigns.command("list")
@click.option("--state", type=click.Choice(STATES, case_sensitive=False), help="Only campaigns in this state.")
@limit_option
@with_desk
def list_campaigns(desk: Desk, state: str | None, limit: int) -> None:
    """List campaigns, newest first, with what is used and reserved of what is allowed."""
    if desk.output.as_json:
        print_list(desk, CAMPAIGNS, {"state": state}, limit)
        return
    rows = [_summed(row) for row in query(desk, "campaigns", {"state": state}, limit)]
    desk.output.table(CAMPAIGNS.columns, rows, empty=CAMPAIGNS.empty)
    remark_end(desk, rows, limit)


@campaigns.command("show")
@click.argument("campaign")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    metavar="N",
    default=_MOST_ROWS,
    show_default=True,
    help="How many lines at most of who has used it for what.",
)
@with_desk
def show_campaign(desk: Desk, campaign: str, limit: int) -> None:
    """Show what a campaign allows, what is left of it, and who has used how much of it for what."""
    row = one_row(desk, CAMPAIGNS, campaign)
    usage = query(desk, "usage", {"campaign": campaign}, limit)
    remark_end(desk, usage, limit)
    if desk.output.as_json:
        desk.output.json({**row, "usage": usage})
        return
    for line in _terms(row):
        desk.output.say(line)
    desk.output.say("")
    desk.output.table(_BUDGET, _budget(row), empty="")
    desk.output.say("")
    desk.output.table(_USAGE, usage, empty="Nothing was submitted to it.")


@campaigns.command("close")
@click.argument("campaign")
@click.option("--note", default="", metavar="TEXT", help="Why; kept in the event log.")
@with_desk
def close_campaign(desk: Desk, campaign: str, note: str) -> None:
    """Take no more submissions. What was admitted goes on; see `tenure cancel --campaign` to end it."""
    from tenure.protocol.campaign_messages import CloseCampaign

    (row,) = desk.ask(CloseCampaign(campaign=campaign, note=note)).rows
    held = row["reserved_tasks"]
    text = f"Campaign {row['campaign']} is {row['state']}."
    verbs = "has not ended goes on" if held == 1 else "have not ended go on"
    desk.output.answer(row, f"{text} Its {counted(held, 'task')} that {verbs}." if held else text)


def date_ms(text: str | None, name: str) -> int | None:
    """A date, with or without a time, as milliseconds since the epoch; this host's time zone unless it says another."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
        return int(at.astimezone().timestamp() * 1000)
    except (ValueError, OverflowError):
        raise UsageError(
            f"{name} is not a date: {text[:40]!r}", "Write it like 2030-01-31 or 2030-01-31T09:00"
        ) from None


def _budget(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        _line("tasks", row, "tasks"),
        _line("attempt-seconds", row, "attempt_ms"),
        _line("cost", row, "cost"),
    ]


def _line(unit: str, row: Mapping[str, Any], column: str) -> dict[str, Any]:
    most, used, reserved = row[f"most_{column}"], row[f"used_{column}"], row[f"reserved_{column}"]
    write = str if column == "tasks" else decimal_text
    return {
        "unit": unit,
        "most": "no limit" if most is None else write(most),
        "used": write(used),
        "reserved": write(reserved),
        "left": None if most is None else write(most - used - reserved),
    }


def _summed(row: Mapping[str, Any]) -> dict[str, Any]:
    """For lists: what is taken, used and reserved together, of what is allowed."""
    sums: dict[str, Any] = dict(row)
    for column in ("tasks", "attempt_ms", "cost"):
        write = str if column == "tasks" else decimal_text
        most, taken = row[f"most_{column}"], row[f"used_{column}"] + row[f"reserved_{column}"]
        sums[column] = write(taken) if most is None else f"{write(taken)} of {write(most)}"
    return sums


def _terms(row: Mapping[str, Any]) -> Sequence[str]:
    closed = f", closed by {row['closed_by']} on {moment(row['closed_at_ms'])}" if row["closed_at_ms"] else ""
    note = f" {row['note']}" if row["note"] else ""
    allowed = (("Capabilities", "any"), ("Devices", "none"), ("People", "everyone"))
    lines = [
        f"Campaign {row['campaign']} is {row['state']}{closed}.",
        f"Created by {row['created_by']} on {moment(row['created_at_ms'])}.{note}",
        " ".join(f"{name}: {listed(row[name.lower()] or [nothing])}." for name, nothing in allowed),
    ]
    dates = [
        f"{word} {moment(row[name])}" for word, name in (("from", "starts_at_ms"), ("until", "ends_at_ms")) if row[name]
    ]
    return [*lines, f"Takes submissions {' '.join(dates)}."] if dates else lines
