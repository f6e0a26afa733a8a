"""The lines that a command tells: cut from bytes, bounded in length and number, in order. Loaded by the runner.

When a command tells more than can be passed on, the oldest lines are left out, first those that only say how far it
is: the newest count, and a line that names a checkpoint or gives a result is the last to go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.workers.printing import Printing

PERIOD_MS: Final = 100
_BATCH_CHARACTERS: Final = 64 * 1024
_BATCH_LINES: Final = 200
_MOST_CHARACTERS: Final = 256 * 1024
_RESULT: Final = '"result"'
_CHECKPOINT: Final = '"checkpoint"'
_LAST_OF_A_FLOOD: Final = 512
_PER_LINE: Final = 64
"""What a line costs besides its text, so that empty ones are not for free."""


@final
class Cutter:
    """Cuts bytes into lines of at most `longest` bytes; a longer one is left out, and `over` says so.

    Args:
        give: takes each line.
        longest: how long a line may be.
        flood: how many bytes may come between two calls of `relax`; of more, only lines that matter are cut, and the
            last ones. `skipped` counts the others. 0: any number.
    """

    def __init__(self, give: Callable[[str], None], longest: int, flood: int = 0) -> None:
        self.over = False
        self.skipped = 0
        self._give = give
        self._longest = longest
        self._flood = flood
        self._taken = 0
        self._begun = b""
        self._skips = False

    def relax(self) -> None:
        """Some time has passed."""
        self._taken = 0

    def take(self, data: bytes) -> None:
        """Take the next piece."""
        self._taken += len(data)
        if 0 < self._flood < self._taken and len(data) > _LAST_OF_A_FLOOD:
            data = self._last_of(data)
        *whole, begun = data.split(b"\n")
        for line in whole:
            self._end_line(line)
        self._add(begun)

    def finish(self) -> None:
        """Nothing more will come: what was begun is a line."""
        if self._begun or self._skips:
            self._end_line(b"")

    def forget(self) -> None:
        """What was begun will not be continued."""
        self._begun, self._skips = b"", False

    def _last_of(self, data: bytes) -> bytes:
        """The last lines of a piece; all of it when a line in it matters."""
        cut = data.rfind(b"\n", 0, -_LAST_OF_A_FLOOD) + 1
        head = self._begun + data[:cut]
        if cut == 0 or _RESULT.encode() in head or _CHECKPOINT.encode() in head:
            return data
        self.skipped += data.count(b"\n", 0, cut)
        self.forget()
        return data[cut:]

    def _add(self, data: bytes) -> None:
        if self._skips or len(self._begun) + len(data) > self._longest:
            self._begun, self._skips = b"", True
        else:
            self._begun += data

    def _end_line(self, data: bytes) -> None:
        self._add(data)
        line, skipped = self._begun.strip(), self._skips
        self.forget()
        self.over = self.over or skipped
        if line:
            self._give(line.decode(errors="replace"))


@final
class LineQueue:
    """Lines that wait to be passed on. `left_out` counts those that were not.

    Args:
        room: characters that may wait.
    """

    def __init__(self, room: int = _MOST_CHARACTERS) -> None:
        self.left_out = 0
        self._room = room
        self._lines: list[tuple[str, bool]] = []
        self._cost = 0
        self._next_ms = 0

    @property
    def has_room(self) -> bool:
        """Whether less waits than is passed on at a time."""
        return self._cost < _BATCH_CHARACTERS

    def put(self, line: str) -> None:
        """Add the next line."""
        self._lines.append((line, _RESULT in line or _CHECKPOINT in line))
        self._cost += _cost(line)
        if self._cost > self._room:
            self._thin_out()

    def due_ms(self) -> int | None:
        """When lines are to be passed on; None when there is none."""
        return self._next_ms if self._lines else None

    def pass_on(self, now_ms: int) -> list[str]:
        """The next lines."""
        self._next_ms = now_ms + PERIOD_MS
        batch: list[str] = []
        cost = 0
        for line, _ in self._lines[:_BATCH_LINES]:
            cost += _cost(line)
            if batch and cost > _BATCH_CHARACTERS:
                break
            batch.append(line)
        del self._lines[: len(batch)]
        self._cost -= sum(map(_cost, batch))
        return batch

    def _thin_out(self) -> None:
        """Keep half of the room: the newest of the lines that matter, then the newest of the others."""
        budget = self._room // 2
        kept: set[int] = set()
        for wanted in (True, False):
            for number in range(len(self._lines) - 1, -1, -1):
                line, matters = self._lines[number]
                if matters is wanted:
                    budget -= _cost(line)
                    if budget < 0:
                        break
                    kept.add(number)
        self.left_out += len(self._lines) - len(kept)
        self._lines = [self._lines[number] for number in sorted(kept)]
        self._cost = sum(_cost(line) for line, _ in self._lines)


@final
class SortedOutput:
    """Standard output of the form `lines`: what looks like an object is told, everything else is text."""

    def __init__(self, lines: LineQueue, printing: Printing) -> None:
        self._lines = lines
        self._printing = printing

    def give(self, line: str) -> None:
        """Take the next line."""
        if line.startswith("{"):
            self._lines.put(line)
        else:
            self._printing.take(1, f"{line}\n")


def _cost(line: str) -> int:
    return len(line) + _PER_LINE
