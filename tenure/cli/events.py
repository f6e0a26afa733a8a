"""`tenure events`: what was decided, by whom and why, and whether the record of it is as it was written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from tenure.cli import event_log
from tenure.cli.arguments import LocalPath
from tenure.cli.desk import with_desk
from tenure.cli.drafts import whole_file
from tenure.cli.output import Column, counted, moment
from tenure.cli.records import limit_option, remark_end
from tenure.errors import FleetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tenure.cli.desk import Desk
    from tenure.protocol.chain import Anchor, Checker

COLUMNS: Final = (
    Column("EVENT", "event_id", right=True),
    Column("TIME", "at_ms", moment),
    Column("KIND", "kind"),
    Column("PRINCIPAL", "principal"),
    Column("SITE", "site", spare=5),
    Column("TASK", "task_id"),
    Column("WORKER", "worker_id", spare=4),
    Column("BEFORE", "before", spare=3),
    Column("AFTER", "after", spare=2),
    Column("REASON", "reason", spare=1),
    Column("TEXT", "text"),
)
_FILE: Final = LocalPath(path_type=Path, dir_okay=False)


@click.group()
def events() -> None:
    """List, export and verify the log of every decision."""


@events.command("list")
@event_log.filter_options
@limit_option
@with_desk
def list_events(desk: Desk, /, limit: int, **given: Any) -> None:  # noqa: ANN401 - the filter's own options
    """List what was decided, newest first."""
    rows = event_log.newest(desk, event_log.wanted(desk, given), limit)
    desk.output.table(COLUMNS, rows, empty="There are no such events.")
    remark_end(desk, rows, limit)


@events.command("export")
@event_log.filter_options
@click.option("--out", type=_FILE, metavar="FILE", help="Where to write, instead of the standard output.")
@with_desk
def export(desk: Desk, /, out: Path | None, **given: Any) -> None:  # noqa: ANN401 - the filter's own options
    """Write events in order, one JSON object per line.

    Without a filter the seals are among them, so that `tenure events verify --file` can check the export anywhere.
    """
    lines = event_log.lines(desk, event_log.wanted(desk, given))
    if out is None:
        for line in lines:
            click.echo(_text(line))
        return
    try:
        with whole_file(out) as file:
            count = sum(_write(file, line) for line in lines)
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}") from None
    verb = "is" if count == 1 else "are"
    desk.output.answer({"file": str(out), "events": count}, f"{counted(count, 'event')} {verb} in {out}.")


@events.command("verify")
@click.option("--file", "export_file", type=_FILE, metavar="FILE", help="Check an export instead of the fleet's log.")
@click.option("--database", type=_FILE, metavar="FILE", help="Check a database file, without a coordinator.")
@click.option("--anchor", "anchor_file", type=_FILE, metavar="FILE", help="Anchors that the log must still hold.")
@with_desk
def verify(desk: Desk, export_file: Path | None, database: Path | None, anchor_file: Path | None) -> int:
    """Check every event against its seal; the exit code is 1 when anything was changed, removed or added."""
    if export_file is not None and database is not None:
        raise UsageError("say which log", "Give --file or --database, not both")
    known = event_log.anchors(anchor_file) if anchor_file is not None else []
    checker = _checked(_source(desk, export_file, database), known)
    if export_file is not None and checker.holds_events_alone:
        raise UsageError(
            f"{export_file} cannot be checked: it has events and no seals, like an export with a filter",
            "Export the whole log, without a filter",
        )
    findings = checker.findings()
    record = checker.checked.record()
    record["findings"] = [{"kind": finding.kind, "text": finding.text} for finding in findings]
    if desk.output.as_json:
        desk.output.json(record)
        return int(bool(findings))
    for finding in findings:
        desk.output.say(f"{finding.kind}: {finding.text}", colour="red")
    verb = "was" if record["events"] == 1 else "were"
    text = f"{counted(record['events'], 'event')} under {counted(record['seals'], 'seal')} {verb} checked"
    text += f", and {record['anchors']} of {counted(len(known), 'anchor')} met" if known else ""
    verdict = "all are as they were written" if not findings else counted(len(findings), "finding")
    desk.output.say(f"{text}: {verdict}.", colour="red" if findings else "green")
    if not known and not findings:
        desk.remark(
            "Without --anchor nobody can tell whether the end of the log is there, or a whole log was made anew."
        )
    return int(bool(findings))


@events.command("anchor")
@click.option("--append", "anchor_file", type=_FILE, metavar="FILE", help="Add it to this file of anchors.")
@with_desk
def anchor(desk: Desk, anchor_file: Path | None) -> None:
    """Check the log and print its newest seal, to be kept where nobody who can change the log can change it."""
    known = event_log.anchors(anchor_file) if anchor_file is not None and anchor_file.exists() else []
    checker = _checked(_source(desk, None, None), known)
    found, findings = checker.anchor(), checker.findings()
    if findings or found is None:
        what = findings[0].text if findings else "there is no seal yet"
        raise FleetError(f"the log cannot be vouched for: {what}", "See `tenure events verify`")
    text = found.model_dump_json()
    if anchor_file is None:
        click.echo(text)
        return
    try:
        with anchor_file.open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")
    except OSError as error:
        raise UsageError(f"{anchor_file} cannot be written: {error.strerror}") from None
    told = found.model_dump() | {"file": str(anchor_file)}
    desk.output.answer(
        told, f"Seal {found.seal_id}, which ends with event {found.last_event}, was added to {anchor_file}."
    )


def _source(desk: Desk, export_file: Path | None, database: Path | None) -> Iterator[dict[str, Any]]:
    from tenure.protocol.audit_messages import EventFilter

    if export_file is not None:
        return event_log.file_lines(export_file)
    if database is not None:
        from tenure.coordinator.store.event_file import lines

        return lines(database)
    return event_log.lines(desk, EventFilter())


def _checked(lines: Iterator[dict[str, Any]], known: list[Anchor]) -> Checker:
    from tenure.protocol.chain import Checker

    checker = Checker(known)
    for line in lines:
        checker.feed(line)
    return checker


def _text(line: dict[str, Any]) -> str:
    return json.dumps(line, ensure_ascii=True, separators=(",", ":"))


def _write(file: TextIO, line: dict[str, Any]) -> bool:
    file.write(_text(line) + "\n")
    return "event" in line
