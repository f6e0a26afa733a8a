"""Runs one server process and ends it when the process that wanted it is gone, however that one ended.

Started as a script of its own, in a session of its own: Ctrl-C in the owner's terminal must not take the broker away
while the fleet still drains. The owner keeps the writing end of our standard input and never writes; its end, or a new
parent, means that the owner is gone. Uses nothing but the standard library, so that it starts in a few milliseconds.

Usage: embedded_guard.py OWNER_PID PROGRAM ARGUMENT...
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType

_PR_SET_PDEATHSIG: Final = 1
_STDIN: Final = 0
_LOOK_AT_PARENT_S: Final = 1.0
_STEP_S: Final = 0.5
_STEPS_BEFORE_KILL: Final = 40
_CANNOT_RUN: Final = 127


def main(arguments: list[str]) -> int:
    """Run the server to its end, or to the owner's; the server's exit code."""
    owner, command = int(arguments[0]), arguments[1:]
    woken = _wake_on_signals()
    server = _start(command)
    while (code := _ended(server)) is None and os.getppid() == owner:
        ready, _, _ = select.select([_STDIN, woken], [], [], _LOOK_AT_PARENT_S)
        if woken in ready and _drain(woken) & {signal.SIGTERM, signal.SIGINT}:
            break
        if _STDIN in ready and not os.read(_STDIN, 1):
            break
    return _stop(server, woken) if code is None else code


def _wake_on_signals() -> int:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _noted)
    return reading


def _noted(_number: int, _frame: FrameType | None) -> None:
    """Nothing: the number has gone into the pipe."""


def _drain(woken: int) -> set[int]:
    return set(os.read(woken, 1024))


def _start(command: list[str]) -> int:
    server = os.fork()
    if server:
        return server
    try:
        _die_with_parent()
        os.execv(command[0], command)  # noqa: S606
    except OSError as error:
        os.write(2, f"cannot run {command[0]}: {error.strerror}\n".encode())
    os._exit(_CANNOT_RUN)


def _die_with_parent() -> None:
    """Should this guard be killed, the server goes too; safe because the guard has one thread."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _ended(server: int) -> int | None:
    found, status = os.waitpid(server, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def _stop(server: int, woken: int) -> int:
    os.kill(server, signal.SIGTERM)
    for _ in range(_STEPS_BEFORE_KILL):
        if (code := _ended(server)) is not None:
            return code
        if select.select([woken], [], [], _STEP_S)[0]:
            _drain(woken)
    os.kill(server, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(server, 0)[1])


if __name__ == "__main__":
    sys.exit(abs(main(sys.argv[1:])))
