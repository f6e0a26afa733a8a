"""`tenure artifacts`: the files that tasks have left, in the store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tenure.cli.arguments import LocalPath
from tenure.cli.desk import with_desk
from tenure.cli.output import Column, moment
from tenure.cli.records import Listing, limit_option, print_list, query, task_id_argument
from tenure.errors import ArtifactStoreUnreachable, FleetError
from tenure.protocol.sizes import size_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tenure.cli.desk import Desk

KINDS: Final = ("outputs", "checkpoint", "log")
_COLLECTION_MS: Final = 3_600_000
_LOOK_MS: Final = 200
ARTIFACTS: Final = Listing(
    what="artifacts",
    identity="manifest",
    columns=(
        Column("TASK", "task_id"),
        Column("KIND", "kind"),
        Column("NAME", "name"),
        Column("ATTEMPT", "attempt", right=True, spare=3),
        Column("FENCE", "fence", right=True, spare=5),
        Column("FILES", "files", right=True, spare=2),
        Column("SIZE", "size", size_text, right=True),
        Column("STATE", "state"),
        Column("DIGEST", "manifest", lambda digest: str(digest)[:12], spare=1),
        Column("RECORDED", "recorded_at_ms", moment, spare=4),
    ),
    empty="No task has left files.",
)


@click.group()
def artifacts() -> None:
    """List, fetch, verify and collect the files that tasks have left."""


@artifacts.command("list")
@click.option("--task", "task_id", metavar="TASK_ID", type=task_id_argument, help="Only files of this task.")
@click.option("--kind", type=click.Choice(KINDS), help="Only files of this kind.")
@limit_option
@with_desk
def list_artifacts(desk: Desk, task_id: str | None, kind: str | None, limit: int) -> None:
    """List what tasks have left, newest first."""
    print_list(desk, ARTIFACTS, {"task_id": task_id, "kind": kind}, limit)


@artifacts.command("get")
@click.argument("what", metavar="TASK[:KIND][/PATH]|DIGEST")
@click.option("--to", "target", type=LocalPath(path_type=Path), metavar="PATH", help="The file or folder to make.")
@click.option("--force", is_flag=True, help="Replace files that are there already.")
@with_desk
def get(desk: Desk, what: str, target: Path | None, *, force: bool) -> None:
    """Fetch a task's files into a folder, or one file or log into a file or to standard output.

    \b
    tenure artifacts get TASK --to results
    tenure artifacts get TASK/model/weights.bin --to weights.bin
    tenure artifacts get TASK:log

    KIND is outputs (when not given), checkpoint or log. Every file is compared with its digest. A log goes to standard
    output as the task printed it, and into a file as it is kept: one JSON array per line, of stream, position and text.
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    from tenure.cli.artifact_contents import fetch, found

    fetch(desk, found(desk, what), target, force=force)


@artifacts.command("verify")
@click.argument("task_id", required=False, type=task_id_argument, metavar="[TASK]")
@with_desk
def verify(desk: Desk, task_id: str | None) -> int:
    """Read everything in the store, or all of one task's, and compare digests. Exits with 1 when something is wrong."""
    from tenure.cli.artifact_audit import audit

    return audit(desk, task_id)


@artifacts.command("gc")
@click.option(
    "--older-than", default="1d", show_default=True, metavar="DURATION", help="Leave alone what is younger than that."
)
@click.option("--dry-run", is_flag=True, help="Only count.")
@with_desk
def collect_garbage(desk: Desk, older_than: str, *, dry_run: bool) -> None:
    """Remove from the store what no record names: unused uploads, older checkpoints, what a crash has left."""
    from tenure.protocol.client_messages import CollectArtifacts
    from tenure.protocol.durations import duration_ms

    before = _last_collection(desk).get("collection_id")
    wanted = CollectArtifacts(min_age_ms=duration_ms(older_than, "--older-than"), dry_run=dry_run)
    states = {row.get("state") for row in desk.ask(wanted).rows}
    if "NO_STORE" in states:
        raise ArtifactStoreUnreachable("the coordinator keeps no files", "Start it with --artifacts ADDRESS")
    if "UNDER_WAY" in states:
        raise FleetError("a collection is under way already", "Ask again when it has ended")
    clock = desk.session.clock
    until_ms = clock.elapsed_ms() + _COLLECTION_MS
    while True:
        last = _last_collection(desk)
        if last.get("collection_id") != before and last.get("ended_at_ms") is not None:
            break
        if clock.elapsed_ms() > until_ms:
            raise FleetError("the collection has not ended within an hour", "It goes on; see `tenure doctor`")
        clock.sleep_ms(_LOOK_MS)
    if last.get("problem"):
        raise FleetError(f"the collection ended early: {last['problem']}", "Repeat it when that is mended")
    verb = "would be removed" if dry_run else "were removed"
    what = "content or staging place" if last["removed"] == 1 else "contents and staging places"
    desk.output.answer(dict(last), f"{last['removed']} {what}, {size_text(int(last['size']))} of contents, {verb}.")


def _last_collection(desk: Desk) -> Mapping[str, Any]:
    rows = query(desk, "status")
    known: Mapping[str, Any] = (rows[0].get("artifacts") if rows else None) or {}
    return known.get("collection") or {}
