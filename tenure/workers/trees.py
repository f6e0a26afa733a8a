"""Process trees: finding every descendant, signalling it, and proving that none is left.

The proof is the kernel's: this process is a subreaper, so every descendant whose parent has died is its child. When it
has no child, it has no descendant.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def descendants(root: int) -> list[int]:
    """Process ids of all descendants of `root`, zombies included."""
    children: dict[int, list[int]] = {}
    for pid, parent in _processes():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    queue = [root]
    while queue:
        below = children.get(queue.pop(), [])
        found.extend(below)
        queue.extend(below)
    return found


def signal_all(pids: Iterable[int], signal_number: int) -> None:
    """Send the signal to each of them that still exists."""
    for pid in pids:
        try:
            os.kill(pid, signal_number)
        except (ProcessLookupError, PermissionError):
            continue


def kill_descendants() -> None:
    """SIGKILL every descendant of this process; looks again while new ones appear, because they may fork meanwhile."""
    known: set[int] = set()
    while True:
        fresh = set(descendants(os.getpid())) - known
        if not fresh:
            return
        # Stopped first, so that processes that fork without end cannot run ahead of the one that kills.
        signal_all(fresh, signal.SIGSTOP)
        signal_all(fresh, signal.SIGKILL)
        known |= fresh


def reap() -> tuple[dict[int, int], bool]:
    """Collect ended children: their wait statuses by process id, and whether no child at all is left."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, True
        if pid == 0:
            return ended, False
        ended[pid] = status


def _processes() -> Iterable[tuple[int, int]]:
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib is slow to import
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - pathlib is slow to import and to call here
                # The name in parentheses may itself hold parentheses and spaces.
                state, parent = file.read().rpartition(b")")[2].split(None, 2)[:2]
        except (OSError, ValueError):
            continue
        # A zombie may be the first thread of a process whose other threads live on, so it counts.
        if state != b"X":
            yield int(name), int(parent)
