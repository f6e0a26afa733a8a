"""One executor as a process of this host: started, looked at, ended."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

from tenure.processes.control_group import memory_kills
from tenure.processes.trees import descendants, signal_all
from tenure.processes.watching import ProcessMark, mark_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_PRIVATE: Final = 0o600
_NEVER: Final = -1


@final
class LocalProcess:
    """One process, by its mark. `is_child` says that this process started it, and so gets its exit status."""

    def __init__(self, mark: ProcessMark, *, is_child: bool = False) -> None:
        self.mark: Final = mark
        self.code: int | None = None
        """Its exit code, or the negative number of the signal that ended it, once it was waited for."""
        self.out_of_memory = False
        """Whether the kernel has ended something for want of memory since it was last seen alive."""
        self._is_child = is_child
        self._is_over = False
        self._below: tuple[ProcessMark, ...] = ()
        self._memory_kills = memory_kills()
        self._asked_ms = _NEVER

    @property
    def was_killed(self) -> bool:
        """Whether it was ended from here."""
        return self._asked_ms != _NEVER

    @classmethod
    def start(cls, argv: Sequence[str], environment: Mapping[str, str], printed: Path) -> LocalProcess:
        """Start it in a session of its own; what it prints goes to that file. Raises OSError."""
        program = shutil.which(argv[0])
        if program is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
        into = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        pid = os.posix_spawn(
            program,
            list(argv),
            dict(environment),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(printed), into, _PRIVATE),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
        )
        # It is there until it is waited for, even when it has ended already.
        mark = mark_of(pid)
        return cls(mark or ProcessMark(pid, 0), is_child=True)

    def look(self) -> bool:
        """Whether it is alive; notes how it has ended when it is not."""
        if self._is_over:
            return False
        self._is_over = not (self._has_not_been_waited_for() if self._is_child else self.mark.is_alive())
        kills = memory_kills()
        if self._is_over:
            self.out_of_memory = kills is not None and self._memory_kills is not None and kills > self._memory_kills
        else:
            self._memory_kills = kills
            marks = map(mark_of, descendants(self.mark.pid))
            self._below = tuple(mark for mark in marks if mark is not None)
        return not self._is_over

    def end(self, now_ms: int, grace_ms: int) -> None:
        """SIGTERM, or SIGKILL when the first one was long enough ago."""
        if self._asked_ms == _NEVER:
            self._asked_ms = now_ms
            signal_all([self.mark.pid], signal.SIGTERM)
        self.insist(now_ms, grace_ms)

    def insist(self, now_ms: int, grace_ms: int) -> None:
        """SIGKILL if it was to end and has not done so in time; its runners end what they have started."""
        if self._asked_ms != _NEVER and now_ms - self._asked_ms >= grace_ms:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.mark.pid, signal.SIGKILL)
            signal_all([self.mark.pid], signal.SIGKILL)

    def wait(self) -> None:
        """Wait for the end of one that was just killed, so that nothing of it is left."""
        with suppress(ChildProcessError):
            os.waitpid(self.mark.pid, 0)

    def end_leftovers(self) -> None:
        """SIGKILL whatever of its tree still runs: its runners had their time to end it."""
        left = [mark.pid for mark in self._below if mark.is_alive()]
        below = [pid for each in left for pid in descendants(each)]
        signal_all([*left, *below], signal.SIGKILL)

    def _has_not_been_waited_for(self) -> bool:
        try:
            pid, status = os.waitpid(self.mark.pid, os.WNOHANG)
        except ChildProcessError:
            return False  # somebody else has waited for it
        if pid == 0:
            return True
        self.code = os.waitstatus_to_exitcode(status)
        return False
