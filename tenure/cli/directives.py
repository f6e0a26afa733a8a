"""`tenure directives`: what follows a lost or failed attempt, and who allowed it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import click

from tenure.cli.desk import with_desk
from tenure.cli.output import Column, moment
from tenure.cli.records import Listing, limit_option, print_list, print_one, print_steps, query, task_id_argument
from tenure.errors import DirectiveDecided, UnknownDirective, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from tenure.cli.desk import Desk

DIRECTIVES: Final = Listing(
    what="directives",
    identity="directive_id",
    columns=(
        Column("DIRECTIVE", "directive_id"),
        Column("TASK", "task_id"),
        Column("ATTEMPT", "attempt", right=True, spare=2),
        Column("NEXT", "next_attempt", right=True, spare=4),
        Column("REASON", "reason"),
        Column("STATE", "state"),
        Column("DECIDED BY", "decided_by", spare=1),
        Column("CREATED", "created_at_ms", moment, spare=3),
    ),
    empty="There are no directives: nothing was lost and no failed attempt was repeated.",
)
STATES: Final = ("PENDING", "APPROVED", "DENIED")
_AT_ONCE: Final = 1_000


@click.group()
def directives() -> None:
    """List, show and decide directives."""


@directives.command("list")
@click.option("--state", type=click.Choice(STATES, case_sensitive=False), help="Only directives in this state.")
@click.option("--task", "task_id", metavar="TASK_ID", type=task_id_argument, help="Only directives about this task.")
@limit_option
@with_desk
def list_directives(desk: Desk, state: str | None, task_id: str | None, limit: int) -> None:
    """List directives, newest first."""
    print_list(desk, DIRECTIVES, {"state": state, "task_id": task_id}, limit)


@directives.command("show")
@click.argument("directive_id")
@with_desk
def show_directive(desk: Desk, directive_id: str) -> None:
    """Show one directive."""
    print_one(desk, DIRECTIVES, directive_id)


def _deciding(function: Callable[..., None]) -> Callable[..., None]:
    function = click.option("--note", default="", metavar="TEXT", help="Why; kept with the decision.")(function)
    function = click.option("--all", "everything", is_flag=True, help="Decide every pending directive.")(function)
    return click.argument("ids", nargs=-1, metavar="[DIRECTIVE_OR_TASK_ID]...")(function)


@directives.command("approve")
@_deciding
@with_desk
def approve(desk: Desk, ids: tuple[str, ...], note: str, *, everything: bool) -> None:
    """Allow another attempt of lost or failed tasks, by directive id or task id."""
    _decide(desk, ids, Decision(approve=True, note=note, everything=everything))


@directives.command("deny")
@_deciding
@with_desk
def deny(desk: Desk, ids: tuple[str, ...], note: str, *, everything: bool) -> None:
    """Refuse another attempt: the tasks end as they are."""
    _decide(desk, ids, Decision(approve=False, note=note, everything=everything))


@final
@dataclass(frozen=True, slots=True)
class Decision:
    """What is decided, why, and whether about everything that waits."""

    approve: bool
    note: str
    everything: bool


def _decide(desk: Desk, ids: Sequence[str], decision: Decision) -> None:
    if decision.everything == bool(ids):
        raise UsageError("say which directives", "Give directive ids or task ids, or --all for every pending one")
    rows: list[dict[str, Any]] = []
    portions = _pending(desk, rows) if decision.everything else iter([_named(desk, ids)])
    for some in portions:
        rows.extend(_decide_some(desk, some, decision))
    print_steps(desk, rows, nothing="No directive waits for a decision.")


def _pending(desk: Desk, decided: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Pending directives, portion by portion, since a long list does not fit into one answer."""
    while True:
        known = {row.get("directive_id") for row in decided}
        found = [row["directive_id"] for row in query(desk, "directives", {"state": "PENDING"}, _AT_ONCE)]
        fresh = tuple(directive_id for directive_id in found if directive_id not in known)
        if not fresh:
            return
        yield fresh


def _named(desk: Desk, ids: Sequence[str]) -> tuple[str, ...]:
    """Directives in place of tasks: the one that waits.

    A request may be repeated, after a restart too, and by then another attempt of the task may wait for a decision.

    Raises:
        UnknownDirective: one of them is neither a directive nor a task that has one; nothing was decided.
        DirectiveDecided: one of them is a task none of whose directives waits; nothing was decided.
    """
    return tuple(_directive_of(desk, wanted) for wanted in ids)


def _directive_of(desk: Desk, wanted: str) -> str:
    of_task = {"task_id": wanted}
    for where in ({"directive_id": wanted}, of_task | {"state": "PENDING"}):
        found = query(desk, "directives", where, 1)
        if found:
            return str(found[0]["directive_id"])
    decided = query(desk, "directives", of_task, 1)
    if not decided:
        raise UnknownDirective(f"no directive or task {wanted} waits for a decision", "See `tenure directives list`")
    newest = f"{decided[0]['directive_id']} is {decided[0]['state']} already"
    raise DirectiveDecided(
        f"no directive of task {wanted} waits for a decision: {newest}",
        "A decision is never changed, and one about an attempt that is not lost yet cannot be made",
    )


def _decide_some(desk: Desk, ids: tuple[str, ...], decision: Decision) -> Sequence[dict[str, Any]]:
    from tenure.protocol.client_messages import Decide

    return desk.ask(Decide(directives=ids, approve=decision.approve, note=decision.note)).rows
