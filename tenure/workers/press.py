"""The press: takes what tasks print to the broker, a few entries at a time, on a connection of its own.

Printing never waits for the broker. What cannot be sent in time is dropped, the oldest first: of each log only its
newest part is kept anyway, and positions show what is missing. After a reconnect, and when the broker's data is new,
everything that still lies here is written again; readers tell repetitions by their positions.
"""

from __future__ import annotations

import logging
from threading import Condition
from typing import TYPE_CHECKING, Final, final

from tenure.broker.base import LogKey
from tenure.errors import BrokerError, BrokerFull
from tenure.workers.log_window import LogWindow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.broker.base import LogChunk, WorkerBroker
    from tenure.clock import Clock

_LOG: Final = logging.getLogger(__name__)

FLUSH_MS: Final = 200
"""The shortest time between two flushes; the first of them does not wait."""
_FLUSH_BYTES: Final = 1024 * 1024
_FULL_PAUSE_MS: Final = 2_000
_HELD_BYTES: Final = 32 * 1024 * 1024
_MOST_LOGS: Final = 2_000
_REMEMBERED: Final = 20_000
_KEPT_AFTER_END_MS: Final = 60_000
"""By then the coordinator has put the log into the store, and nothing here could be of use."""


@final
class Press:
    """See `lines.Duty`. `printed` and `start_over` may be called by any thread."""

    def __init__(self, site: str, clock: Clock) -> None:
        self._site = site
        self._clock = clock
        self._changed = Condition()
        # Both in the order in which something was last added.
        self._logs: dict[tuple[str, int], LogWindow] = {}
        self._waiting: dict[tuple[str, int], LogWindow] = {}
        self._has_printed: dict[tuple[str, int], None] = {}
        self.held = 0
        """How many bytes lie here."""
        self._next_ms = 0
        self._is_full = False
        self._closed = False

    def printed(self, task_id: str, fence: int, chunks: Sequence[LogChunk]) -> None:
        """An attempt has printed that; nothing at all says that it will not print any more."""
        key, now_ms = (task_id, fence), self._clock.elapsed_ms()
        with self._changed:
            window = self._logs.pop(key, None)
            if window is None:
                if not chunks:
                    return
                window = LogWindow()
                self._has_printed[key] = None
                if len(self._has_printed) > _REMEMBERED:
                    del self._has_printed[next(iter(self._has_printed))]
            self._logs[key] = window
            self.held -= window.held
            window.add(chunks)
            if not chunks:
                window.end(now_ms)
            self.held += window.held
            if window.unsent:
                self._waiting[key] = window
            self._make_room()
            self._changed.notify_all()

    def has_printed(self, task_id: str, fence: int) -> bool:
        """Whether that attempt has a log."""
        return (task_id, fence) in self._has_printed

    def start_over(self) -> None:
        """The broker may have lost what it had."""
        with self._changed:
            for key, window in self._logs.items():
                window.start_over()
                self._waiting[key] = window
            self._changed.notify_all()

    def stop(self) -> None:
        """End the wait for something to print."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def name(self) -> str:
        """See `lines.Duty.name`."""
        return "press"

    def opened(self, *, again: bool) -> None:
        """See `lines.Duty.opened`."""
        if again:
            self.start_over()

    def turn(self, broker: WorkerBroker) -> None:
        """See `lines.Duty.turn`."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed, _KEPT_AFTER_END_MS / 1000)
            pause_ms = self._next_ms - self._clock.elapsed_ms()
            if pause_ms > 0:
                self._changed.wait_for(lambda: self._closed, pause_ms / 1000)
        self.flush(broker)

    def closing(self, broker: WorkerBroker) -> None:
        """See `lines.Duty.closing`."""
        while self._waiting and not self._is_full:
            self.flush(broker)

    def flush(self, broker: WorkerBroker) -> None:
        """Write what waits, up to a size, one log after the other. Raises `BrokerError`, but not for a full broker."""
        self._next_ms = self._clock.elapsed_ms() + FLUSH_MS
        room = _FLUSH_BYTES
        for _ in range(len(self._waiting)):
            with self._changed:
                # What does not fit now comes after all others.
                key = next(iter(self._waiting))
                window = self._waiting.pop(key)
                taken = window.take(room)
                if window.unsent:
                    self._waiting[key] = window
            room -= sum(len(chunk.text) for chunk in taken[0])
            if not self._print(broker, key, window, taken) or room <= 0:
                break
        self._forget_the_ended()

    def _print(
        self, broker: WorkerBroker, key: tuple[str, int], window: LogWindow, taken: tuple[list[LogChunk], int]
    ) -> bool:
        chunks, keep = taken
        try:
            broker.print(LogKey(self._site, *key), chunks, keep)
        except BrokerError as error:
            with self._changed:
                window.restore(len(chunks))
                self._waiting[key] = window
            if not isinstance(error, BrokerFull):
                raise
            self._note_full(error)
            return False
        self._is_full = False
        return True

    def _note_full(self, error: BrokerFull) -> None:
        if not self._is_full:
            _LOG.warning("%s; what tasks print is lost until there is room", error)
        self._is_full = True
        self._next_ms = self._clock.elapsed_ms() + _FULL_PAUSE_MS

    def _make_room(self) -> None:
        """Forget what was sent long ago, and in the end whole logs."""
        if self.held > _HELD_BYTES:
            for window in self._logs.values():
                self.held -= window.held
                window.forget()
                self.held += window.held
                if self.held <= _HELD_BYTES // 2:
                    break
        while len(self._logs) > _MOST_LOGS or self.held > _HELD_BYTES:
            self._drop(next(iter(self._logs)))

    def _forget_the_ended(self) -> None:
        long_ago_ms = self._clock.elapsed_ms() - _KEPT_AFTER_END_MS
        with self._changed:
            for key, window in list(self._logs.items()):
                if window.ended_ms is not None and window.ended_ms <= long_ago_ms and not window.unsent:
                    self._drop(key)

    def _drop(self, key: tuple[str, int]) -> None:
        self.held -= self._logs.pop(key).held
        self._waiting.pop(key, None)
