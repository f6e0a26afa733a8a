"""`tenure quarantine`: results that were rejected, kept as evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from tenure.cli.desk import with_desk
from tenure.cli.output import Column, moment
from tenure.cli.records import Listing, limit_option, print_list, print_one, task_id_argument

if TYPE_CHECKING:
    from tenure.cli.desk import Desk

QUARANTINE: Final = Listing(
    what="quarantine",
    identity="quarantine_id",
    columns=(
        Column("QUARANTINE", "quarantine_id"),
        Column("TASK", "task_id"),
        Column("ATTEMPT", "attempt", right=True),
        Column("FENCE", "fence", right=True),
        Column("WORKER", "worker_id"),
        Column("REASON", "reason"),
        Column("RECEIVED", "received_at_ms", moment),
    ),
    empty="No result has been rejected.",
)


@click.group()
def quarantine() -> None:
    """List and show rejected results."""


@quarantine.command("list")
@click.option("--task", "task_id", type=task_id_argument, help="Only results of this task.")
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
    """Show one rejected result with what it held."""
    print_one(desk, QUARANTINE, quarantine_id)
