"""The root group's help: commands under headings, in the order in which one needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import click

if TYPE_CHECKING:
    from collections.abc import Iterator


@final
class Sections(click.Group):
    """A group whose commands are listed by section."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - click's own arguments, passed through
        super().__init__(*args, **kwargs)
        self._sections: dict[str, tuple[click.Command, ...]] = {}

    def section(self, heading: str, *commands: click.Command) -> None:
        """Add commands under a heading."""
        self._sections[heading] = commands
        for command in commands:
            self.add_command(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's own
        """Write the sections."""
        for heading, commands in self._sections.items():
            with formatter.section(heading):
                formatter.write_dl(list(_lines(commands)))


def _lines(commands: tuple[click.Command, ...]) -> Iterator[tuple[str, str]]:
    width = max(len(command.name or "") for command in commands)
    for command in commands:
        yield (command.name or "").ljust(width), command.get_short_help_str(limit=70)
