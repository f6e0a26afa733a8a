"""The pipes that a command prints into, read as fast as it writes, and what is kept of them.

Pipes, not files: a command may print for days without filling a disk, and nobody waits for the end of a pipe, because
the runner knows when the tree is gone.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.workers.masking import MaskedStream

_CHUNK: Final = 65_536
TAIL_BYTES: Final = 8 * 1024


class Sink(Protocol):
    """Where what was read goes to."""

    def take(self, data: bytes) -> None:
        """Take the next piece."""
        ...

    def finish(self) -> None:
        """Nothing more will come."""
        ...


@final
class Kept:
    """Keeps the first `head` bytes, or the last `TAIL_BYTES` when `head` is None."""

    def __init__(self, head: int | None = None) -> None:
        self._head = head
        self._kept = bytearray()
        self.over = False

    def take(self, data: bytes) -> None:
        """Keep what belongs to the head or the tail."""
        if self._head is None:
            self._kept += data
            del self._kept[:-TAIL_BYTES]
            return
        room = self._head - len(self._kept)
        self.over = self.over or len(data) > room
        self._kept += data[: max(room, 0)]

    def finish(self) -> None:
        """Nothing is waited for."""

    def text(self) -> str:
        """What was kept."""
        return self._kept.decode(errors="replace")


@final
class Capture:
    """Reads one pipe without blocking, and hands what comes to the sinks, masked. `count` are the bytes read."""

    def __init__(self, masked: MaskedStream, sinks: Sequence[Sink]) -> None:
        self.readable, self.writable = os.pipe()
        os.set_blocking(self.readable, False)
        self._masked = masked
        self._sinks = sinks
        self.count = 0
        self.open = True

    def read(self) -> bool:
        """Take what is there. False when nothing more will come."""
        try:
            chunk = os.read(self.readable, _CHUNK)
        except BlockingIOError:
            return True
        self._pass(chunk)
        self.open = bool(chunk)
        return self.open

    def drain(self) -> None:
        """Take all that is left once no writer is left, and close the pipe."""
        before = -1
        while before != 0:
            try:
                chunk = os.read(self.readable, _CHUNK)
            except BlockingIOError:
                break
            before = len(chunk)
            self._pass(chunk)
        os.close(self.readable)
        self._give(self._masked.finish())
        for sink in self._sinks:
            sink.finish()

    def _pass(self, chunk: bytes) -> None:
        self.count += len(chunk)
        self._give(self._masked.feed(chunk))

    def _give(self, data: bytes) -> None:
        if data:
            for sink in self._sinks:
                sink.take(data)
