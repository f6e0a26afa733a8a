"""A bar for bytes on their way, on standard error of a terminal, when there are so many that a person would wonder."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_WORTH_A_BAR: Final = 8 * 1024 * 1024


def _unseen(_: int) -> None:
    return


@contextmanager
def transfer(what: str, total: int) -> Generator[Callable[[int], object]]:
    """Gives what is to be told of every portion of bytes, in any thread."""
    if total < _WORTH_A_BAR or not sys.stderr.isatty():
        yield _unseen
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(what, total=total)
        yield lambda size: progress.advance(bar, size)
