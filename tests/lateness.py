"""How late a busy machine wakes those who want to go on: measured beside a time, and not held against it."""

from __future__ import annotations

from threading import Event, Thread
from typing import Self

from tenure.clock import SystemClock

_STEP_MS = 5


class Lateness:
    """Notes how late waits end; as a context manager it waits again and again in a thread of its own."""

    def __init__(self) -> None:
        self._late_ms: list[int] = []
        self._stop = Event()
        self._thread = Thread(target=self._wait, name="lateness", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def note(self, asked_ms: int, took_ms: int) -> None:
        """Count a wait that was to take so long, and took so long."""
        self._late_ms.append(max(0, took_ms - asked_ms))

    def delay_ms(self) -> int:
        """How late they ended: 99 of 100 no later than that."""
        return sorted(self._late_ms)[len(self._late_ms) * 99 // 100] if self._late_ms else 0

    def _wait(self) -> None:
        clock = SystemClock()
        while not self._stop.is_set():
            began_ms = clock.elapsed_ms()
            self._stop.wait(_STEP_MS / 1_000)
            self.note(_STEP_MS, clock.elapsed_ms() - began_ms)
