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
    found: list[int] = []
    queue = [root]
    while queue:
        below = children(queue.pop())
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
    """SIGKILL every descendant of this process, and what they start meanwhile, until nothing new is seen.

    Orphans come to this process by themselves, so that each look takes microseconds: processes that fork without end
    cannot run ahead for long.
    """
    known: set[int] = set()
    while fresh := set(descendants(os.getpid())) - known:
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


def children(pid: int) -> list[int]:
    """Process ids of the children of `pid`, zombies included."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - pathlib is slow to import and to call here
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123
                found.extend(map(int, file.read().split()))
    except OSError:
        # It has ended meanwhile: its children belong to this process now, and are seen there.
        return found
    return found
