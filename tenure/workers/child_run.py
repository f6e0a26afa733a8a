"""What a handler sees of its task while it runs in a child: `tenure.current()`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

from tenure.workers.calls import Call, Progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.clock import Clock
    from tenure.workers.calls import FromChild

_PROGRESS_MS: Final = 100
_MAX_MESSAGE: Final = 1_000
_MILLION: Final = 1_000_000


class Stopped(BaseException):
    """Raised in a handler that must end now; not an `Exception`, so that no handler catches it by accident."""


@final
class Run:
    """The context of one call. `send` takes messages to the agent."""

    def __init__(self, call: Call, send: Callable[[FromChild], None], clock: Clock) -> None:
        self._call = call
        self._send = send
        self._clock = clock
        self._told_ms: int | None = None
        self._asks = False
        self._stopped = False

    @property
    def task_id(self) -> str:
        """The task's id."""
        return self._call.task_id

    @property
    def attempt(self) -> int:
        """Which execution this is, from 1."""
        return self._call.attempt

    @property
    def fence(self) -> int:
        """The fencing token of this attempt."""
        return self._call.fence

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records name the task."""
        return logging.LoggerAdapter(logging.getLogger("tenure.task"), {"task_id": self._call.task_id})

    def progress(self, fraction: float, message: str = "") -> None:
        """Tell how far the task is; told at most ten times a second, the end always."""
        now_ms = self._clock.elapsed_ms()
        if fraction < 1 and self._told_ms is not None and now_ms - self._told_ms < _PROGRESS_MS:
            return
        self._told_ms = now_ms
        bounded = min(max(fraction, 0.0), 1.0) if fraction == fraction else 0.0  # noqa: PLR0124 - NaN
        self._send(Progress(self._call.call, round(bounded * _MILLION), str(message)[:_MAX_MESSAGE]))

    def cancelled(self) -> bool:
        """Whether the task should end soon. A handler that asks is trusted to obey and not interrupted."""
        self._asks = True
        return self._stopped

    def stop(self) -> None:
        """Ask the handler to end; raises `Stopped` in the calling thread when it has never asked for that."""
        self._stopped = True
        if not self._asks:
            raise Stopped

    def note_cancelled(self) -> None:
        """Let `cancelled()` answer True, and raise nothing."""
        self._stopped = True

    @property
    def stopped(self) -> bool:
        """Whether the handler was asked to end."""
        return self._stopped
