"""What a command may use, watched while it runs: memory of its tree, what its folder holds, what it prints.

Looking costs time, so that what takes longer to look at is looked at less often: about 4 % of one processor at
most, and of a task that does little far less.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, final

from tenure.processes.trees import descendants
from tenure.workers.folder_scan import Scan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tenure.clock import Clock

_MEMORY_EVERY_MS: Final = 200
_SCAN_EVERY_MS: Final = 500
_LONGEST_PAUSE_MS: Final = 10_000
_TIMES_THE_COST: Final = 25
_ENTRIES: Final = 500
_STEP_EVERY_MS: Final = 20
_LAST_ENTRIES: Final = 1_000_000
_MOST_PROCESSES: Final = 2_000
_PAGE: Final = os.sysconf("SC_PAGESIZE")
FOLDERS: Final = frozenset({"inputs", "outputs", "checkpoint", "secrets"})
# The program has not written these, however large they are; where it writes there, the kernel holds the limit.
_GIVEN: Final = frozenset({"inputs", "secrets", "task.json"})


@final
class Watch:
    """Watches one command. `breach` is the name of the limit that it broke first, or "".

    Args:
        limits: `memory`, `disk`, `file`, `files` and `printed`; 0: none.
        folder: descriptor of the task's folder.
        clock: tells what looking costs.
        printed: how many bytes were printed so far.
    """

    def __init__(self, limits: Mapping[str, int], folder: int, clock: Clock, printed: Callable[[], int]) -> None:
        self.breach = ""
        self._limits = {name: limits.get(name, 0) for name in ("memory", "disk", "file", "files", "printed")}
        self._folder = folder
        self._clock = clock
        self._printed = printed
        self._scan: Scan | None = None
        self._memory_due_ms = self._scan_due_ms = clock.elapsed_ms()

    @property
    def allowed(self) -> int:
        """The limit that was broken, as a number."""
        return self._limits.get(self.breach, 0)

    def due_ms(self) -> int | None:
        """When to look next; None when there is nothing to look at."""
        due = [self._memory_due_ms] if self._limits["memory"] else []
        due += [self._scan_due_ms] if self._watches_folder else []
        return min(due, default=None)

    def look(self) -> None:
        """Look at what is due."""
        now_ms = self._clock.elapsed_ms()
        self._look_at_output()
        if self._limits["memory"] and now_ms >= self._memory_due_ms:
            self._look_at_memory(now_ms)
        if self._watches_folder and now_ms >= self._scan_due_ms:
            self._look_at_folder(now_ms)

    def finish(self, *, failed: bool) -> None:
        """Look at all that is left when the command has ended by itself."""
        self.close()
        self._look_at_output()
        if self.breach or not self._watches_folder:
            return
        scan = Scan(self._folder, FOLDERS, _GIVEN)
        entries = 0
        while not scan.step(_ENTRIES) and entries < _LAST_ENTRIES:
            entries += _ENTRIES
            if self._judge(scan):
                break
        self._judge(scan)
        scan.close()
        # A write that came to the limit was cut there, and the program may have failed over it.
        if failed and 0 < self._limits["file"] <= scan.largest:
            self._break("file")

    def close(self) -> None:
        """Look no more."""
        if self._scan is not None:
            self._scan.close()
            self._scan = None

    @property
    def _watches_folder(self) -> bool:
        return any(self._limits[name] for name in ("disk", "file", "files"))

    def _look_at_output(self) -> None:
        if 0 < self._limits["printed"] < self._printed():
            self._break("printed")

    def _break(self, name: str) -> None:
        self.breach = self.breach or name

    def _look_at_memory(self, began_ms: int) -> None:
        pids = descendants(os.getpid())[:_MOST_PROCESSES]
        limit = self._limits["memory"]
        if sum(map(_resident, pids)) > limit and shared_out(pids, _share) > limit:
            self._break("memory")
        self._memory_due_ms = self._after(began_ms, _MEMORY_EVERY_MS)

    def _look_at_folder(self, now_ms: int) -> None:
        if self._scan is None:
            self._scan = Scan(self._folder, FOLDERS, _GIVEN)
        is_done = self._scan.step(_ENTRIES)
        if is_done and self._limits["disk"]:
            self._scan.add_unlinked(descendants(os.getpid())[:_MOST_PROCESSES])
        self._judge(self._scan)
        if is_done:
            self.close()
            self._scan_due_ms = self._after(now_ms, _SCAN_EVERY_MS)
        else:
            self._scan_due_ms = self._after(now_ms, _STEP_EVERY_MS)

    def _judge(self, scan: Scan) -> bool:
        for name, used in (("files", scan.files), ("disk", scan.used), ("file", scan.largest)):
            if 0 < self._limits[name] < used:
                self._break(name)
        if scan.too_deep:
            self._break("files")
        return bool(self.breach)

    def _after(self, began_ms: int, shortest_ms: int) -> int:
        now_ms = self._clock.elapsed_ms()
        pause_ms = min(_LONGEST_PAUSE_MS, (now_ms - began_ms) * _TIMES_THE_COST)
        return now_ms + max(shortest_ms, pause_ms)


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb", buffering=0) as file:  # noqa: PTH123 - pathlib is slow to import
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


def shared_out(pids: Sequence[int], share: Callable[[int], int]) -> int:
    """The memory of all these processes together, where a page that several have counts once, by each one's `share`.

    Each is read twice and the smaller share counts: a process that forks between two readings would be counted whole
    the first time, and its child in part as well.
    """
    first = [share(pid) for pid in pids]
    return sum(min(before, share(pid)) for before, pid in zip(first, pids, strict=True))


def _share(pid: int) -> int:
    """Its memory, where a page that several processes have counts once among them all."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:  # noqa: PTH123
            lines = [line.split() for line in file]
    except OSError:
        return _resident(pid)
    return next((int(fields[1]) * 1024 for fields in lines if fields[:1] == [b"Pss:"]), 0)
