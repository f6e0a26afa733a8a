"""What one call has printed and not sent yet: masked, in order, and bounded."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from tenure.workers.calls import Printed

if TYPE_CHECKING:
    from tenure.workers.child_secrets import GivenSecrets

MOST_WAITING: Final = 64 * 1024
"""How many characters of one call wait at most."""


@final
class Sheet:
    """What one call has printed and not sent yet. Used under the lock of `Prints`."""

    def __init__(self, call: int, given: GivenSecrets) -> None:
        self._call = call
        self._given = given
        self._held: dict[int, str] = {}
        self._position = 0
        self._waiting = 0
        self._pieces: deque[tuple[int, int, list[str]]] = deque()
        self.ended = False
        """The call is over: whatever a thread that it left behind prints is nobody's."""

    def write(self, stream: int, text: str) -> None:
        """Take what was printed, masked; what may be the beginning of a secret waits for what follows."""
        told, rest = self._given.beginning_of(self._held.pop(stream, "") + text)
        if rest:
            self._held[stream] = rest
        if told:
            self._add(stream, told)

    def finish(self) -> None:
        """The call is over: nothing follows any more."""
        self.ended = True
        for stream, rest in self._held.items():
            self._add(stream, self._given.text(rest))
        self._held.clear()

    def _add(self, stream: int, text: str) -> None:
        """Keep a text; the oldest goes when it becomes too much."""
        skipped = max(len(text) - MOST_WAITING, 0)
        self._position += skipped
        text = text[skipped:]
        follows = bool(self._pieces) and self._pieces[-1][0] == stream and not skipped
        if follows and self._waiting < MOST_WAITING // 2:
            self._pieces[-1][2].append(text)
        else:
            self._pieces.append((stream, self._position, [text]))
        self._position += len(text)
        self._waiting += len(text)
        while self._waiting > MOST_WAITING and len(self._pieces) > 1:
            self._waiting -= sum(map(len, self._pieces.popleft()[2]))

    def take(self) -> Printed | None:
        """The oldest piece, which is sent now; None when nothing waits."""
        if not self._pieces:
            return None
        stream, position, texts = self._pieces.popleft()
        text = "".join(texts)
        self._waiting -= len(text)
        return Printed(self._call, position, stream, text)
