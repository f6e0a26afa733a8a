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


def kill_descendants() -> dict[int, int]:
    """SIGKILL every descendant of this process, and what they start meanwhile, until nothing new is seen.

    Orphans come to this process by themselves. They are killed before anything deeper is looked for, and what has ended
    is collected at once: so a look takes microseconds however many there were, and processes that fork without end
    cannot run ahead for long. Answers the wait statuses of what was collected, by process id.
    """
    me = os.getpid()
    known: set[int] = set()
    ended: dict[int, int] = {}
    while fresh := set(children(me)) - known or set(descendants(me)) - known:
        kill_groups(fresh)
        signal_all(fresh, signal.SIGKILL)
        collected, _ = reap()
        ended |= collected
        known = (known | fresh) - collected.keys()
    return ended


def kill_groups(pids: Iterable[int]) -> None:
    """SIGKILL the process groups of those children: a group is killed as one, and no fork of its members escapes.

    An ended child that was not collected keeps its group's number from being used again. A group of this process's own
    session may have been joined by others, so only those are meant that a child has made with a session of its own.
    """
    own = os.getsid(0)
    for pid in pids:
        try:
            if os.getsid(pid) != own:
                os.killpg(os.getpgid(pid), signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


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
