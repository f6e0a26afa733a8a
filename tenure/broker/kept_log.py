"""How a log is kept when its attempt is over: one JSON array per line, of stream, position and text.

Streams stay apart and gaps stay visible, so that a kept log reads as one that is followed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, cast

from tenure.broker.base import LogChunk
from tenure.errors import ArtifactDamaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_BYTES: Final = 8 * 1024 * 1024
"""Of a log that is kept, counted with what each chunk costs; a worker of ours leaves an eighth of it at the broker."""

_CHUNK_COST: Final = 64
_REST: Final = "\n[The rest of this log was not kept: it was larger than a worker leaves any]\n"


def in_order(chunks: Iterable[LogChunk]) -> Iterator[LogChunk]:
    """The chunks in the order of their text, without what came twice: a worker repeats what a broker may have lost."""
    reached = 0
    for chunk in sorted(chunks, key=lambda chunk: chunk.position):
        text = chunk.text[max(reached - chunk.position, 0) :]
        if text:
            yield LogChunk(chunk.stream, max(reached, chunk.position), text)
            reached = chunk.position + len(chunk.text)


def write(chunks: Iterable[LogChunk]) -> bytes:
    """The bytes of a kept log; none when nothing was printed. Of chunks that are too many no more is read."""
    given = in_order(_within(chunks))
    lines = [json.dumps([each.stream, each.position, each.text], ensure_ascii=False) for each in given]
    return "".join(f"{line}\n" for line in lines).encode(errors="replace")


def read(raw: bytes) -> list[LogChunk]:
    """The chunks of a kept log. Raises `ArtifactDamaged`."""
    try:
        return [_chunk(json.loads(line)) for line in raw.splitlines()]
    except (ValueError, TypeError, RecursionError) as error:
        raise ArtifactDamaged("A kept log cannot be read") from error


def _within(chunks: Iterable[LogChunk]) -> Iterator[LogChunk]:
    left, end = MOST_BYTES, 0
    for chunk in chunks:
        left -= len(chunk.text.encode(errors="replace")) + _CHUNK_COST
        if left < 0:
            yield LogChunk(0, end, _REST)
            return
        end = max(end, chunk.position + len(chunk.text))
        yield chunk


def _chunk(fields: Any) -> LogChunk:  # noqa: ANN401 - whatever a line of JSON holds
    stream, position, text = cast("list[Any]", fields)
    return LogChunk(int(stream), int(position), str(text))
