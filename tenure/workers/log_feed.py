"""One attempt's log on its way to the press: what the program prints, and words of Tenure's own in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, final

from tenure.broker.base import LogChunk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tenure.protocol.worker_messages import Binding

Printed: TypeAlias = "Callable[[str, int, Sequence[LogChunk]], None]"
"""Takes what the attempt of a task id and fence has printed; no chunks say that it will not print any more."""


@final
class LogFeed:
    """The log of one attempt. Positions stay those of one text although two write it: the runner and the agent."""

    def __init__(self, binding: Binding, printed: Printed) -> None:
        self._binding = binding
        self._printed = printed
        self._end = 0
        self._inserted = 0

    def printed(self, pieces: Sequence[tuple[int, int, str]]) -> None:
        """The runner has read this: triples of stream, position and text."""
        chunks = [LogChunk(stream, position + self._inserted, text) for stream, position, text in pieces]
        if chunks:
            self._end = max(self._end, chunks[-1].position + len(chunks[-1].text))
            self._put(chunks)

    def say(self, text: str, stream: int = 0) -> None:
        """Add a line: a word of Tenure's own, or of the program's when a `stream` is named."""
        line = f"{text}\n"
        self._put([LogChunk(stream, self._end, line)])
        self._end += len(line)
        self._inserted += len(line)

    def close(self) -> None:
        """Nothing more will come."""
        self._put([])

    def _put(self, chunks: Sequence[LogChunk]) -> None:
        self._printed(self._binding.task_id, self._binding.fence, chunks)
