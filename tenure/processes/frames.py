"""Length-framed bytes over a stream socket: four bytes of length, then as many bytes. Loaded by every process."""

from __future__ import annotations

from typing import Final, final

_HEAD: Final = 4
MAX_FRAME_BYTES: Final = 8 * 1024 * 1024


class BrokenFrame(ValueError):
    """The stream holds something that is no frame; nothing after it can be read."""


def frame(body: bytes) -> bytes:
    """`body` with its length in front."""
    return len(body).to_bytes(_HEAD, "big") + body


@final
class Unframer:
    """Cuts a stream of bytes into the bodies that were framed; keeps what is incomplete for later.

    Args:
        limit_bytes: the largest body that is taken.
    """

    def __init__(self, limit_bytes: int = MAX_FRAME_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._rest = bytearray()

    def feed(self, received: bytes) -> list[bytes]:
        """The bodies that are complete now. Raises `BrokenFrame` for a length that no frame has."""
        # Added to in place: copying what is there for every piece of a large body would take forever.
        data = self._rest
        data += received
        bodies: list[bytes] = []
        start, end = 0, len(data)
        while end - start >= _HEAD:
            size = int.from_bytes(data[start : start + _HEAD], "big")
            if size > self._limit_bytes:
                raise BrokenFrame(f"a frame of {size} bytes is over the limit of {self._limit_bytes}")
            if end - start - _HEAD < size:
                break
            start += _HEAD + size
            bodies.append(bytes(data[start - size : start]))
        del data[:start]
        return bodies
