"""`tenure leases`: who holds or held the right to run which attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from tenure.cli.desk import with_desk
from tenure.cli.output import Column, moment
from tenure.cli.records import Listing, limit_option, print_list, task_id_argument

if TYPE_CHECKING:
    from tenure.cli.desk import Desk

LEASES: Final = Listing(
    what="leases",
    identity="task_id",
    columns=(
        Column("TASK", "task_id"),
        Column("FENCE", "fence", right=True),
        Column("ATTEMPT", "attempt", right=True),
        Column("STATE", "state"),
        Column("WORKER", "worker_id"),
        Column("CAUSE", "cause", spare=1),
        Column("OFFERED", "offered_at_ms", moment, spare=3),
        Column("ENDED", "ended_at_ms", moment, spare=2),
    ),
    empty="There are no leases.",
)
STATES: Final = ("OFFERED", "ACTIVE", "COMPLETED", "EXPIRED", "RELEASED")


@click.group()
def leases() -> None:
    """List and show leases."""


@leases.command("list")
@click.option("--state", type=click.Choice(STATES, case_sensitive=False), help="Only leases in this state.")
@click.option("--worker", "worker_id", metavar="ID", help="Only leases of this worker.")
@limit_option
@with_desk
def list_leases(desk: Desk, state: str | None, worker_id: str | None, limit: int) -> None:
    """List leases, newest first."""
    print_list(desk, LEASES, {"state": state, "worker_id": worker_id}, limit)


@leases.command("show")
@click.argument("task_id", type=task_id_argument)
@limit_option
@with_desk
def show_leases(desk: Desk, task_id: str, limit: int) -> None:
    """Show every lease that a task has had."""
    print_list(desk, LEASES, {"task_id": task_id}, limit)
