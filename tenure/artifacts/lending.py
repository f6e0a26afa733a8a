"""Things of which one thread at a time may use each: lent, taken back, and lent again."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_T = TypeVar("_T")


@final
class Lending(Generic[_T]):
    """Makes a thing when none is idle. Safe to use from several threads.

    Args:
        make: makes another one.
        end: lets go of one.
    """

    def __init__(self, make: Callable[[], _T], end: Callable[[_T], None]) -> None:
        self._make = make
        self._end = end
        self._lock = Lock()
        self._idle: list[_T] = []
        self._closed = False

    @contextmanager
    def lent(self) -> Generator[_T]:
        """One for this thread alone."""
        with self._lock:
            thing = self._idle.pop() if self._idle else None
        thing = self._make() if thing is None else thing
        try:
            yield thing
        finally:
            with self._lock:
                keep = not self._closed
                if keep:
                    self._idle.append(thing)
            if not keep:
                self._end(thing)

    def close(self) -> None:
        """Let go of those that are idle now, and of the others when they come back."""
        with self._lock:
            idle, self._idle, self._closed = self._idle, [], True
        for thing in idle:
            self._end(thing)
