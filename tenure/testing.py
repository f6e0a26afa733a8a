"""Stand-ins for time and randomness, for tests of programs that use Tenure and for its own.

Both are safe to share between threads. Pass them wherever a `tenure.clock.Clock` or `tenure.clock.Entropy` is taken.
"""

from __future__ import annotations

import hashlib
from itertools import count
from threading import Lock
from typing import final


@final
class ManualClock:
    """A clock that stands still until it is moved.

    Args:
        start_ms: the wall clock's first reading, milliseconds since the epoch.
    """

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._lock = Lock()
        self._wall_offset_ms = start_ms
        self._elapsed_ms = 0

    def now_ms(self) -> int:
        """The wall clock's reading."""
        with self._lock:
            return self._wall_offset_ms + self._elapsed_ms

    def elapsed_ms(self) -> int:
        """Milliseconds by which the clock has been advanced since it was made."""
        with self._lock:
            return self._elapsed_ms

    def sleep_ms(self, duration_ms: int) -> None:
        """Advance the clock at once; nothing waits."""
        self.advance_ms(duration_ms)

    def advance_ms(self, duration_ms: int) -> None:
        """Let `duration_ms` pass on both readings. Raises ValueError when it is negative: elapsed time only grows."""
        if duration_ms < 0:
            message = f"time cannot be advanced by {duration_ms} ms; to move only the wall clock back use jump_wall_ms"
            raise ValueError(message)
        with self._lock:
            self._elapsed_ms += duration_ms

    def jump_wall_ms(self, difference_ms: int) -> None:
        """Set the wall clock forward or back, as an administrator would; elapsed time does not notice."""
        with self._lock:
            self._wall_offset_ms += difference_ms


@final
class SeededEntropy:
    """A source of "random" values that gives the same ones for the same seed, on every Python version."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._draws = count()

    def token(self, size_bytes: int) -> str:
        """See `tenure.clock.Entropy.token`."""
        return hashlib.shake_256(f"{self._seed}:{next(self._draws)}".encode()).hexdigest(size_bytes)

    def below(self, bound: int) -> int:
        """See `tenure.clock.Entropy.below`."""
        return int(self.token(16), 16) % bound
