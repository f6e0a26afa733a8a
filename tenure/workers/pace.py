"""How long calls take lately, and what follows from it: the worker's window, and how many calls may wait in a child.

The window grows while calls are short, so that a slow network does not starve the slots, and is exactly the number of
slots when calls are long, so that no worker sits on work that another could do.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final, final

MAX_WINDOW: Final = 512
HORIZON_MS: Final = 100
"""How much work, in time, a worker wants in hand per slot."""
SOCKET_MS: Final = 20
"""How much work, in time, may wait in one child's socket."""
_SHORTEST_MS: Final = 0.1
_WEIGHT: Final = 0.1
_REMEMBERED: Final = 1024


@final
class Pace:
    """Moving averages of durations, overall and per handler, in milliseconds."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._overall: float | None = None
        self._by_handler: OrderedDict[str, float] = OrderedDict()
        self._limit = slots
        self._since_growth = 0

    def note(self, handler: str, duration_ms: int) -> None:
        """A call or command has ended after that time; `handler` is "" for a command."""
        duration = max(float(duration_ms), 0.0)
        self._overall = duration if self._overall is None else self._overall + _WEIGHT * (duration - self._overall)
        if handler:
            before = self._by_handler.get(handler)
            self._by_handler[handler] = duration if before is None else before + _WEIGHT * (duration - before)
            if before is None and len(self._by_handler) > _REMEMBERED:
                self._by_handler.popitem(last=False)
        self._since_growth += 1
        if self._since_growth >= self._limit:
            self._since_growth = 0
            self._limit = min(self._limit * 2, max(MAX_WINDOW, self._slots))

    def expected_ms(self, handler: str) -> float | None:
        """How long a call of that handler takes lately; None when it has never been seen."""
        average = self._by_handler.get(handler)
        return None if average is None else max(average, _SHORTEST_MS)

    def window(self, *, quick_slots: int, long_slots: int) -> int:
        """How many assignments to want in hand: one per slot that is busy for long, more per slot that is quick."""
        per_slot = 1 if self._overall is None else math.ceil(HORIZON_MS / max(self._overall, _SHORTEST_MS))
        wanted = min(quick_slots * per_slot + long_slots, max(MAX_WINDOW, self._slots))
        self._limit = max(self._slots, min(self._limit, wanted))
        return min(wanted, self._limit) if wanted > self._slots else wanted
