"""The desk: the core behind one lock, shared by the threads of an agent.

Threads post what happened; the main loop takes what was decided. The lock is never held while anything is sent, read
or waited for, so that the heartbeat waits for microseconds at most.
"""

from __future__ import annotations

from threading import Condition
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tenure.clock import Clock
    from tenure.protocol.worker_messages import Heartbeat
    from tenure.workers.inputs import WireInput

_Input_contra = TypeVar("_Input_contra", contravariant=True)
_Action = TypeVar("_Action")


class Core(Protocol[_Input_contra, _Action]):
    """A state machine without I/O: `claims.Claims` for a worker that runs its tasks itself."""

    def handle(self, happened: _Input_contra, now_ms: int) -> None:
        """Apply one input."""
        ...

    def collect(self, now_ms: int) -> list[_Action]:
        """Do what is due, and hand out the actions decided since the last call."""
        ...

    def due_ms(self) -> int:
        """When `collect` wants to be called although nothing happened."""
        ...

    def pulse(self, now_ms: int) -> Heartbeat:
        """The heartbeat that is about to be sent; `now_ms` must have been read before."""
        ...

    def shortest_ttl_ms(self) -> int:
        """The smallest ttl that heartbeats renew."""
        ...

    def window(self, now_ms: int) -> int:
        """How many assignments the worker wants in hand."""
        ...

    def room(self, now_ms: int) -> int:
        """How many more assignments should be taken now."""
        ...

    def counts(self) -> dict[str, int]:
        """How many holds ended in which way."""
        ...


class Front(Protocol):
    """The side of the desk that the lines to the broker stand at, whatever the core behind it is."""

    def post(self, happened: WireInput) -> None:
        """Tell the core, and let the main loop carry out what follows."""
        ...

    def pulse(self) -> tuple[Heartbeat, int]:
        """The next heartbeat, counted from now, and the smallest ttl that it renews."""
        ...

    def window(self) -> int:
        """How many assignments the worker wants in hand."""
        ...

    def wait_for_room(self, timeout_s: float) -> int:
        """How many assignments to take, waiting until there is room; 0 when the time is over."""
        ...


@final
class Desk(Generic[_Input_contra, _Action]):
    """Shared access to the core. `wake` ends the main loop's wait."""

    def __init__(self, core: Core[_Input_contra, _Action], clock: Clock, wake: Callable[[], None]) -> None:
        self._core = core
        self._clock = clock
        self._wake = wake
        self._changed = Condition()
        self._is_woken = False
        self._closed = False

    def post(self, happened: _Input_contra) -> None:
        """See `Front.post`."""
        with self._changed:
            self._core.handle(happened, self._clock.elapsed_ms())
            must_wake, self._is_woken = not self._is_woken, True
        if must_wake:
            self._wake()

    def advance(self, happened: Iterable[_Input_contra]) -> list[_Action]:
        """Main loop: tell the core all of this, and take what is to be done."""
        with self._changed:
            self._is_woken = False
            now_ms = self._clock.elapsed_ms()
            for one in happened:
                self._core.handle(one, now_ms)
            actions = self._core.collect(now_ms)
            self._changed.notify_all()
        return actions

    def due_in_ms(self) -> int:
        """How long the main loop may wait."""
        with self._changed:
            return max(self._core.due_ms() - self._clock.elapsed_ms(), 0)

    def pulse(self) -> tuple[Heartbeat, int]:
        """See `Front.pulse`."""
        with self._changed:
            return self._core.pulse(self._clock.elapsed_ms()), self._core.shortest_ttl_ms()

    def window(self) -> int:
        """See `Front.window`."""
        with self._changed:
            return self._core.window(self._clock.elapsed_ms())

    def wait_for_room(self, timeout_s: float) -> int:
        """See `Front.wait_for_room`."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._room() > 0, timeout_s)
            return 0 if self._closed else self._room()

    def counts(self) -> dict[str, int]:
        """How many holds ended in which way."""
        with self._changed:
            return self._core.counts()

    def close(self) -> None:
        """Let nobody wait any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _room(self) -> int:
        return self._core.room(self._clock.elapsed_ms())
