"""The outbox: encoded events that wait to be reported, in order, cut into entries that the broker takes."""

from __future__ import annotations

from collections import deque
from threading import Condition
from typing import TYPE_CHECKING, Final, final

from tenure.protocol.message import MAX_ENTRY_BYTES
from tenure.protocol.worker_messages import MOST_EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterable

_FRAME_BYTES: Final = 512


@final
class Outbox:
    """A queue between the thread that decides and the one that sends. An event that still waits is not queued twice."""

    def __init__(self) -> None:
        self._events: deque[bytes] = deque()
        self._waiting: set[bytes] = set()
        self._in_flight = False
        self._closed = False
        self._changed = Condition()

    def put(self, events: Iterable[bytes]) -> None:
        """Add events at the end."""
        with self._changed:
            for event in events:
                if event not in self._waiting:
                    self._waiting.add(event)
                    self._events.append(event)
            self._changed.notify_all()

    def wait(self) -> bool:
        """Wait for events; False when none will come any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._events or self._closed)
            return bool(self._events)

    def batch(self) -> list[bytes]:
        """Take as many events as fit into one entry; they count as in flight until `settle` or `restore`."""
        taken: list[bytes] = []
        room = MAX_ENTRY_BYTES - _FRAME_BYTES
        with self._changed:
            while self._events and len(taken) < MOST_EVENTS:
                room -= len(self._events[0]) + 1
                if room < 0 and taken:
                    break
                event = self._events.popleft()
                self._waiting.discard(event)
                taken.append(event)
            self._in_flight = bool(taken)
        return taken

    def settle(self) -> None:
        """What was in flight has been taken by the broker."""
        with self._changed:
            self._in_flight = False
            self._changed.notify_all()

    def restore(self, events: list[bytes]) -> None:
        """What was in flight has an unknown fate: put it back in front."""
        with self._changed:
            self._in_flight = False
            self._events.extendleft(reversed(events))
            self._waiting.update(events)
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing more will be added."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def wait_until_empty(self, timeout_s: float) -> bool:
        """Whether everything was sent within that time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._events and not self._in_flight, timeout_s)
