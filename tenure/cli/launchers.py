"""`tenure launchers`: which launchers there are, where they come from, and whether what they need is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from tenure.cli.desk import with_desk
from tenure.cli.output import Column

if TYPE_CHECKING:
    from tenure.cli.desk import Desk

_COLUMNS: Final = (
    Column("launcher", "name"),
    Column("from", "origin"),
    Column("ready", "ready", write=lambda ready: "yes" if ready else "no"),
    Column("what it needs", "needs"),
)


@click.command(short_help="List the launchers that can be used here.")
@with_desk
def launchers(desk: Desk, /) -> None:
    """List the launchers for `tenure worker --launcher NAME`. A launcher that is not ready says what to install."""
    from tenure.launchers.catalog import known_launchers

    rows = [
        {"name": each.name, "origin": each.origin, "ready": each.ready, "needs": "" if each.ready else each.remedy}
        for each in known_launchers()
    ]
    desk.output.table(_COLUMNS, rows, empty="There are no launchers.")
