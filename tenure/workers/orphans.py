"""What a killed runner leaves behind, and its end.

A runner that is killed cannot end its tree. The kernel ends the tree's first process with it, but not what that one had
started. An agent that has its process to itself adopts such orphans (`linux.adopt_orphans`), so that it can end them,
and prove it: they are gone when it has no child left but its runners.
"""

from __future__ import annotations

import os
import select
import signal
from typing import TYPE_CHECKING, Final

from tenure.processes.trees import children, descendants, kill_groups, signal_all

if TYPE_CHECKING:
    from collections.abc import Collection

_ROUNDS: Final = 20
_ROUND_MS: Final = 25
"""All rounds together take half a second at most: a process that the kernel cannot end now must not hold us up."""


def end_orphans(kept: Collection[int]) -> bool:
    """End everything below this process but the children `kept` and what is below them; whether nothing is left."""
    for _ in range(_ROUNDS):
        orphans = [pid for pid in children(os.getpid()) if pid not in kept]
        if not orphans:
            return True
        kill_groups(orphans)
        signal_all([pid for orphan in orphans for pid in (orphan, *descendants(orphan))], signal.SIGKILL)
        _reap(orphans)
    return False


def _reap(pids: Collection[int]) -> None:
    """Wait a moment for their ends and collect them; what they leave behind comes to this process."""
    poll = select.poll()
    # A child that was not waited for keeps its number, so these are the processes that were meant.
    opened = [os.pidfd_open(pid) for pid in pids]
    for descriptor in opened:
        poll.register(descriptor, select.POLLIN)
    poll.poll(_ROUND_MS)
    for descriptor in opened:
        os.close(descriptor)
    for pid in pids:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            continue
