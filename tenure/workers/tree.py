"""One process tree of a runner: started, watched, ended, and proved gone."""

from __future__ import annotations

import errno
import os
import signal
from typing import TYPE_CHECKING, Final, final

from tenure.workers.control_group import memory_kills
from tenure.workers.outputs import Capture
from tenure.workers.spawning import Program, spawn
from tenure.workers.trees import descendants, kill_descendants, reap, signal_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.workers.runner_messages import Fields

_GLANCE_MS: Final = 500
"""A timer stands still while the host sleeps, so that deadlines are looked at this often."""
_KILL_AGAIN_MS: Final = 10
_LEFTOVER_GRACE_MS: Final = 500


@final
class Tree:
    """The tree of one child or command, while it lives."""

    def __init__(self, order: Fields, now_ms: int) -> None:
        self.run: Final[int] = order["run"]
        self.reason = ""
        self._order = order
        self._is_command = order["op"] == "command"
        self._until_ms: int | None = order["until"]
        self._grace_ms: int = order["grace"]
        self._began_ms = now_ms
        self._kill_at_ms: int | None = None
        self._leader = 0
        self._status: int | None = None
        self._stdout: Capture | None = None
        self._stderr: Capture | None = None
        self._memory_kills = (memory_kills(), memory_kills())

    def start(self, handed: Sequence[int]) -> int | None:
        """Start it with these descriptors; the errno when that is not possible."""
        order = self._order
        try:
            os.makedirs(order["cwd"], mode=0o700, exist_ok=True)  # noqa: PTH103 - pathlib is slow to import
            stdin = self._stdin()
        except OSError as error:
            return error.errno or errno.EIO
        if self._is_command:
            self._stdout, self._stderr = Capture(order["limit"]), Capture()
        captures = [capture for capture in (self._stdout, self._stderr) if capture is not None]
        program = Program(
            argv=[*order["argv"], *map(str, handed)],
            env=order["env"],
            cwd=order["cwd"],
            stdin=stdin,
            stdout=self._stdout.writable if self._stdout else 2,
            stderr=self._stderr.writable if self._stderr else 2,
            keep=handed,
        )
        try:
            self._leader = spawn(program)
        except OSError as error:
            for capture in captures:
                capture.drain()
            return error.errno or errno.EIO
        finally:
            os.close(stdin)
            for capture in captures:
                os.close(capture.writable)
        return None

    def descriptors(self) -> list[int]:
        """The pipes to read from, as long as they are open."""
        return [capture.readable for capture in (self._stdout, self._stderr) if capture is not None and capture.open]

    def read(self, descriptor: int) -> bool:
        """Read from one of the pipes; False when it has ended and must not be watched any more."""
        for capture in (self._stdout, self._stderr):
            if capture is not None and capture.readable == descriptor:
                return capture.read()
        return False

    def allow_until(self, until_ms: int | None, grace_ms: int) -> None:
        """Move the deadline."""
        # A child is reused for days: what was counted two renewals ago is not why it ends now.
        self._memory_kills = (self._memory_kills[1], memory_kills())
        self._until_ms, self._grace_ms = until_ms, grace_ms

    def end(self, reason: str, now_ms: int, grace_ms: int) -> None:
        """Ask the tree to end; after the grace it is killed. A later call can only shorten the grace."""
        kill_at_ms = now_ms + grace_ms
        if self._kill_at_ms is None:
            self.reason = reason
            self._kill_at_ms = kill_at_ms
            if grace_ms > 0:
                signal_all(descendants(os.getpid()), signal.SIGTERM)
        self._kill_at_ms = min(self._kill_at_ms, kill_at_ms)

    def patience_ms(self, now_ms: int) -> int:
        """How long nothing needs to be done, unless something happens."""
        ending = self._kill_at_ms is not None
        due = [at for at in (None if ending else self._until_ms, self._kill_at_ms) if at is not None]
        if not due:
            return -1
        shortest_ms = _KILL_AGAIN_MS if self._kill_at_ms is not None and now_ms >= self._kill_at_ms else 0
        return max(shortest_ms, min(_GLANCE_MS, min(due) - now_ms))

    def step(self, now_ms: int) -> bool:
        """Do what is due. True when the tree is proved gone."""
        if self._until_ms is not None and now_ms >= self._until_ms:
            self.end("deadline", self._until_ms, self._grace_ms)
        if self._kill_at_ms is not None and now_ms >= self._kill_at_ms:
            kill_descendants()
        ended, none_left = reap()
        if self._leader in ended:
            self._status = ended[self._leader]
            if not none_left:
                self.end("exit", now_ms, _LEFTOVER_GRACE_MS)
        return none_left

    def outputs(self) -> Fields:
        """What was kept of the output; closes the pipes."""
        return {
            "stdout": self._stdout.drain() if self._stdout else "",
            "over": self._stdout.over if self._stdout else False,
            "stderr": self._stderr.drain() if self._stderr else "",
        }

    def report(self, now_ms: int) -> Fields:
        """What the agent is told about the end."""
        return {
            "run": self.run,
            "reason": self.reason or "exit",
            "code": None if self._status is None else os.waitstatus_to_exitcode(self._status),
            "duration": now_ms - self._began_ms,
            "out_of_memory": memory_kills() != self._memory_kills[0],
        }

    def clean_up(self) -> None:
        """Remove the task's folder, as far as that is possible."""
        top: str = self._order["cwd"]
        for root, folders, files in os.walk(top, topdown=False):
            for name in [*files, *folders]:
                _remove(os.path.join(root, name))  # noqa: PTH118 - pathlib is slow to import
        _remove(top)

    def _stdin(self) -> int:
        text: str = self._order.get("stdin", "")
        if not text:
            return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        memory = os.memfd_create("stdin")
        data = text.encode(errors="surrogatepass")
        while data:
            data = data[os.write(memory, data) :]
        os.lseek(memory, 0, os.SEEK_SET)
        return memory


def _remove(path: str) -> None:
    try:
        if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
            os.rmdir(path)  # noqa: PTH106
        else:
            os.unlink(path)  # noqa: PTH108
    except OSError:
        return
