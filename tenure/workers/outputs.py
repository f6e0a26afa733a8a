"""A command's output as the runner keeps it: the beginning of standard output, the end of standard error.

Pipes, not files: a command may print for days without filling a disk, the runner reads as fast as the command writes,
and nobody waits for the end of a pipe, because the runner knows when the tree is gone.
"""

from __future__ import annotations

import os
from typing import Final, final

_CHUNK: Final = 65_536
TAIL_BYTES: Final = 8 * 1024


@final
class Capture:
    """Reads one pipe without blocking; keeps its first `head` bytes, or its last `TAIL_BYTES` when `head` is None."""

    def __init__(self, head: int | None = None) -> None:
        self.readable, self.writable = os.pipe()
        os.set_blocking(self.readable, False)
        self._head = head
        self._kept = bytearray()
        self.over = False
        self.open = True

    def read(self) -> bool:
        """Take what is there. False when nothing more will come."""
        try:
            chunk = os.read(self.readable, _CHUNK)
        except BlockingIOError:
            return True
        self._keep(chunk)
        self.open = bool(chunk)
        return self.open

    def drain(self) -> str:
        """Take all that is left once no writer is left, close the pipe, and answer what was kept as text."""
        before = -1
        while before != 0:
            try:
                chunk = os.read(self.readable, _CHUNK)
            except BlockingIOError:
                break
            before = len(chunk)
            self._keep(chunk)
        os.close(self.readable)
        return self._kept.decode(errors="replace")

    def _keep(self, chunk: bytes) -> None:
        if self._head is None:
            self._kept += chunk
            del self._kept[:-TAIL_BYTES]
            return
        room = self._head - len(self._kept)
        self.over = self.over or len(chunk) > room
        self._kept += chunk[: max(room, 0)]
