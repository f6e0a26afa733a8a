"""Starting a program from the runner: a session of its own, chosen file descriptors, and death with its parent.

The runner has one thread, so that a plain fork is safe here; `subprocess` could set the parent-death signal only by
the same means, and it cannot pass descriptors that arrived over a socket under their own numbers.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, final

from tenure.processes.linux import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_EXPENDABLE: Final = 500


@final
class Standard(NamedTuple):
    """The descriptors that a program gets as its standard input, output and error."""

    stdin: int
    stdout: int
    stderr: int


@final
@dataclass(frozen=True, slots=True)
class Program:
    """What to start.

    `keep` names the descriptors that it inherits besides the three standard ones, `file_limit` is the largest file in
    bytes that it may write (0: any).
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    standard: Standard
    keep: Sequence[int] = ()
    file_limit: int = 0


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


def _be_limited(file_limit: int) -> None:
    """Dump no core, which would hold secrets and fill the disk; write no file that is larger than the limit."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if file_limit:
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        limit = file_limit if most == resource.RLIM_INFINITY else min(file_limit, most)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def _become(program: Program, writable: int, parent: int) -> NoReturn:
    try:
        os.setsid()
        die_with_parent(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        for descriptor, standard in zip(program.standard, (0, 1, 2), strict=True):
            os.dup2(descriptor, standard)
        for descriptor in program.keep:
            os.set_inheritable(descriptor, True)  # noqa: FBT003 - the standard library takes it by position only
        _be_expendable()
        _be_limited(program.file_limit)
        os.chdir(program.cwd)
        os.execvpe(program.argv[0], list(program.argv), dict(program.env))  # noqa: S606 - no shell is the point
    except (OSError, ValueError) as error:
        os.write(writable, str(getattr(error, "errno", errno.EINVAL)).encode())
    finally:
        os._exit(127)
