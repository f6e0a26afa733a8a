"""Replies to reading what others have written, of which no more is kept than they may hold.

Whoever may add to a stream may add entries of any size and of any number of fields, and a server hands them over whole.
The protocol says how long each value is before it comes: of every list of values no more than its *room* is kept, and
the rest is read and thrown away, so that a reader's memory is bounded by how many entries it has asked for. A reply of
which too much would have to be thrown away ends the connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from redis.exceptions import ConnectionError as DriverConnectionError
from redis.exceptions import InvalidResponse, ResponseError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.broker.redis_connection import Answer, Reply

_PIECE_BYTES: Final = 64 * 1024
VALUE_COST: Final = 64
"""What each value takes up in memory besides its bytes; an entry of a million empty fields is no small one."""

_MOST_KEPT_VALUES: Final = 64
"""Of a list; no entry has nearly as many."""

_MOST_THROWN_BYTES: Final = 256 * 1024 * 1024
_MOST_THROWN_VALUES: Final = 10_000
"""In a whole reply. To read a value takes about a microsecond, however little is in it."""


class ReplyTooLarge(DriverConnectionError):
    """A reply was not read to its end; the connection is of no use any more."""


@final
class CutList(list["Reply"]):
    """What was kept of a list of values.

    Attributes:
        thrown: what the rest took up: its bytes, and the cost of each value that is not there at all.
    """

    def __init__(self, kept: list[Reply], thrown: int) -> None:
        super().__init__(kept)
        self.thrown = thrown


@final
class BoundedReplies:
    """Reads replies in the second version of the protocol, one by one.

    Args:
        receive: the next bytes, at most as many as are asked for; none when the connection has ended.
        room: how many bytes of one list are kept; what is over is cut off its values, the last ones first.
    """

    def __init__(self, receive: Callable[[int], bytes], room: int) -> None:
        self._receive = receive
        self._room = room
        self._buffer = bytearray()
        self._at = 0
        self._thrown_bytes = 0
        self._thrown_values = 0

    def read(self) -> Answer:
        """The next reply. Raises errors of the driver's kinds."""
        self._thrown_bytes = self._thrown_values = 0
        line = self._line()
        if line[:1] == b"-":
            return ResponseError(line[1:].decode(errors="replace"))
        return self._value(line)

    def _value(self, line: bytes) -> Reply:
        kind, rest = line[:1], line[1:]
        match kind:
            case b"*":
                return self._list(int(rest)) if rest != b"-1" else None
            case b"$":
                return self._cut(int(rest), self._room) if rest != b"-1" else None
            case b":":
                return int(rest)
            case b"+":
                return rest
            case _:
                raise InvalidResponse(f"a reply that begins with {kind!r}")

    def _list(self, count: int) -> list[Reply]:
        found: list[Reply] = []
        room, thrown = self._room, 0
        for _ in range(count):
            line = self._line()
            if line[:1] != b"$":
                found.append(self._value(line))
                continue
            size = int(line[1:])
            room = room if len(found) < _MOST_KEPT_VALUES else 0
            value = self._cut(size, room) if size >= 0 else None
            thrown += max(size - room, 0)
            if room > 0:
                found.append(value)
            else:
                self._thrown_values += 1
                thrown += VALUE_COST
            room = max(room - size - VALUE_COST, 0)
        return CutList(found, thrown) if thrown else found

    def _cut(self, size: int, room: int) -> bytes:
        """A value of that size, or as much of it as there is room for."""
        kept = min(size, room)
        self._thrown_bytes += size - kept
        if self._thrown_bytes > _MOST_THROWN_BYTES or self._thrown_values > _MOST_THROWN_VALUES:
            raise ReplyTooLarge("its reply holds far more than any entry may hold")
        while len(self._buffer) - self._at < kept:
            self._fill()
        value = bytes(self._buffer[self._at : self._at + kept])
        self._skip(size + 2)
        return value

    def _skip(self, size: int) -> None:
        while (there := len(self._buffer) - self._at) < size:
            self._at += there
            size -= there
            self._fill()
        self._at += size

    def _line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n", self._at)) < 0:
            self._fill()
        line = bytes(self._buffer[self._at : end])
        self._at = end + 2
        return line

    def _fill(self) -> None:
        if self._at >= _PIECE_BYTES or self._at == len(self._buffer):
            del self._buffer[: self._at]
            self._at = 0
        piece = self._receive(_PIECE_BYTES)
        if not piece:
            raise DriverConnectionError("Connection closed by server.")
        self._buffer += piece
