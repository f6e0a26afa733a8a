"""What a command prints as it is passed on to the agent: bounded in rate, with gaps where something was left out.

A command that prints faster than anybody could read costs the agent no more than one that prints a little: of each
period, the newest text of each stream is passed on. Positions count what was left out.
"""

from __future__ import annotations

import codecs
from typing import Final, final

PERIOD_MS: Final = 100
NEWEST: Final = 64 * 1024
"""Characters of one stream that are passed on per period."""
_MOST_PIECES: Final = 1_000

Triple = tuple[int, int, str]
"""Stream, position, text."""


@final
class Printing:
    """Collects the text of both streams in the order in which it came. `left_out` counts the characters not passed."""

    def __init__(self) -> None:
        self.left_out = 0
        self._position = 0
        self._pieces: list[Triple] = []
        self._held = {1: 0, 2: 0}
        self._next_ms = 0

    def take(self, stream: int, text: str) -> None:
        """Take text that was printed to stream 1 or 2."""
        position = self._position
        self._position += len(text)
        if not text:
            return
        last = self._pieces[-1] if self._pieces else None
        if last is not None and last[0] == stream and last[1] + len(last[2]) == position:
            self._pieces[-1] = (stream, last[1], last[2] + text)
        else:
            self._pieces.append((stream, position, text))
        self._held[stream] += len(text)
        self._shorten(stream)

    def due_ms(self) -> int | None:
        """When something is to be passed on; None when there is nothing."""
        return self._next_ms if self._pieces else None

    def pass_on(self, now_ms: int) -> list[Triple]:
        """What has come since the last time."""
        pieces, self._pieces = self._pieces, []
        self._held = {1: 0, 2: 0}
        self._next_ms = now_ms + PERIOD_MS
        return pieces

    def _shorten(self, stream: int) -> None:
        over = self._held[stream] - NEWEST
        if over > 0:
            self._drop(stream, over)
        while len(self._pieces) > _MOST_PIECES:
            first, _, text = self._pieces[0]
            self._drop(first, len(text))

    def _drop(self, stream: int, characters: int) -> None:
        """Leave out that many of the oldest characters of the stream."""
        self.left_out += characters
        self._held[stream] -= characters
        shortened: list[Triple] = []
        for piece in self._pieces:
            cut = min(characters, len(piece[2])) if piece[0] == stream else 0
            characters -= cut
            if cut < len(piece[2]):
                shortened.append((piece[0], piece[1] + cut, piece[2][cut:]))
        self._pieces = shortened


@final
class PrintedText:
    """One stream's bytes on their way to `Printing`, as whole characters."""

    def __init__(self, stream: int, printing: Printing) -> None:
        self._stream = stream
        self._printing = printing
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def take(self, data: bytes) -> None:
        """Pass on what is complete."""
        self._printing.take(self._stream, self._decoder.decode(data))

    def finish(self) -> None:
        """Pass on what was begun."""
        self._printing.take(self._stream, self._decoder.decode(b"", final=True))
