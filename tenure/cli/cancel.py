"""`tenure cancel`: end tasks before they have ended themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from tenure.cli.desk import with_desk
from tenure.cli.output import Column
from tenure.cli.records import query, task_id_argument
from tenure.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from tenure.cli.desk import Desk

_AT_ONCE: Final = 1_000
_OPEN: Final = ("QUEUED", "OFFERED", "RUNNING", "LOST")
_COLUMNS: Final = (Column("TASK", "task_id"), Column("STATE", "state"))


@click.command(short_help="Cancel tasks.")
@click.argument("task_ids", nargs=-1, type=task_id_argument, metavar="[TASK_ID]...")
@click.option("--run", metavar="NAME", help="Every task of this run that has not ended.")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept with the task.")
@with_desk
def cancel(desk: Desk, task_ids: tuple[str, ...], run: str | None, reason: str) -> None:
    """Cancel tasks. CANCELLED is said only when the end is proved; until then a task is CANCELLING."""
    if bool(task_ids) == bool(run):
        raise UsageError("say which tasks", "Give task ids, or --run for all of a run")
    rows = cancel_tasks(desk, task_ids, reason) if task_ids else _cancel_run(desk, run or "", reason)
    desk.output.table(_COLUMNS, rows, empty="There was nothing to cancel.")


def _cancel_run(desk: Desk, run: str, reason: str) -> list[dict[str, Any]]:
    """Cancel a run's tasks portion by portion, since a long list does not fit into one answer."""
    rows: list[dict[str, Any]] = []
    for state in _OPEN:
        while True:
            known = {row["task_id"] for row in rows}
            found = [row["task_id"] for row in query(desk, "tasks", {"run": run, "state": state}, _AT_ONCE)]
            if not (fresh := [task_id for task_id in found if task_id not in known]):
                break
            rows.extend(cancel_tasks(desk, fresh, reason))
    return rows


def cancel_tasks(desk: Desk, task_ids: Sequence[str], reason: str) -> list[dict[str, Any]]:
    """Ask for the end of these tasks; their states afterwards."""
    from tenure.protocol.client_messages import Cancel

    rows: list[dict[str, Any]] = []
    for start in range(0, len(task_ids), _AT_ONCE):
        ask = Cancel(task_ids=tuple(task_ids[start : start + _AT_ONCE]), reason=reason)
        rows.extend(desk.ask(ask).rows)
    return rows
