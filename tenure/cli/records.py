"""Reading the coordinator's records: what the lists of tasks, workers, leases, directives and quarantine share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import click

from tenure.cli.output import moment, plain
from tenure.errors import (
    TenureError,
    UnknownCampaign,
    UnknownDirective,
    UnknownPrincipal,
    UnknownTask,
    UnknownWorker,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tenure.cli.desk import Desk
    from tenure.cli.output import Column
    from tenure.protocol.client_messages import Ask, Listed

_TASK_ID: Final = re.compile(r"[0-9A-Z]{26}")


@final
@dataclass(frozen=True, slots=True)
class Listing:
    """One kind of record: its name in queries, the column that identifies a row, and how a list of it looks."""

    what: Listed
    identity: str
    columns: Sequence[Column]
    empty: str


def is_task_id(text: str) -> bool:
    """Whether a text has the form of a task's id."""
    return _TASK_ID.fullmatch(text) is not None


def task_id_argument(text: str) -> str:
    """A task id given on the command line; small letters are forgiven. Raises `UsageError`."""
    if not is_task_id(text.upper()):
        raise UsageError(
            f"{text!r} is not a task id", "A task id has 26 capital letters and digits; see `tenure tasks list`"
        )
    return text.upper()


limit_option: Final = click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    metavar="N",
    default=100,
    show_default=True,
    help="How many at most, newest first.",
)


def query(
    desk: Desk, what: Listed, where: Mapping[str, str | None] | None = None, limit: int = 100
) -> list[dict[str, Any]]:
    """Rows of one list, newest first, filtered by exact values; a filter of None is none."""
    from tenure.protocol.client_messages import Query

    filters = tuple((name, value) for name, value in (where or {}).items() if value is not None)
    return list(desk.ask(Query(what=what, where=filters, limit=limit)).rows)


def print_list(desk: Desk, listing: Listing, where: Mapping[str, str | None], limit: int) -> None:
    """Print a list."""
    rows = query(desk, listing.what, where, limit)
    desk.output.table(listing.columns, rows, empty=listing.empty)
    remark_end(desk, rows, limit)


def remark_end(desk: Desk, rows: Sequence[object], limit: int) -> None:
    """Say that a list may go on where it stops at the limit, so that nobody takes it for all there is."""
    if len(rows) == limit:
        desk.remark(f"The list stops after {limit}; ask for more with --limit.")


def one_row(desk: Desk, listing: Listing, identity: str) -> dict[str, Any]:
    """One record. Raises an error of the record's kind when there is none."""
    rows = query(desk, listing.what, {listing.identity: identity}, 1)
    if not rows:
        raise _unknown(listing.what, identity)
    return rows[0]


def print_one(desk: Desk, listing: Listing, identity: str) -> None:
    """Print all that is known about one record. Raises as `one_row` does."""
    print_row(desk, one_row(desk, listing, identity))


def print_row(desk: Desk, row: Mapping[str, Any]) -> None:
    """Print all fields of a record, one per line."""
    if desk.output.as_json:
        desk.output.json(row)
        return
    width = max(len(name) for name in row)
    for name, value in row.items():
        desk.output.say(f"{name.ljust(width)}  {_written(name, value)}")


def print_steps(desk: Desk, rows: Sequence[Mapping[str, Any]], *, nothing: str) -> None:
    """Print what the coordinator did, one line per step; it says `text` where words are needed."""
    if desk.output.as_json:
        desk.output.json(list(rows))
        return
    if not rows:
        desk.output.say(nothing)
    for row in rows:
        desk.output.say(str(row.get("text") or "  ".join(f"{name}={plain(value)}" for name, value in row.items())))


def ask_and_print(desk: Desk, ask: Ask, *, nothing: str = "Nothing was to be done.") -> None:
    """Ask for a step and print what was done."""
    print_steps(desk, desk.ask(ask).rows, nothing=nothing)


def pairs(options: Sequence[str], name: str) -> tuple[tuple[str, str], ...]:
    """Options of the form key=value, as pairs. Raises `UsageError`."""
    found: list[tuple[str, str]] = []
    for text in options:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"{name} {text!r} is not of the form key=value")
        found.append((key, value))
    return tuple(found)


def amounts(options: Sequence[str], name: str) -> tuple[tuple[str, int], ...]:
    """Options of the form key=number, as pairs. Raises `UsageError`."""
    found: list[tuple[str, int]] = []
    for key, value in pairs(options, name):
        if not value.isascii() or not value.isdigit() or int(value) < 1:
            raise UsageError(f"{name} {key}={value} needs a whole number from 1")
        found.append((key, int(value)))
    return tuple(found)


def _unknown(what: Listed, identity: str) -> TenureError:
    kinds: dict[str, Callable[[str, str], TenureError]] = {
        "tasks": UnknownTask,
        "workers": UnknownWorker,
        "directives": UnknownDirective,
        "sites": UnknownPrincipal,
        "campaigns": UnknownCampaign,
        "clients": UnknownPrincipal,
    }
    return kinds.get(what, UsageError)(
        f"there is no record of {identity}", f"List what there is with `tenure {what} list`"
    )


def _written(name: str, value: object) -> str:
    if value is None or value == "":
        return "-"
    if name.endswith(("_at_ms", "_until_ms")) and isinstance(value, int):
        return moment(value)
    if name == "progress" and isinstance(value, float):
        return f"{value * 100:.1f} %"
    return plain(value)
