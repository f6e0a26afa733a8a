"""Starting a program that does not outlive its starter, from a process that has threads or belongs to somebody else.

A small interpreter comes first: it asks the kernel for the parent-death signal and then becomes the program. Doing that
between fork and exec of the starter would not be safe beside threads. The signal comes when the *thread* that started
the program ends, so start it from one that lives as long as the program may.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from tenure.processes.linux import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Sequence

_SCRIPT: Final = """\
import sys
sys.path.append(sys.argv[1])
from tenure.processes.tied import become
become(int(sys.argv[2]), sys.argv[3:])
"""
_NOT_STARTED: Final = 127


def tied_argv(argv: Sequence[str]) -> list[str]:
    """The command line that this process starts instead of `argv`; `argv[0]` is the path of a program."""
    # -I -S: nothing of the environment and of installed packages; the program gets both as they are.
    return [sys.executable, "-I", "-S", "-c", _SCRIPT, str(Path(__file__).parents[2]), str(os.getpid()), *argv]


def become(parent: int, argv: Sequence[str]) -> NoReturn:
    """Be killed when `parent` ends, and become the program."""
    if sys.platform == "linux":
        die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(_NOT_STARTED)
    try:
        os.execv(argv[0], list(argv))  # noqa: S606 - no shell is the point
    except OSError as error:
        sys.exit(f"{argv[0]} cannot be started: {error.strerror}")
