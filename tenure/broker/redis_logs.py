"""Logs as streams: one entry per chunk, with `s` (the stream's number), `p` (the position) and `t` (the text).

A log ends a week after its last chunk; by then the coordinator has long put what it wants to keep into the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenure.broker.base import LogChunk
from tenure.broker.redis_entries import entries, parse_id
from tenure.protocol.message import MAX_INT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.broker.base import EntryId
    from tenure.broker.redis_connection import Command, RedisConnection

_CHUNKS_AT_ONCE: Final = 64
_ROOM_BYTES: Final = 256 * 1024
"""More than any worker of ours puts into one chunk; who may add to a log may add chunks of any size."""

_LIFE_S: Final = 7 * 24 * 3_600


def add(connection: RedisConnection, key: str, chunks: Sequence[LogChunk], keep: int) -> None:
    """Add chunks to the log, keep the newest `keep`, and renew its life. Raises `BrokerError`."""
    if not chunks:
        return
    commands: list[Command] = [_entry(key, chunk) for chunk in chunks]
    # Before the life is renewed and after all are added: a full server refuses to add, and still makes room.
    commands.append(("XTRIM", key, "MAXLEN", "=", keep))
    commands.append(("EXPIRE", key, _LIFE_S))
    for answer in connection.call_all(commands):
        connection.checked(answer)


def read(connection: RedisConnection, key: str, after: EntryId, block_ms: int) -> list[tuple[EntryId, LogChunk]]:
    """Chunks later than `after`; what no worker of ours has written is left out. Raises `BrokerError`."""
    wait = ("BLOCK", block_ms) if block_ms else ()
    while True:
        command = ("XREAD", "COUNT", _CHUNKS_AT_ONCE, *wait, "STREAMS", key, str(after))
        reply = connection.call_bounded(*command, room=_ROOM_BYTES, block_ms=block_ms)
        given = [(parse_id(raw_id), _chunk(fields or [])) for _, raw_id, fields in entries(reply)]
        found = [(at, chunk) for at, chunk in given if chunk is not None]
        if found or not given:
            return found
        # All of it was none of ours: a reader that was told of nothing would ask for the same again at once.
        after = given[-1][0]


def _entry(key: str, chunk: LogChunk) -> Command:
    # A text may hold half of a surrogate pair, which no wire takes; the replacement is one character, too.
    return ("XADD", key, "*", b"s", chunk.stream, b"p", chunk.position, b"t", chunk.text.encode(errors="replace"))


def _chunk(fields: list[bytes]) -> LogChunk | None:
    named = dict(zip(fields[::2], fields[1::2], strict=False))
    try:
        stream, position = int(named[b"s"]), int(named[b"p"])
        if 0 <= stream <= MAX_INT and 0 <= position <= MAX_INT:  # who adds to a text may run out of digits otherwise
            return LogChunk(stream, position, named[b"t"].decode(errors="replace"))
    except (KeyError, ValueError):
        pass
    return None
