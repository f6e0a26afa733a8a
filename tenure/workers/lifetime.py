"""The lifetime of a worker that ends by itself: at a wall, or when it has had nothing to do for long enough.

A wall is the moment at which something else ends the worker, whatever it runs: a batch system, a maintenance window.
Three things happen before it, in this order. For the *notice* the worker takes nothing more and lets what runs finish.
For the *farewell* it has ended what still ran, and tells what became of it. Then it is gone. Until the notice it takes
every task that has no timeout, and those whose timeout is over before the farewell begins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, final

from tenure.protocol.timing import grace_ms
from tenure.workers.holds import NEVER

_LONGEST_NOTICE_MS: Final = 5 * 60_000
_LONGEST_FAREWELL_MS: Final = 15_000
_SHARE: Final = 10
"""Of a short lifetime, a tenth goes to the notice and a tenth to the farewell."""


@final
@dataclass(frozen=True, slots=True)
class Lifetime:
    """When a worker ends by itself, by its host's elapsed time; see `walled`."""

    ends_ms: int | None = None
    """When what runs is ended: the wall, less the farewell."""
    notice_ms: int = 0
    max_idle_ms: int | None = None
    drain_ms: int | None = None
    """For how long what runs may go on after somebody on this host has asked the worker to end; None: to its end."""

    def remaining_ms(self, now_ms: int) -> int | None:
        """For how long a task may still run here; None: there is no wall."""
        return None if self.ends_ms is None else max(self.ends_ms - now_ms, 0)

    def has_time_for(self, timeout_ms: int | None, now_ms: int) -> bool:
        """Whether a task that may run for that long may be begun; one without a limit may."""
        return self.ends_ms is None or timeout_ms is None or now_ms + timeout_ms <= self.ends_ms


ENDLESS: Final = Lifetime()
"""The lifetime of a worker that somebody else ends."""


def walled(lifetime: Lifetime, wall_ms: int, *, ttl_ms: int, now_ms: int) -> Lifetime:
    """The lifetime of a worker that must be gone at `wall_ms` of its host's elapsed time."""
    share_ms = max(wall_ms - now_ms, 0) // _SHARE
    farewell_ms = grace_ms(ttl_ms) + min(share_ms, _LONGEST_FAREWELL_MS)
    return replace(lifetime, ends_ms=wall_ms - farewell_ms, notice_ms=min(share_ms, _LONGEST_NOTICE_MS))


@final
class Decline:
    """Watches a lifetime come to its end."""

    def __init__(self, lifetime: Lifetime) -> None:
        self._lifetime = lifetime
        self._idle_since_ms = NEVER
        self._asked_ms = NEVER
        self._deeds = 0
        self._was_over = False

    def asked(self, now_ms: int) -> None:
        """Somebody on this host wants the worker to end."""
        if self._asked_ms == NEVER:
            self._asked_ms = now_ms

    def due(self, now_ms: int, *, in_hand: int, deeds: int, closed: bool) -> bool | None:
        """What is to be done now: False: take nothing more, True: end what runs, too, None: nothing. Each is said once.

        Args:
            now_ms: the time.
            in_hand: how many assignments the worker has in hand.
            deeds: a number that grows with everything that it does, so that work between two looks is noticed.
            closed: whether it takes nothing more already.
        """
        if in_hand or deeds != self._deeds or self._idle_since_ms == NEVER:
            self._deeds, self._idle_since_ms = deeds, now_ms
        if self._is_over(now_ms):
            was_over, self._was_over = self._was_over, True
            return None if was_over else True
        return False if not closed and self._is_near(now_ms) else None

    def _is_over(self, now_ms: int) -> bool:
        drain_ms = self._lifetime.drain_ms
        if drain_ms is not None and self._asked_ms != NEVER and now_ms - self._asked_ms >= drain_ms:
            return True
        return self._lifetime.remaining_ms(now_ms) == 0

    def _is_near(self, now_ms: int) -> bool:
        remaining_ms, max_idle_ms = self._lifetime.remaining_ms(now_ms), self._lifetime.max_idle_ms
        if remaining_ms is not None and remaining_ms <= self._lifetime.notice_ms:
            return True
        return max_idle_ms is not None and now_ms - self._idle_since_ms >= max_idle_ms
