"""How far `tenure map` is: a bar on a terminal, a line now and then in a pipe; always on standard error."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, final

import click

from tenure.cli.output import duration

if TYPE_CHECKING:
    from collections.abc import Generator

    from rich.progress import Progress, TaskID

    from tenure.clock import Clock

_EVERY_MS: Final = 10_000


@final
@dataclass(slots=True)
class Tally:
    """Counts of rows. `found` were done before this start."""

    total: int
    found: int = 0
    done: int = 0
    failed: int = 0
    lost: int = 0

    @property
    def ended(self) -> int:
        """Rows that need no more waiting, all told."""
        return self.found + self.done + self.failed + self.lost

    def text(self) -> str:
        """The counts in words."""
        parts = [f"{self.found + self.done} done"]
        parts += [f"{self.failed} failed"] if self.failed else []
        parts += [f"{self.lost} lost"] if self.lost else []
        return ", ".join(parts)


class Meter(Protocol):
    """Something that shows a tally."""

    def show(self) -> None:
        """Show the tally as it is now."""
        ...


@final
class _Lines:
    """A line every ten seconds."""

    def __init__(self, tally: Tally, clock: Clock) -> None:
        self._tally = tally
        self._clock = clock
        self._start_ms = clock.elapsed_ms()
        self._last_ms = self._start_ms

    def show(self) -> None:
        """Print a line when it is time for one."""
        now_ms = self._clock.elapsed_ms()
        if now_ms - self._last_ms < _EVERY_MS:
            return
        self._last_ms = now_ms
        click.echo(self._text((now_ms - self._start_ms) / 1000), err=True)

    def _text(self, passed_s: float) -> str:
        tally = self._tally
        rate = (tally.ended - tally.found) / passed_s
        text = f"{tally.ended} of {tally.total} rows: {tally.text()}, {rate:.1f}/s"
        return f"{text}, {duration(1000 * (tally.total - tally.ended) / rate)} left" if rate else text


@final
class _Bar:
    """A bar with rate and remaining time."""

    def __init__(self, tally: Tally, progress: Progress) -> None:
        self._tally = tally
        self._progress = progress
        self._task: TaskID = progress.add_task("", total=tally.total, completed=tally.ended, counts=tally.text())

    def show(self) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=self._tally.ended, counts=self._tally.text())


@contextmanager
def meter(tally: Tally, clock: Clock) -> Generator[Meter]:
    """Show a tally while the block runs."""
    if not sys.stderr.isatty():
        yield _Lines(tally, clock)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[counts]}"), TimeElapsedColumn())
    with Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        bar = _Bar(tally, progress)
        yield bar
        bar.show()
