"""`tenure wait` and `tenure result`: how tasks ended."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import click

from tenure.cli.desk import with_desk
from tenure.cli.output import Column
from tenure.cli.records import task_id_argument
from tenure.errors import TaskError, TaskFailed
from tenure.protocol.states import TERMINAL_TASK_STATES, TaskState

if TYPE_CHECKING:
    from tenure.cli.desk import Desk
    from tenure.client.handle import Handle

_ENDS: Final = (
    Column("TASK", "task_id"),
    Column("STATE", "state"),
    Column("ATTEMPT", "attempt", right=True),
    Column("RESULT", "result"),
    Column("ERROR", "error"),
)
_KNOWN_ENDS: Final = frozenset({*TERMINAL_TASK_STATES, TaskState.LOST})
_ANSWER_S: Final = 10.0
_HANDLER: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_timeout: Final = click.option("--timeout", metavar="DURATION", help="How long to wait, such as 90s.")


@click.command(short_help="Wait until tasks have ended.")
@click.argument("task_ids", nargs=-1, required=True, type=task_id_argument, metavar="TASK_ID...")
@_timeout
@with_desk
def wait(desk: Desk, task_ids: tuple[str, ...], timeout: str | None) -> int:
    """Wait until all of the tasks have ended, and print how. Exits with 1 when one of them has no result."""
    from tenure.client.waiting import wait as wait_for

    handles = [desk.fleet.handle(task_id) for task_id in task_ids]
    waited = wait_for(handles, _seconds(timeout))
    if waited.pending:
        waited.pending[0].result(0)
    rows = [_row(handle) for handle in handles]
    desk.output.table(_ENDS, rows, empty="")
    return int(any(row["error"] for row in rows))


@click.command(short_help="Print a task's result.")
@click.argument("task_id", type=task_id_argument)
@_timeout
@with_desk
def result(desk: Desk, task_id: str, timeout: str | None) -> None:
    """Print a task's result as JSON; the output of a program as it is. Does not wait unless --timeout says so."""
    from tenure.cli.records import query

    rows = query(desk, "tasks", {"task_id": task_id}, 1)
    # A handler's reference has a colon and no space; whatever else ran was a program.
    as_text = bool(rows) and _HANDLER.fullmatch(str(rows[0].get("work", ""))) is None
    seconds = _seconds(timeout) or 0
    if not rows or rows[0]["state"] in _KNOWN_ENDS:
        seconds = max(seconds, _ANSWER_S)  # nothing to wait for but the coordinator's answer
    print_value(desk, desk.fleet.handle(task_id), as_text=as_text, timeout=seconds)


def print_value(desk: Desk, handle: Handle[Any], *, as_text: bool, timeout: float | None = None) -> None:
    """Wait for a task's end and print its value. Raises how it ended when it has none."""
    try:
        value = handle.result(timeout)
    except TaskFailed as error:
        if error.trace and not desk.output.as_json:
            desk.remark(error.trace.rstrip())
        raise
    if desk.output.as_json:
        end = {"task_id": handle.task_id, "state": str(handle.state), "attempt": handle.attempt, "fence": handle.fence}
        desk.output.json({**end, "result": value})
    elif as_text and isinstance(value, str):
        click.echo(value, nl=not value.endswith("\n"))
    else:
        desk.output.json(value)


def _row(handle: Handle[Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"task_id": handle.task_id, "state": str(handle.state), "attempt": handle.attempt}
    try:
        return {**row, "result": handle.result(0), "error": None}
    except TaskError as error:
        return {**row, "result": None, "error": error.message}


def _seconds(timeout: str | None) -> float | None:
    from tenure.protocol.durations import duration_ms

    return None if timeout is None else duration_ms(timeout, "--timeout") / 1000
