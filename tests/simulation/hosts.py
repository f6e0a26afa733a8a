"""Hosts, their clocks, and the processes on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.engine import Engine

_MILLION: Final = 1_000_000
_WALL_START_MS: Final = 1_700_000_000_000


@final
class HostClock:
    """A host's clocks. Elapsed time runs a little too fast or slow; wall time starts anywhere and jumps."""

    def __init__(self, engine: Engine, *, start_ms: int, wall_offset_ms: int, rate_ppm: int) -> None:
        self._engine = engine
        self._start_ms = start_ms
        self._wall_ms = _WALL_START_MS + wall_offset_ms
        self._rate = _MILLION + rate_ppm

    def elapsed_ms(self) -> int:
        """See `Clock.elapsed_ms`."""
        return self._start_ms + self._engine.now * self._rate // _MILLION

    def now_ms(self) -> int:
        """See `Clock.now_ms`."""
        return self._wall_ms + self._engine.now * self._rate // _MILLION

    def sleep_ms(self, duration_ms: int) -> None:
        """Nothing waits: who sleeps is called again later."""

    def jump_wall_ms(self, difference_ms: int) -> None:
        """Set the wall clock."""
        self._wall_ms += difference_ms

    def true_ms(self, elapsed_ms: int) -> int:
        """The true time at which elapsed time will be at least that."""
        return -(-(elapsed_ms - self._start_ms) * _MILLION // self._rate)


@final
class Host:
    """One machine: a clock, a wire to the broker, and whether it stands still."""

    def __init__(self, name: str, clock: HostClock) -> None:
        self.name = name
        self.clock = clock
        self.suspended = False
        self.cut = False
        """Whether nothing passes between this host and the broker."""
        self.processes: list[Process] = []

    def suspend(self) -> None:
        """Stand still, with everything on it."""
        self.suspended = True
        for process in list(self.processes):
            process.froze()

    def resume(self) -> None:
        """Go on."""
        self.suspended = False
        for process in list(self.processes):
            process.thawed()


class Process:
    """Something on a host that can be stopped, continued and killed."""

    def __init__(self, engine: Engine, host: Host) -> None:
        self.engine = engine
        self.host = host
        self.alive = True
        self.paused = False
        self._waiting: list[Callable[[], None]] = []
        host.processes.append(self)

    @property
    def stands_still(self) -> bool:
        """Whether it is stopped."""
        return self.paused or self.host.suspended

    def deliver(self, act: Callable[[], None]) -> None:
        """Let it do that now, or when it goes on."""
        if not self.alive:
            return
        if self.paused or self.host.suspended:
            self._waiting.append(act)
        else:
            act()

    def after(self, delay: int, act: Callable[[], None]) -> None:
        """Let it do that later."""
        self.engine.after(delay, lambda: self.deliver(act))

    def pause(self) -> None:
        """Stop it."""
        self.paused = True
        self.froze()

    def go_on(self) -> None:
        """Continue it."""
        self.paused = False
        if not self.host.suspended:
            self.thawed()

    def froze(self) -> None:
        """It has just been stopped."""

    def thawed(self) -> None:
        """It goes on: what has come meanwhile is looked at first."""
        waiting, self._waiting = self._waiting, []
        for act in waiting:
            self.deliver(act)

    def kill(self) -> None:
        """End it, without a word."""
        self.alive = False
        self._waiting.clear()
        if self in self.host.processes:
            self.host.processes.remove(self)
