"""`tenure cancel`: end tasks before they have ended themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from tenure.cli.desk import with_desk
from tenure.cli.output import Column, counted, moment
from tenure.cli.records import query, task_id_argument
from tenure.errors import FleetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from tenure.cli.desk import Desk

_AT_ONCE: Final = 1_000
_LOOK_MS: Final = 100
_PATIENCE_MS: Final = 3_600_000
_COLUMNS: Final = (Column("TASK", "task_id"), Column("STATE", "state"))
_REQUESTS: Final = (
    Column("REQUEST", "cancellation_id", right=True),
    Column("STATE", "state"),
    Column("RUN", "run"),
    Column("CAMPAIGN", "campaign", spare=2),
    Column("CAPABILITY", "capability", spare=1),
    Column("ONLY OF", "principal", spare=5),
    Column("CANCELLED", "cancelled", right=True),
    Column("TOLD TO STOP", "stopping", right=True),
    Column("ASKED BY", "asked_by", spare=4),
    Column("ASKED", "asked_at_ms", moment, spare=3),
    Column("ENDED", "ended_at_ms", moment, spare=6),
    Column("REASON", "reason", spare=7),
)
_MOST_LISTED: Final = 1_000


@click.command(short_help="Cancel tasks.")
@click.argument("task_ids", nargs=-1, type=task_id_argument, metavar="[TASK_ID]...")
@click.option("--run", metavar="NAME", help="Every task of this run.")
@click.option("--campaign", metavar="NAME", help="Every task of this campaign.")
@click.option("--capability", metavar="NAME", help="Every task that asks for this capability.")
@click.option("--all", "everything", is_flag=True, help="Every task there is.")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept with the task.")
@click.option("--list", "listing", is_flag=True, help="Cancel nothing: show how far such requests have come.")
@with_desk
def cancel(
    desk: Desk, /, task_ids: tuple[str, ...], reason: str, *, everything: bool, listing: bool, **named: str | None
) -> None:
    """Cancel tasks. CANCELLED is said only when the end is proved; until then a task is CANCELLING.

    Of --run, --campaign and --capability several may be given: tasks must then fit all of them. What is submitted
    later is not cancelled, and what has ended stays as it is. The fleet goes on with it when this command is
    interrupted; --list shows how far it has come.
    """
    which = {name: value for name, value in named.items() if value is not None}
    if listing:
        if task_ids or which or everything or reason:
            raise UsageError("--list shows every request, and cancels nothing", "Give it alone")
        _print_requests(desk)
        return
    ways = [bool(task_ids), bool(which), everything].count(True)
    if ways != 1:
        remedy = "Give task ids; or --run, --campaign and --capability; or --all for every task"
        raise UsageError("say which tasks in one way only" if ways else "say which tasks", remedy)
    if task_ids:
        desk.output.table(_COLUMNS, cancel_tasks(desk, task_ids, reason), empty="There was nothing to cancel.")
        return
    record = _cancel_many(desk, {**which, "everything": everything, "reason": reason})
    desk.output.answer(dict(record), _told(record["cancelled"], record["stopping"]))
    if not record["cancelled"] and not record["stopping"]:
        desk.remark("Nothing that you may cancel and that has not ended fits this; see `tenure tasks list`.")


def cancel_tasks(desk: Desk, task_ids: Sequence[str], reason: str) -> list[dict[str, Any]]:
    """Ask for the end of these tasks; their states afterwards."""
    from tenure.protocol.client_messages import Cancel

    rows: list[dict[str, Any]] = []
    for start in range(0, len(task_ids), _AT_ONCE):
        ask = Cancel(task_ids=tuple(task_ids[start : start + _AT_ONCE]), reason=reason)
        rows.extend(desk.ask(ask).rows)
    return rows


def _cancel_many(desk: Desk, which: Mapping[str, object]) -> Mapping[str, Any]:
    """Ask for the end of all tasks that fit, and wait until all of them are gone through; the record of it."""
    from tenure.cli.desk import collect
    from tenure.protocol.cancellation_messages import CancelMany

    rows = desk.ask(collect(CancelMany, which)).rows
    clock = desk.session.clock
    until_ms = clock.elapsed_ms() + _PATIENCE_MS
    while rows[0]["state"] != "DONE":
        if clock.elapsed_ms() > until_ms:
            raise FleetError(
                "not all of them are gone through within an hour", "It goes on; see `tenure cancel --list`"
            )
        clock.sleep_ms(_LOOK_MS)
        rows = tuple(query(desk, "cancellations", {"cancellation_id": str(rows[0]["cancellation_id"])}, 1))
    return rows[0]


def _print_requests(desk: Desk) -> None:
    rows = query(desk, "cancellations", limit=_MOST_LISTED)
    desk.output.table(
        _REQUESTS, rows, empty="Nobody has asked to cancel by run, campaign or capability, or everything."
    )
    if len(rows) == _MOST_LISTED:
        desk.remark(f"The list stops after the newest {_MOST_LISTED}.")


def _told(cancelled: int, stopping: int) -> str:
    text = f"{counted(cancelled, 'task')} {'was' if cancelled == 1 else 'were'} cancelled."
    if stopping:
        verb = "is told to stop, and is" if stopping == 1 else "are told to stop, and are"
        text += f" {stopping} {verb} CANCELLING until the end is proved: `tenure tasks list --state cancelling`."
    return text
