"""The line at the bottom of `tenure up`: what the fleet is doing, on a terminal only.

Asking may take a second when the coordinator is away, so a thread of its own asks and the line shows what is known.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from rich.status import Status

    from tenure.cli.desk import Desk
    from tenure.cli.observer import Observer

_EVERY_S: Final = 1.0
_SHOWN: Final = ("queued", "offered", "running", "lost", "succeeded", "failed", "cancelled")


class StatusLine(Protocol):
    """Something that can be brought up to date."""

    def refresh(self) -> None:
        """Show what is known now."""
        ...


@final
class _NoLine:
    def refresh(self) -> None:
        """Nothing is shown in a pipe."""


@final
class _Line:
    def __init__(self, status: Status, observer: Observer) -> None:
        self._status = status
        self._observer = observer
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="status", daemon=True)
        self._text = "starting"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def refresh(self) -> None:
        """Show what is known now."""
        self._status.update(self._text)

    def _ask(self) -> None:
        while not self._over.wait(_EVERY_S):
            rows = self._observer.rows("status")
            self._text = summary(rows[0]) if rows else "the coordinator does not answer"


@contextmanager
def status_line(desk: Desk, observer: Observer) -> Generator[StatusLine]:
    """A line that is kept up to date while the block runs; nothing at all in a pipe."""
    if not desk.output.terminal:
        yield _NoLine()
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        line = _Line(status, observer)
        line.start()
        try:
            yield line
        finally:
            line.stop()


def summary(row: Mapping[str, Any]) -> str:
    """One line of the fleet's counts; those that are 0 are left out."""
    counts = {str(name).lower(): count for name, count in dict(row.get("tasks", {})).items()}
    told = [f"{counts[name]:,} {name}" for name in _SHOWN if counts.get(name)]
    return "tasks: " + (", ".join(told) or "none so far")
