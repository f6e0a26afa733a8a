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
    """Cuts a stream of bytes into the bodies that were framed; keeps what is incomplete for later."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, received: bytes) -> list[bytes]:
        """The bodies that are complete now. Raises `BrokenFrame` for a length that no frame has."""
        data = self._rest + received if self._rest else received
        bodies: list[bytes] = []
        start, end = 0, len(data)
        while end - start >= _HEAD:
            size = int.from_bytes(data[start : start + _HEAD], "big")
            if size > MAX_FRAME_BYTES:
                raise BrokenFrame(f"a frame of {size} bytes is over the limit of {MAX_FRAME_BYTES}")
            if end - start - _HEAD < size:
                break
            start += _HEAD + size
            bodies.append(data[start - size : start])
        self._rest = data[start:]
        return bodies
