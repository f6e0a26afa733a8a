"""Starting a program from the runner: a session of its own, chosen file descriptors, and death with its parent.

The runner has one thread, so that a plain fork is safe here; `subprocess` could set the parent-death signal only by
the same means, and it cannot pass descriptors that arrived over a socket under their own numbers.
"""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn, final

from tenure.workers.linux import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_EXPENDABLE: Final = 500


@final
@dataclass(frozen=True, slots=True)
class Program:
    """What to start. `keep` names the descriptors that it inherits besides the three standard ones."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    stdin: int
    stdout: int
    stderr: int
    keep: Sequence[int] = ()


def spawn(program: Program) -> int:
    """Start the program and answer its process id. Raises OSError when it cannot be executed."""
    readable, writable = os.pipe()
    this = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(program, writable, this)
    os.close(writable)
    with os.fdopen(readable, "rb") as pipe:
        problem = pipe.read()
    if problem:
        os.waitpid(pid, 0)
        code = int(problem)
        raise OSError(code, os.strerror(code))
    return pid


def _be_expendable() -> None:
    """When memory runs out, the kernel shall end tasks and not the processes that look after them."""
    try:
        with open("/proc/self/oom_score_adj", "r+", encoding="ascii") as file:  # noqa: PTH123 - pathlib is slow to import
            if int(file.read()) < _EXPENDABLE:
                file.write(f"{_EXPENDABLE}\n")
    except (OSError, ValueError):
        return


def _become(program: Program, writable: int, parent: int) -> NoReturn:
    try:
        os.setsid()
        die_with_parent(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(program.stdin, 0)
        os.dup2(program.stdout, 1)
        os.dup2(program.stderr, 2)
        for descriptor in program.keep:
            os.set_inheritable(descriptor, True)  # noqa: FBT003 - the standard library takes it by position only
        _be_expendable()
        os.chdir(program.cwd)
        os.execvpe(program.argv[0], list(program.argv), dict(program.env))  # noqa: S606 - no shell is the point
    except (OSError, ValueError) as error:
        os.write(writable, str(getattr(error, "errno", errno.EINVAL)).encode())
    finally:
        os._exit(127)
