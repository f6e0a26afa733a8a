"""`tenure tasks`: the tasks on record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from tenure.cli.desk import with_desk
from tenure.cli.output import Column, moment
from tenure.cli.records import Listing, limit_option, print_list, print_one, task_id_argument

if TYPE_CHECKING:
    from tenure.cli.desk import Desk

TASKS: Final = Listing(
    what="tasks",
    identity="task_id",
    columns=(
        Column("TASK", "task_id"),
        Column("STATE", "state"),
        Column("ATTEMPT", "attempt", right=True),
        Column("CAPABILITY", "capability", spare=3),
        Column("WORK", "work"),
        Column("RUN", "run", spare=2),
        Column("CAMPAIGN", "campaign", spare=4),
        Column("SUBMITTED", "submitted_at_ms", moment, spare=1),
    ),
    empty="There are no tasks.",
)
STATES: Final = (
    *("QUEUED", "OFFERED", "RUNNING", "CANCELLING", "LOST"),
    *("SUCCEEDED", "FAILED", "CANCELLED", "ABANDONED"),
)


@click.group()
def tasks() -> None:
    """List and show tasks."""


@tasks.command("list")
@click.option("--state", type=click.Choice(STATES, case_sensitive=False), help="Only tasks in this state.")
@click.option("--capability", metavar="NAME", help="Only tasks of this capability.")
@click.option("--run", metavar="NAME", help="Only tasks of this run.")
@click.option("--campaign", metavar="NAME", help="Only tasks that count against this campaign.")
@limit_option
@with_desk
def list_tasks(desk: Desk, /, limit: int, **where: str | None) -> None:
    """List tasks, newest first."""
    print_list(desk, TASKS, where, limit)


@tasks.command("show")
@click.argument("task_id", type=task_id_argument)
@with_desk
def show_task(desk: Desk, task_id: str) -> None:
    """Show all that is known about a task. See also `tenure explain`."""
    print_one(desk, TASKS, task_id)
