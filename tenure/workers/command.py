"""What is special about a command, beside its process tree: its folder, its output, and what it may use."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final, final

from tenure.workers.limits import Watch
from tenure.workers.masking import Mask, MaskedStream
from tenure.workers.outputs import Capture, Kept, Sink
from tenure.workers.printing import PrintedText, Printing
from tenure.workers.progress_file import LONGEST_LINE, ProgressFile
from tenure.workers.spawning import Standard
from tenure.workers.task_folder import TaskFolder
from tenure.workers.told_lines import Cutter, LineQueue, SortedOutput

if TYPE_CHECKING:
    from tenure.clock import Clock
    from tenure.workers.removal import Removal
    from tenure.workers.runner_messages import Fields

_LOOK_EVERY_MS: Final = 200
_RELAX_EVERY_MS: Final = 100
_FLOOD_BYTES: Final = 64 * 1024
_AROUND_A_VALUE: Final = 1_024
"""Bytes of a line besides the value in it: the name of a field, a state's name."""


@final
class Command:
    """One command, from its order to the removal of its folder."""

    def __init__(self, order: Fields, clock: Clock) -> None:
        self.run: Final[int] = order["run"]
        self._order = order
        self._clock = clock
        self._form: str = order.get("form", "stdout")
        self._folder = TaskFolder(order["cwd"], order.get("keep", ""))
        self._printing = Printing()
        self._lines = LineQueue()
        self._captures: list[Capture] = []
        self._kept = (Kept(order["limit"]), Kept())
        self._longest_line: int = order["limit"] + _AROUND_A_VALUE if self._form == "lines" else LONGEST_LINE
        self._cutter = Cutter(self._lines.put, self._longest_line)
        self._progress: ProgressFile | None = None
        self._mask = Mask({})
        self._watch: Watch | None = None
        self._look_at_ms = 0
        self._relax_at_ms = 0

    # --- its beginning --------------------------------------------------------------------------

    def prepare(self) -> Standard:
        """Make its folder and its pipes. Raises OSError."""
        order = self._order
        self._folder.make(order.get("task"), order.get("secrets", ()))
        self._mask = Mask(self._folder.secrets)
        stdin = _text_to_read(self._stdin())
        if self._form != "lines":
            self._progress = ProgressFile(self._folder.top, MaskedStream(self._mask), self._cutter)
        self._captures = [
            Capture(MaskedStream(self._mask), self._stdout_sinks()),
            Capture(MaskedStream(self._mask), [self._kept[1], PrintedText(2, self._printing)]),
        ]
        self._watch = Watch(order.get("limits", {}), self._folder.top, self._clock, self._printed)
        return Standard(stdin, self._captures[0].writable, self._captures[1].writable)

    @property
    def file_limit(self) -> int:
        """The largest file that it may write; 0: any."""
        return int(self._order.get("limits", {}).get("file", 0))

    # --- while it runs --------------------------------------------------------------------------

    def descriptors(self) -> list[int]:
        """The pipes to read from, as long as they are open."""
        return [capture.readable for capture in self._captures if capture.open]

    def read(self, descriptor: int) -> bool:
        """Read from one of the pipes; False when it has ended and must not be watched any more."""
        for capture in self._captures:
            if capture.readable == descriptor:
                return capture.read()
        return False

    def due_ms(self) -> int | None:
        """When something needs to be looked at or passed on."""
        due = [self._printing.due_ms(), self._lines.due_ms(), self._watch.due_ms() if self._watch else None]
        due.append(self._look_at_ms if self._progress is not None else None)
        return min((at for at in due if at is not None), default=None)

    def look(self, now_ms: int) -> str:
        """Look at what is due; the name of a limit that was broken, or ""."""
        if self._progress is not None and now_ms >= self._look_at_ms:
            self._look_at_ms = now_ms + _LOOK_EVERY_MS
            if self._lines.has_room:
                self._progress.look()
        if now_ms >= self._relax_at_ms:
            self._relax_at_ms = now_ms + _RELAX_EVERY_MS
            self._cutter.relax()
        if self._watch is None:
            return ""
        self._watch.look()
        return self._watch.breach

    def news(self, now_ms: int, *, all_of_it: bool = False) -> list[Fields]:
        """What is to be told to the agent now."""
        news: list[Fields] = []
        due_ms = self._printing.due_ms()
        if due_ms is not None and (all_of_it or now_ms >= due_ms):
            news.append({"run": self.run, "printed": self._printing.pass_on(now_ms)})
        due_ms = self._lines.due_ms()
        while due_ms is not None and (all_of_it or now_ms >= due_ms):
            news.append({"run": self.run, "lines": self._lines.pass_on(now_ms)})
            due_ms = self._lines.due_ms()
        return news

    # --- its end --------------------------------------------------------------------------------

    def finish(self, *, code: int | None, by_itself: bool) -> Fields:
        """Read what is left, and say what the agent is told of it."""
        for capture in self._captures:
            capture.drain()
        if self._progress is not None:
            self._progress.finish()
        if self._watch is not None and by_itself:
            self._watch.finish(failed=code != 0)
        elif self._watch is not None:
            self._watch.close()
        stdout, stderr = self._kept
        return {
            "stdout": stdout.text() if self._form == "stdout" else "",
            "over": self._cutter.over if self._form == "lines" else stdout.over,
            "stderr": stderr.text(),
            "breach": self._watch.breach if self._watch is not None else "",
            "allowed": self._watch.allowed if self._watch is not None else 0,
            "full": code != 0 and self._folder.disk_is_full(),
            "secret": self._folder.unknown_secret,
            "left_out": [self._printing.left_out, self._lines.left_out + self._cutter.skipped],
            "result": None,
            "forbidden": "",
            "damaged": "",
            **(self._result() if self._form == "folder" and code == 0 else {}),
        }

    def dispose(self) -> Removal:
        """The removal of its folder, or of what must not be kept of it."""
        return self._folder.dispose()

    def _result(self) -> dict[str, Any]:
        found = self._folder.result(self._order["limit"])
        if found["result"] is not None:
            found["result"] = self._mask.all_of(found["result"].encode()).decode(errors="replace")
        return found

    def _stdin(self) -> str:
        text: str = self._order.get("stdin", "")
        return text if text or self._form != "lines" else json.dumps(self._order.get("task")) + "\n"

    def _stdout_sinks(self) -> list[Sink]:
        if self._form != "lines":
            return [self._kept[0], PrintedText(1, self._printing)]
        self._lines = LineQueue(max(256 * 1024, 4 * self._longest_line))
        self._cutter = Cutter(SortedOutput(self._lines, self._printing).give, self._longest_line, _FLOOD_BYTES)
        return [self._cutter]

    def _printed(self) -> int:
        return sum(capture.count for capture in self._captures)


def _text_to_read(text: str) -> int:
    """A descriptor that the text can be read from once."""
    if not text:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    memory = os.memfd_create("stdin")
    data = text.encode(errors="surrogatepass")
    while data:
        data = data[os.write(memory, data) :]
    os.lseek(memory, 0, os.SEEK_SET)
    return memory
