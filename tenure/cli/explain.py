"""`tenure explain`: everything on record about one task, as a story in order.

The sentences are the coordinator's: it knows why a task waits, who held which attempt under which fence, what was
decided and why, and what can be done next. Here they only get their times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tenure.cli.desk import with_desk
from tenure.cli.output import moment, time_of_day
from tenure.cli.records import task_id_argument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.cli.desk import Desk
    from tenure.cli.output import Output

_INDENT = " " * 12


@click.command()
@click.argument("task_id", type=task_id_argument)
@with_desk
def explain(desk: Desk, task_id: str) -> None:
    """Tell a task's story: why it waits, who held it, what was decided and why."""
    from tenure.protocol.client_messages import Explain

    rows = desk.ask(Explain(task_id=task_id)).rows
    if desk.output.as_json:
        desk.output.json({"task_id": task_id, "story": list(rows)})
        return
    print_story(desk.output, task_id, rows)


def print_story(output: Output, task_id: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print the rows of an explanation; those without a time are about now."""
    first = next((row["at_ms"] for row in rows if row.get("at_ms")), None)
    output.say(f"Task {task_id}" + (f", {moment(first)}" if first else ""), bold=True)
    for row in rows:
        at_ms = row.get("at_ms")
        lead = f"{time_of_day(at_ms)}  " if at_ms else _INDENT
        output.say(lead + str(row.get("text", "")), colour="" if at_ms else "cyan")
