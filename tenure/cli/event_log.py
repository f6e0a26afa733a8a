"""Where `tenure events` reads the log: from the fleet page by page, from an export, or from a database file."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, cast

import click

from tenure.errors import UsageError
from tenure.protocol.durations import duration_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tenure.cli.desk import Desk
    from tenure.protocol.audit_messages import EventFilter
    from tenure.protocol.chain import Anchor

    Command = Callable[..., None]

Line = dict[str, Any]

_PRINCIPAL: Final = re.compile(r"coordinator|unrecorded|(?:person|site|policy):.+")


def filter_options(function: Command) -> Command:
    """Give a command the options that say which events; they arrive as `EventFilter` takes them, times as given."""
    options = (
        click.option("--task", "task_id", metavar="TASK_ID", help="Only what was decided about this task."),
        click.option("--worker", "worker_id", metavar="ID", help="Only what concerns this worker."),
        click.option("--site", metavar="NAME", help="Only what concerns this site."),
        click.option("--principal", metavar="WHO", help="Only decisions of this principal, such as person:ada."),
        click.option("--kind", metavar="KIND", help="Only events of this kind."),
        click.option("--since", metavar="WHEN", help="Only from then on: 2h, 2026-11-30, 2026-11-30T08:00+01:00."),
        click.option("--until", metavar="WHEN", help="Only before then."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def wanted(desk: Desk, given: dict[str, Any]) -> EventFilter:
    """The filter that options describe. Raises `UsageError`."""
    from tenure.cli.desk import collect
    from tenure.cli.records import task_id_argument
    from tenure.protocol.audit_messages import EventFilter

    now_ms = desk.session.clock.now_ms()
    given = dict(given)
    given["since_ms"] = _moment_ms(given.pop("since"), now_ms, "--since")
    given["until_ms"] = _moment_ms(given.pop("until"), now_ms, "--until")
    _require_kind(given["kind"])
    _require_principal(given["principal"])
    if given["task_id"] is not None:
        given["task_id"] = task_id_argument(given["task_id"])
    return collect(EventFilter, given)


def newest(desk: Desk, only: EventFilter, limit: int) -> list[dict[str, Any]]:
    """The newest events that fit, newest first."""
    events: list[dict[str, Any]] = []
    for line in _pages(desk, only, limit, newest_first=True):
        events.append(line["event"])
        if len(events) == limit:
            break
    return events


def lines(desk: Desk, only: EventFilter) -> Iterator[Line]:
    """The log in order; with its seals where nothing is left out."""
    return _pages(desk, only, 10_000, newest_first=False)


def file_lines(path: Path) -> Iterator[Line]:
    """An export, line by line. Raises `UsageError` for what is none."""
    try:
        with path.open(encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                yield _parsed(path, number, text)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} holds no events", "Make it with `tenure events export`") from None


def anchors(path: Path) -> list[Anchor]:
    """Anchors, one per line. Raises `UsageError`."""
    from tenure.errors import MalformedMessage
    from tenure.protocol.chain import ANCHOR
    from tenure.protocol.message import decode

    try:
        return [decode(ANCHOR, raw) for raw in path.read_bytes().splitlines() if raw.strip()]
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except MalformedMessage as error:
        raise UsageError(f"{path} holds no anchors: {error.message}", "Make one with `tenure events anchor`") from None


def _pages(desk: Desk, only: EventFilter, limit: int, *, newest_first: bool) -> Iterator[Line]:
    from tenure.protocol.audit_messages import EventFilter, Page, ReadEvents

    whole = only == EventFilter() and not newest_first
    beyond: int | None = 0
    while beyond is not None:
        ask = ReadEvents(beyond=beyond, newest_first=newest_first, seals=whole, only=only, limit=min(limit, 2_000))
        rows = desk.ask(ask).rows
        page = Page.model_validate(rows[0])
        if whole and beyond == 0:
            yield {"chain": {"format": 1, "world": page.world, "created_at_ms": page.created_at_ms}}
        yield from rows[1:]
        beyond = page.beyond


def _parsed(path: Path, number: int, text: str) -> Line:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        line = None
    if not isinstance(line, dict):
        raise UsageError(f"line {number} of {path} is no line of an export", "Make one with `tenure events export`")
    return cast("Line", line)


def _require_kind(kind: str | None) -> None:
    """See that there can be such events: a word that is misspelt would find none, and say that all is well."""
    from difflib import get_close_matches

    from tenure.protocol.audit_messages import KINDS

    if kind is None or kind in KINDS:
        return
    meant = get_close_matches(kind, KINDS, n=1)
    remedy = f"Did you mean {meant[0]}?" if meant else f"There are {', '.join(sorted(KINDS))}"
    raise UsageError(f"--kind {kind!r} is no kind of event", remedy)


def _require_principal(principal: str | None) -> None:
    if principal is not None and _PRINCIPAL.fullmatch(principal) is None:
        raise UsageError(
            f"--principal {principal!r} is no principal", f"Write it like person:{principal}, site:lab or coordinator"
        )


def _moment_ms(text: str | None, now_ms: int, option: str) -> int | None:
    """A time of day, with this host's offset where none is given, or how long ago. Raises `UsageError`."""
    if text is None:
        return None
    try:
        return max(0, int(datetime.fromisoformat(text).astimezone().timestamp() * 1000))
    except (ValueError, OverflowError):
        pass
    try:
        return max(0, now_ms - duration_ms(text))
    except UsageError:
        raise UsageError(
            f"{option} is no time: {text[:40]!r}",
            "Write how long ago, like 90m or 2h, or a date, like 2026-11-30 or 2026-11-30T08:00",
        ) from None
