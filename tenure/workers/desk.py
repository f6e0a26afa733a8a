"""The desk: the core behind one lock, shared by the threads of an agent.

Threads post what happened; the main loop takes what was decided. The lock is never held while anything is sent, read
or waited for, so that the heartbeat waits for microseconds at most.
"""

from __future__ import annotations

from threading import Condition
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tenure.clock import Clock
    from tenure.protocol.worker_messages import Heartbeat
    from tenure.workers.actions import Action
    from tenure.workers.claims import Claims
    from tenure.workers.inputs import Input


@final
class Desk:
    """Shared access to the core. `wake` ends the main loop's wait."""

    def __init__(self, claims: Claims, clock: Clock, wake: Callable[[], None]) -> None:
        self._claims = claims
        self._clock = clock
        self._wake = wake
        self._changed = Condition()
        self._is_woken = False
        self._closed = False

    def post(self, happened: Input) -> None:
        """Tell the core, and let the main loop carry out what follows."""
        with self._changed:
            self._claims.handle(happened, self._clock.elapsed_ms())
            must_wake, self._is_woken = not self._is_woken, True
        if must_wake:
            self._wake()

    def advance(self, happened: Iterable[Input]) -> list[Action]:
        """Main loop: tell the core all of this, and take what is to be done."""
        with self._changed:
            self._is_woken = False
            now_ms = self._clock.elapsed_ms()
            for one in happened:
                self._claims.handle(one, now_ms)
            actions = self._claims.collect(now_ms)
            self._changed.notify_all()
        return actions

    def due_in_ms(self) -> int:
        """How long the main loop may wait."""
        with self._changed:
            return max(self._claims.due_ms() - self._clock.elapsed_ms(), 0)

    def pulse(self) -> tuple[Heartbeat, int]:
        """The next heartbeat, counted from now, and the smallest ttl that it renews."""
        with self._changed:
            return self._claims.pulse(self._clock.elapsed_ms()), self._claims.shortest_ttl_ms()

    def window(self) -> int:
        """How many assignments the worker wants in hand."""
        with self._changed:
            return self._claims.window(self._clock.elapsed_ms())

    def wait_for_room(self, timeout_s: float) -> int:
        """How many assignments to take, waiting until there is room; 0 when the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._room() > 0, timeout_s)
            return 0 if self._closed else self._room()

    def counts(self) -> dict[str, int]:
        """How many holds ended in which way."""
        with self._changed:
            return self._claims.counts()

    def close(self) -> None:
        """Let nobody wait any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _room(self) -> int:
        return self._claims.room(self._clock.elapsed_ms())
