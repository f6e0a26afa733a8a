"""The newest part of one attempt's log: as much as its stream at the broker holds, and what of it waits to be sent.

The stream is told how many chunks to keep, so that it holds exactly what this window counts. What was sent may be
forgotten here when memory is short; it is still counted.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from tenure.broker.base import LogChunk

if TYPE_CHECKING:
    from collections.abc import Iterable

KEPT_BYTES: Final = 1024 * 1024
"""How much of a log is kept, counted with what each chunk costs besides its text."""

_CHUNK_COST: Final = 64
_MERGED_BYTES: Final = 16 * 1024


@final
class LogWindow:
    """See the module. Used under its owner's lock."""

    def __init__(self) -> None:
        self._forgotten: deque[int] = deque()
        self._chunks: deque[LogChunk] = deque()
        self._sizes: deque[int] = deque()
        self._counted = 0
        self._unsent = 0
        self.held = 0
        """How many bytes lie here."""
        self.ended_ms: int | None = None
        """When the log was said to be complete."""

    @property
    def unsent(self) -> int:
        """How many chunks wait to be sent."""
        return self._unsent

    def add(self, chunks: Iterable[LogChunk]) -> None:
        """Add what was printed; the oldest goes when it becomes too much, whether it was sent or not."""
        for chunk in chunks:
            if not self._merge(chunk):
                self._append(chunk)
        while self._counted > KEPT_BYTES and len(self._forgotten) + len(self._chunks) > 1:
            self._drop_oldest()

    def end(self, now_ms: int) -> None:
        """Nothing more will come: readers are told by an empty chunk, so that they need not wait and see."""
        if self.ended_ms is None:
            self.ended_ms = now_ms
            last = self._chunks[-1] if self._chunks else LogChunk(0, 0, "")
            self.add([LogChunk(0, last.position + len(last.text), "")])

    def take(self, most_bytes: int) -> tuple[list[LogChunk], int]:
        """The oldest chunks that wait, at least one and up to that size, and how many the stream should keep then."""
        first = len(self._chunks) - self._unsent
        taken: list[LogChunk] = []
        for index in range(first, len(self._chunks)):
            most_bytes -= self._sizes[index]
            if most_bytes < 0 and taken:
                break
            taken.append(self._chunks[index])
        self._unsent -= len(taken)
        return taken, len(self._forgotten) + len(self._chunks) - self._unsent

    def restore(self, count: int) -> None:
        """The fate of the last `count` chunks that were taken is unknown: they wait again, unless they are gone."""
        self._unsent = min(self._unsent + count, len(self._chunks))

    def start_over(self) -> None:
        """What was sent may be lost: all of it waits again."""
        self._counted -= sum(self._forgotten)
        self._forgotten.clear()
        self._unsent = len(self._chunks)

    def forget(self) -> None:
        """Let go of the text of what was sent."""
        while len(self._chunks) > max(self._unsent, 1):
            self._forgotten.append(self._sizes.popleft())
            self._chunks.popleft()
            self.held -= self._forgotten[-1]

    def _merge(self, chunk: LogChunk) -> bool:
        if not self._unsent:
            return False
        last, size = self._chunks[-1], _size(chunk) - _CHUNK_COST
        follows = last.stream == chunk.stream and last.position + len(last.text) == chunk.position
        if not follows or self._sizes[-1] + size > _MERGED_BYTES:
            return False
        self._chunks[-1] = LogChunk(last.stream, last.position, last.text + chunk.text)
        self._sizes[-1] += size
        self._counted += size
        self.held += size
        return True

    def _append(self, chunk: LogChunk) -> None:
        size = _size(chunk)
        self._chunks.append(chunk)
        self._sizes.append(size)
        self._unsent += 1
        self._counted += size
        self.held += size

    def _drop_oldest(self) -> None:
        if self._forgotten:
            self._counted -= self._forgotten.popleft()
            return
        self._chunks.popleft()
        size = self._sizes.popleft()
        self._counted -= size
        self.held -= size
        self._unsent = min(self._unsent, len(self._chunks))


def _size(chunk: LogChunk) -> int:
    text = chunk.text
    return (len(text) if text.isascii() else len(text.encode(errors="replace"))) + _CHUNK_COST
