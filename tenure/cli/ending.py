"""`tenure wait` and `tenure result`: how tasks ended."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tenure.cli.arguments import LocalPath
from tenure.cli.desk import with_desk
from tenure.cli.output import Column
from tenure.cli.records import task_id_argument
from tenure.errors import ResultNotJson, TaskError, TaskFailed, UnknownArtifact, WaitTimedOut
from tenure.protocol.states import TERMINAL_TASK_STATES, TaskState

if TYPE_CHECKING:
    from tenure.cli.desk import Desk
    from tenure.client.handle import Handle

_ENDS: Final = (
    Column("TASK", "task_id"),
    Column("STATE", "state"),
    Column("ATTEMPT", "attempt", right=True, spare=1),
    Column("RESULT", "result"),
    Column("ERROR", "error"),
)
_KNOWN_ENDS: Final = frozenset({*TERMINAL_TASK_STATES, TaskState.LOST})
_ANSWER_S: Final = 10.0
_ON_ITS_WAY_MS: Final = 60_000
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
@click.option(
    "--outputs",
    type=LocalPath(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Put the files that the task has left into this folder.",
)
@click.option("--force", is_flag=True, help="Replace files of that folder that are others.")
@with_desk
def result(desk: Desk, task_id: str, timeout: str | None, outputs: Path | None, *, force: bool) -> None:
    """Print a task's result as JSON; the output of a program as it is. Does not wait unless --timeout says so.

    With --outputs, every file is compared with its digest, and files that are there already stay unless --force is
    given.
    """
    from tenure.cli.records import query

    rows = query(desk, "tasks", {"task_id": task_id}, 1)
    # A handler's reference has a colon and no space; whatever else ran was a program.
    as_text = bool(rows) and _HANDLER.fullmatch(str(rows[0].get("work", ""))) is None
    seconds = _seconds(timeout) or 0
    if not rows or rows[0]["state"] in _KNOWN_ENDS:
        seconds = max(seconds, _ANSWER_S)  # nothing to wait for but the coordinator's answer
    elif timeout is None:
        raise WaitTimedOut(f"task {task_id} has not ended yet", "Wait for it with --timeout, such as --timeout 1m")
    handle = desk.fleet.handle(task_id)
    if outputs is not None:
        _fetch(desk, handle, outputs, seconds, force=force)
    print_value(desk, handle, as_text=as_text, timeout=seconds)


def _fetch(desk: Desk, handle: Handle[Any], folder: Path, timeout: float, *, force: bool) -> None:
    """Bring a task's files home. Raises how it ended when it has no value, and `UnknownArtifact` when it left none."""
    from tenure.cli.transfer import transfer
    from tenure.protocol.sizes import size_text

    if handle.exception(timeout) is not None:
        return  # printing the value says how it ended
    bundle = handle.outputs
    if bundle is None:
        raise UnknownArtifact(f"task {handle.task_id} has left no files", "Programs write them into outputs/")
    contents = desk.fleet.contents
    contents.await_bundle(bundle, _ON_ITS_WAY_MS)
    with transfer("fetching", bundle.size) as moved:
        contents.download(bundle, folder, moved, force=force)
    count = "1 file" if bundle.files == 1 else f"{bundle.files} files"
    desk.remark(f"{count}, {size_text(bundle.size)}: {folder}")


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
        left = handle.outputs.model_dump(mode="json") if handle.outputs is not None else None
        desk.output.json({**end, "result": value, "outputs": left})
    elif as_text and isinstance(value, str):
        click.echo(value, nl=not value.endswith("\n"))
    else:
        desk.output.json(value)


def _row(handle: Handle[Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"task_id": handle.task_id, "state": str(handle.state), "attempt": handle.attempt}
    try:
        return {**row, "result": handle.result(0), "error": None}
    except (TaskError, ResultNotJson) as error:
        return {**row, "result": None, "error": error.message}


def _seconds(timeout: str | None) -> float | None:
    from tenure.protocol.durations import duration_ms

    return None if timeout is None else duration_ms(timeout, "--timeout") / 1000
