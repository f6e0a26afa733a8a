"""What commands print: tables on a terminal, aligned plain text in a pipe, JSON when asked for.

Results go to standard output and nothing else does; progress and remarks go to standard error. In a pipe there are no
colours and no box drawing, so that `cut`, `awk` and `grep` work; programs that want structure ask for `--json`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO, final

import click

from tenure.cli.widths import fit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_GAP: Final = "  "
_CONTROLS: Final = MappingProxyType(
    {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}
    | {0xDC00 + byte: f"\\x{byte:02x}" for byte in range(128, 256)}  # bytes of a file's name that are not UTF-8
)
_COLOURS: Final = (
    ({"SUCCEEDED", "COMPLETED", "ACTIVE", "APPROVED", "ok"}, "green"),
    ({"FAILED", "ABANDONED", "EXPIRED", "DENIED", "bad"}, "red"),
    ({"LOST", "STALE", "PENDING", "CANCELLING", "warn"}, "yellow"),
    ({"RUNNING", "OFFERED"}, "cyan"),
)


@final
@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: its heading, the field it shows, and how the value is written.

    Where a terminal is too narrow for all of them, the column with the highest `spare` is left out first; 0: never.
    """

    heading: str
    field: str
    write: Callable[[Any], str] | None = None
    right: bool = False
    spare: int = 0

    def text(self, row: Mapping[str, Any]) -> str:
        """The row's cell."""
        value = row.get(self.field)
        if value is None or value == "":
            return "-"
        return harmless(self.write(value) if self.write else plain(value))


def harmless(text: str) -> str:
    """The text without what moves cursors and colours: tasks and workers, who may be anybody, have words in it."""
    return text.translate(_CONTROLS)


def plain(value: object) -> str:
    """A value in one line."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text.split())


def listed(names: Iterable[object]) -> str:
    """Names in one cell."""
    return ", ".join(map(str, names)) or "-"


def counted(number: int, noun: str) -> str:
    """So many of them: "1 task", "2 tasks"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def moment(at_ms: int) -> str:
    """A wall-clock time of the coordinator in this host's time zone."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def time_of_day(at_ms: int) -> str:
    """The time of day with tenths, for stories that take seconds."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC).astimezone()
    return f"{at:%H:%M:%S}.{at.microsecond // 100_000}"


def duration(milliseconds: float) -> str:
    """A duration as people say it."""
    seconds = milliseconds / 1000
    if seconds < 1:
        return f"{milliseconds:.0f} ms"
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def colour_of(word: str) -> str:
    """The colour of a state on a terminal; "" for none."""
    return next((colour for words, colour in _COLOURS if word in words), "")


@final
class Output:
    """Where one command prints its results.

    Args:
        stream: usually standard output.
        as_json: whether results are printed as JSON and everything else is left out.
        terminal: whether a person is looking: colours and tables with lines.
    """

    def __init__(self, stream: TextIO, *, as_json: bool, terminal: bool) -> None:
        self._stream = stream
        self.as_json = as_json
        self.terminal = terminal and not as_json

    def table(self, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], *, empty: str) -> None:
        """Print rows; `empty` is said in place of a table without any."""
        if self.as_json:
            self.json(list(rows))
        elif not rows:
            self.say(empty)
        elif self.terminal:
            self._rich_table(columns, rows)
        else:
            self._plain_table(columns, rows)

    def json(self, value: object) -> None:
        """Print one JSON value."""
        text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
        # A path that is not UTF-8 holds halves of surrogate pairs: the escapes that take their place are JSON's own.
        click.echo(text.encode(errors="backslashreplace").decode(), file=self._stream)

    def say(self, text: str, *, bold: bool = False, colour: str = "") -> None:
        """Print a line for people; nothing with `--json`."""
        if self.as_json:
            return
        text = harmless(text)
        if self.terminal and (bold or colour):
            text = click.style(text, bold=bold or None, fg=colour or None)
        click.echo(text, file=self._stream, color=self.terminal)

    def answer(self, value: object, text: str) -> None:
        """Print one result: `value` with `--json`, `text` else."""
        if self.as_json:
            self.json(value)
        else:
            self.say(text)

    def _plain_table(self, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> None:
        cells = [[column.heading for column in columns], *([column.text(row) for column in columns] for row in rows)]
        widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
        for line in cells:
            click.echo(_aligned(line, widths, columns), file=self._stream)

    def _rich_table(self, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> None:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        console = Console(file=self._stream, highlight=False)
        cells = [[column.heading, *map(column.text, rows)] for column in columns]
        fitting = fit(cells, [column.spare for column in columns], console.width)
        table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
        for index, width in fitting.widths.items():
            side: Literal["left", "right"] = "right" if columns[index].right else "left"
            table.add_column(columns[index].heading, justify=side, overflow="fold", width=width)
        for number in range(1, len(rows) + 1):
            texts = [cells[index][number] for index in fitting.widths]
            table.add_row(*(Text(text, style=colour_of(text)) for text in texts))
        console.print(table)
        if fitting.left_out:
            names = listed(columns[index].heading for index in fitting.left_out)
            click.echo(f"The terminal is too narrow for {names}; --json has everything.", err=True)


def _aligned(line: Sequence[str], widths: Sequence[int], columns: Sequence[Column]) -> str:
    cells = [
        text.rjust(width) if column.right else text.ljust(width)
        for text, width, column in zip(line, widths, columns, strict=True)
    ]
    return _GAP.join(cells).rstrip()
