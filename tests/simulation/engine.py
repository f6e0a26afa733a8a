"""The engine: true time, and the events that are due, one after the other. No threads, no real time.

Code that waits for a broker in the middle of its work (the coordinator does) is waited for by running the engine from
within the call: everything else goes on, and when it is that code's turn again, the call returns.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable


@final
class Engine:
    """Events by true time in milliseconds; those of one moment happen in the order in which they were planned."""

    def __init__(self) -> None:
        self.now = 0
        self.events = 0
        self._planned = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []

    def at(self, when: int, act: Callable[[], None]) -> None:
        """Plan an event; not before now."""
        self._planned += 1
        heappush(self._heap, (max(when, self.now), self._planned, act))

    def after(self, delay: int, act: Callable[[], None]) -> None:
        """Plan an event for `delay` from now."""
        self._planned += 1
        heappush(self._heap, (self.now + delay, self._planned, act))

    def run(self, until: int, over: Callable[[], bool] | None = None) -> None:
        """Let everything happen up to that time, or until it is `over`."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            when, _, act = heappop(heap)
            self.now = max(self.now, when)
            self.events += 1
            act()
            if over is not None and over():
                return
        self.now = max(self.now, until)
