"""The order to give up a job, which its thread looks for between two chunks."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Stopped(Exception):
    """The job was given up on order; what it has staged stays."""


@final
class Stop:
    """Given from any thread, once and for good."""

    def __init__(self) -> None:
        self._given = Event()

    def give(self) -> None:
        """Order the job to end at its next chunk."""
        self._given.set()

    def check(self) -> None:
        """Raises `Stopped` once the order was given."""
        if self._given.is_set():
            raise Stopped

    def between(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """The same chunks, looking for the order before each of them."""
        for chunk in chunks:
            self.check()
            yield chunk
        self.check()
