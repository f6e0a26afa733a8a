"""One process tree of a runner: started, watched, ended, and proved gone."""

from __future__ import annotations

import errno
import os
import signal
from typing import TYPE_CHECKING, Final, final

from tenure.processes.control_group import memory_kills
from tenure.processes.trees import descendants, kill_descendants, reap, signal_all
from tenure.workers.command import Command
from tenure.workers.removal import Removal
from tenure.workers.spawning import Program, Standard, spawn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.clock import Clock
    from tenure.workers.runner_messages import Fields

_GLANCE_MS: Final = 500
"""A timer stands still while the host sleeps, so that deadlines are looked at this often."""
_KILL_AGAIN_MS: Final = 10
_LEAVE_MS: Final = 100
"""What ends with its program, a moment after it, was not left behind."""
_LEFTOVER_GRACE_MS: Final = 500


@final
class Tree:
    """The tree of one child or command, while it lives. `command` is None for a child."""

    def __init__(self, order: Fields, clock: Clock) -> None:
        self.run: Final[int] = order["run"]
        self.reason = ""
        self.command: Final = Command(order, clock) if order["op"] == "command" else None
        self._order = order
        self._until_ms: int | None = order["until"]
        self._grace_ms: int = order["grace"]
        self._began_ms = clock.elapsed_ms()
        self._kill_at_ms: int | None = None
        self._leave_until_ms: int | None = None
        self._left = 0
        self._leader = 0
        self._status: int | None = None
        self._memory_kills = (memory_kills(), memory_kills())

    def start(self, handed: Sequence[int]) -> int | None:
        """Start it with these descriptors; the errno when that is not possible."""
        try:
            standard = self._prepare()
        except OSError as error:
            return error.errno or errno.EIO
        order = self._order
        program = Program(
            argv=[*order["argv"], *map(str, handed)],
            env=order["env"],
            cwd=order["cwd"],
            standard=standard,
            keep=handed,
            file_limit=self.command.file_limit if self.command is not None else 0,
        )
        try:
            self._leader = spawn(program)
        except OSError as error:
            return error.errno or errno.EIO
        finally:
            for descriptor in {*standard} - {2}:
                os.close(descriptor)
        return None

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
        is_past = self._until_ms is not None and now_ms >= self._until_ms
        until_ms = None if ending and is_past else self._until_ms
        due = [at for at in (until_ms, self._kill_at_ms, None if ending else self._leave_until_ms) if at is not None]
        at_least_ms = _KILL_AGAIN_MS if self._kill_at_ms is not None and now_ms >= self._kill_at_ms else 0
        patience_ms = max(at_least_ms, min(_GLANCE_MS, min(due) - now_ms)) if due else -1
        soon_ms = self.command.due_ms() if self.command is not None else None
        if soon_ms is None:
            return patience_ms
        rest_ms = max(0, soon_ms - now_ms)
        return rest_ms if patience_ms < 0 else min(rest_ms, patience_ms)

    def step(self, now_ms: int) -> bool:
        """Do what is due. True when the tree is proved gone."""
        if self._until_ms is not None and now_ms >= self._until_ms:
            self.end("deadline", self._until_ms, self._grace_ms)
        if self.command is not None and self.command.look(now_ms) and self._kill_at_ms is None:
            self.end("exit", now_ms, 0)
        is_due = self._kill_at_ms is not None and now_ms >= self._kill_at_ms
        killed = kill_descendants() if is_due else {}
        ended, none_left = reap()
        ended |= killed
        if self._leader in ended:
            self._status = ended[self._leader]
            self._leave_until_ms = now_ms + _LEAVE_MS
        if self._leave_until_ms is not None and now_ms >= self._leave_until_ms and not none_left:
            self._end_leftovers(now_ms)
        return none_left

    def report(self, now_ms: int) -> Fields:
        """What the agent is told about the end."""
        code = None if self._status is None else os.waitstatus_to_exitcode(self._status)
        reason = self.reason or "exit"
        report: Fields = {
            "run": self.run,
            "reason": reason,
            "code": code,
            "duration": now_ms - self._began_ms,
            "out_of_memory": memory_kills() != self._memory_kills[0],
            "left": self._left,
        }
        if self.command is not None:
            report |= self.command.finish(code=code, by_itself=reason == "exit")
        return report

    def removal(self) -> Removal:
        """The removal of its folder."""
        return self.command.dispose() if self.command is not None else Removal(self._order["cwd"])

    def _prepare(self) -> Standard:
        if self.command is not None:
            return self.command.prepare()
        os.makedirs(self._order["cwd"], mode=0o700, exist_ok=True)  # noqa: PTH103 - pathlib is slow to import
        return Standard(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), 2, 2)

    def _end_leftovers(self, now_ms: int) -> None:
        self._leave_until_ms = None
        if self._kill_at_ms is None:
            self._left = len(descendants(os.getpid()))
        self.end("exit", now_ms, _LEFTOVER_GRACE_MS)
