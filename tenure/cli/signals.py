"""Signals as something that a loop waits for, so that no handler runs in the middle of anything."""

from __future__ import annotations

import os
import select
import signal
from typing import TYPE_CHECKING, Final, Self, final

if TYPE_CHECKING:
    from types import FrameType

ENDING: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
"""Signals that ask a process to end: Ctrl-C, a service manager, a terminal that closes."""

_WATCHED: Final = (*sorted(ENDING), signal.SIGCHLD)
_AT_ONCE: Final = 1024


@final
class Signals:
    """While entered, signals that ask to end, and ends of children, are kept for `wait`. For the main thread."""

    def __init__(self) -> None:
        self._reading = -1
        self._writing = -1
        self._before: dict[int, object] = {}
        self._asked = 0

    def __enter__(self) -> Self:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        os.set_blocking(self._reading, False)
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        for number in _WATCHED:
            self._before[number] = signal.signal(number, _ignore)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        signal.set_wakeup_fd(-1)
        os.close(self._reading)
        os.close(self._writing)

    @property
    def asked_to_end(self) -> int:
        """How many times this process has been asked to end so far."""
        self._take()
        return self._asked

    def wait(self, timeout_ms: int) -> None:
        """Wait for any signal, at most that long."""
        select.select([self._reading], [], [], timeout_ms / 1000)
        self._take()

    def _take(self) -> None:
        try:
            numbers = os.read(self._reading, _AT_ONCE)
        except BlockingIOError:
            return
        self._asked += sum(number in ENDING for number in numbers)


def _ignore(_: int, __: FrameType | None) -> None:
    """A handler must be set, or the default action is taken before anyone can wait."""
