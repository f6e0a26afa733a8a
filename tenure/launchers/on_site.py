"""Running an executor from inside a process of a substrate: an RQ work-horse, a Ray worker.

The executor gets the environment that it was given and nothing of the substrate's own, which may hold secrets. It ends
with the process that started it, so that a substrate that ends its process ends the executor too.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tenure.errors import LaunchError, LaunchRefused
from tenure.processes.tied import tied_argv

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from types import FrameType


def start_on_site(
    argv: Sequence[str], environment: Mapping[str, str], *, apart: bool = False
) -> subprocess.Popen[bytes]:
    """Start an executor, which is killed when the calling thread ends.

    `apart`: in a process group of its own, which signals to the substrate's do not reach.

    Raises:
        LaunchRefused: it cannot be started.
    """
    command = tied_argv([_program(argv[0]), *argv[1:]])
    try:
        return subprocess.Popen(command, env=dict(environment), stdin=subprocess.DEVNULL, start_new_session=apart)
    except OSError as error:
        raise LaunchRefused(f"no process can be started here: {error.strerror}") from error


def run_on_site(argv: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run an executor to its end, which it reaches well whatever becomes of its task.

    SIGTERM is passed on to it where the substrate does nothing of its own with it.

    Raises:
        LaunchRefused: it cannot be started here.
        LaunchError: it ended with an exit code other than 0, or by a signal.
    """
    process = start_on_site(argv, environment)
    try:
        with _sigterm_passed_on(process):
            code = process.wait()
    except BaseException:
        # The substrate wants its process back; an executor that is asked to end gives its task back first.
        _end(process)
        raise
    if code:
        raise LaunchError(f"the executor ended with {ending(code)}", _REMEDIES.get(code, ""))


_REMEDIES: Final = {3: "It could not reach the fleet: see what it has printed to the log of this process"}


_GRACE_S: Final = 10


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _program(word: str) -> str:
    # Beside the interpreter first: a substrate's worker is often started by its path, without its environment's PATH.
    beside = Path(sys.executable).parent
    found = shutil.which(word, path=str(beside)) or shutil.which(word)
    if found is None:
        raise LaunchRefused(f"there is no program {word!r} beside {sys.executable} or on PATH", "Install tenure here")
    return str(Path(found).absolute())


def ending(code: int) -> str:
    """An exit status as people read it."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"


@contextmanager
def _sigterm_passed_on(process: subprocess.Popen[bytes]) -> Generator[None]:
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def pass_on(number: int, _: FrameType | None) -> None:
        process.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
