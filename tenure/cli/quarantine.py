"""`tenure quarantine`: results that were rejected, kept as evidence, and what people decide about them."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from tenure.cli.desk import with_desk
from tenure.cli.output import Column, moment
from tenure.cli.records import (
    Listing,
    limit_option,
    one_row,
    print_list,
    print_row,
    print_steps,
    task_id_argument,
)
from tenure.errors import FleetError, NotAdoptable, TenureError, UsageError
from tenure.protocol.sizes import size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tenure.cli.desk import Desk
    from tenure.protocol.artifact import Bundle

QUARANTINE: Final = Listing(
    what="quarantine",
    identity="quarantine_id",
    columns=(
        Column("QUARANTINE", "quarantine_id"),
        Column("TASK", "task_id"),
        Column("ATTEMPT", "attempt", right=True, spare=4),
        Column("FENCE", "fence", right=True, spare=6),
        Column("WORKER", "worker_id", spare=3),
        Column("REASON", "reason"),
        Column("FILES", "outputs", lambda outputs: str(_bundle(outputs).files), right=True, spare=1),
        Column("SIZE", "outputs", lambda outputs: size_text(_bundle(outputs).size), right=True, spare=2),
        Column("STATE", "state"),
        Column("RECEIVED", "received_at_ms", moment, spare=5),
    ),
    empty="No result has been rejected.",
)
_DECISION_MS: Final = 3_600_000
_LOOK_MS: Final = 200


@click.group()
def quarantine() -> None:
    """List and show rejected results, and decide about them."""


@quarantine.command("list")
@click.option("--task", "task_id", metavar="TASK_ID", type=task_id_argument, help="Only results of this task.")
@click.option("--reason", metavar="REASON", help="Only results rejected for this reason, such as stale_fence.")
@limit_option
@with_desk
def list_quarantine(desk: Desk, task_id: str | None, reason: str | None, limit: int) -> None:
    """List rejected results, newest first."""
    print_list(desk, QUARANTINE, {"task_id": task_id, "reason": reason}, limit)


@quarantine.command("show")
@click.argument("quarantine_id")
@with_desk
def show_quarantine(desk: Desk, quarantine_id: str) -> None:
    """Show one rejected result with what it held, and the files that it would bring in."""
    row = one_row(desk, QUARANTINE, quarantine_id)
    files = _staged_files(desk, row) if row.get("outputs") else []
    print_row(desk, row if files is None else {**row, "files": files})
    if desk.output.as_json or not row.get("outputs"):
        return
    if files is None:
        desk.remark("Its files are not in the staging place any more.")
        return
    desk.output.say("")
    desk.output.table((Column("SIZE", "size", size_text, right=True), Column("FILE", "path")), files, empty="")


def _deciding(function: Callable[..., None]) -> Callable[..., None]:
    function = click.option("--yes", is_flag=True, help="Do not ask; needed where nobody can be asked.")(function)
    function = click.option("--note", default="", metavar="TEXT", help="Why; kept with the decision.")(function)
    return click.argument("quarantine_id")(function)


@quarantine.command("adopt")
@_deciding
@with_desk
def adopt(desk: Desk, quarantine_id: str, note: str, *, yes: bool) -> None:
    """Accept a rejected result after all, under a new fence, while its task waits and nobody else works on it."""
    from tenure.protocol.client_messages import Adopt

    _require_somebody(yes=yes)
    row = one_row(desk, QUARANTINE, quarantine_id)
    _ask_first(f"Let this result be the end of task {row['task_id']}?", yes=yes)
    desk.ask(Adopt(quarantine_id=quarantine_id, note=note))
    decided = _decided(desk, quarantine_id)
    desk.output.answer(
        decided,
        f"Task {decided['task_id']} has SUCCEEDED by this result, under fence {decided.get('adopted_fence')}. "
        f"Decided by {decided.get('decided_by')}.",
    )


@quarantine.command("drop")
@_deciding
@with_desk
def drop(desk: Desk, quarantine_id: str, note: str, *, yes: bool) -> None:
    """Decide that a rejected result is not wanted: its files go, the record of it stays."""
    from tenure.protocol.client_messages import Drop

    _require_somebody(yes=yes)
    row = one_row(desk, QUARANTINE, quarantine_id)
    _ask_first(f"Remove the files of this result of task {row['task_id']}?", yes=yes)
    print_steps(desk, desk.ask(Drop(quarantine_id=quarantine_id, note=note)).rows, nothing="It is dropped.")


def _require_somebody(*, yes: bool) -> None:
    """See that the decision is somebody's: said on the command line, or asked of a person at a terminal."""
    if not yes and not sys.stdin.isatty():
        raise UsageError(
            "there is no terminal to ask you at whether you are sure", "To decide without being asked, give --yes"
        )


def _ask_first(question: str, *, yes: bool) -> None:
    if not yes:
        click.confirm(question, abort=True, err=True)


def _decided(desk: Desk, quarantine_id: str) -> dict[str, Any]:
    """Wait until its files were verified and the decision is on record. Raises `NotAdoptable` when it is refused."""
    clock = desk.session.clock
    until_ms = clock.elapsed_ms() + _DECISION_MS
    while (row := one_row(desk, QUARANTINE, quarantine_id)).get("state") == "VERIFYING":
        if clock.elapsed_ms() > until_ms:
            raise FleetError(
                "its files have not been verified within an hour", "The decision goes on; look again later"
            )
        clock.sleep_ms(_LOOK_MS)
    if row.get("state") != "ADOPTED":
        why = row.get("refusal") or f"it is {row.get('state')}"
        raise NotAdoptable(f"{quarantine_id} was not adopted: {why}", f"See `tenure explain {row['task_id']}`")
    return row


def _staged_files(desk: Desk, row: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The files in the staging place; None when they are not there, or the store is not."""
    from tenure.artifacts.base import Place

    place = Place(row["site"], row["task_id"], row["fence"], row["nonce"])
    try:
        files = desk.fleet.contents.staged_files(place, _bundle(row["outputs"]))
    except TenureError:
        return None
    return [{"path": file.path, "size": file.blob.size, "digest": file.blob.digest} for file in files]


def _bundle(outputs: object) -> Bundle:
    from tenure.protocol.artifact import Bundle

    return Bundle.model_validate_json(outputs if isinstance(outputs, str) else json.dumps(outputs))
