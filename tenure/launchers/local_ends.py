"""What the end of a local executor says: a cause, and the last that it has printed."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Final

from tenure.launchers.base import Phase, Sighting
from tenure.protocol.worker_messages import Cause

if TYPE_CHECKING:
    from pathlib import Path

    from tenure.launchers.local_process import LocalProcess

_TAIL_BYTES: Final = 2_000
_MOST_CHARACTERS: Final = 500


def ending(process: LocalProcess, printed: Path) -> Sighting:
    """The sighting of a process that has ended: it is gone, and this host's kernel says so."""
    return Sighting(Phase.ENDED, _cause(process), _detail(process, printed), proved=True)


def _cause(process: LocalProcess) -> Cause | None:
    if process.code in {None, 0} or process.was_killed:
        return None
    # The kernel's count alone may be about a task; together with a SIGKILL that nobody here has sent it is about this.
    if process.code == -signal.SIGKILL and process.out_of_memory:
        return Cause.OOM_KILLED
    return Cause.EXECUTOR_DIED


def _detail(process: LocalProcess, printed: Path) -> str:
    code, pid = process.code, process.mark.pid
    if code is None:
        return f"process {pid} is gone; it has ended while nobody waited for it"
    how = f"was ended by {_signal_name(-code)}" if code < 0 else f"has ended with exit code {code}"
    last = _last_line(printed) if code else ""
    return f"process {pid} {how}: {last}" if last else f"process {pid} {how}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_line(printed: Path) -> str:
    try:
        with printed.open("rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - _TAIL_BYTES, 0))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip()[:_MOST_CHARACTERS] for line in reversed(lines) if line.strip()), "")
