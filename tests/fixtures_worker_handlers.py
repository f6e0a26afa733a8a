"""Handlers that behave, and handlers that do not, for tests of workers."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import tenure


def add(left: int, right: int) -> int:
    return left + right


def noop() -> None:
    """Does nothing."""


def fail(text: str) -> None:
    raise ValueError(text)


def leave(code: int) -> None:
    sys.exit(code)


def die(code: int) -> None:
    os._exit(code)


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def sleep(seconds: float, file: str = "") -> str:
    """Sleep; leave the process id in the file first."""
    if file:
        Path(file).write_text(str(os.getpid()))
    time.sleep(seconds)
    return "slept"


def stubborn(file: str) -> None:
    """Ignore every polite request to end, together with a grandchild in a session of its own."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    script = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    Path(file).write_text(f"{os.getpid()} {child.pid}")
    while True:
        try:
            time.sleep(600)
        except BaseException:  # noqa: BLE001, S112
            continue


def obliging(file: str) -> str:
    """Run until cancelled, then return."""
    Path(file).write_text(str(os.getpid()))
    while not tenure.current().cancelled():
        time.sleep(0.01)
    return "ended by itself"


def hold_the_lock(seconds: int) -> str:
    """Hold the interpreter's lock in a C call that never lets go of it."""
    libc = ctypes.PyDLL(None)
    libc.sleep(seconds)
    return "held"


def fork_and_return() -> int:
    """Come back twice, from two processes."""
    os.fork()
    return os.getpid()


def close_everything() -> None:
    os.closerange(0, 256)


def shout(size: int) -> int:
    """Print more than a pipe holds."""
    print("x" * size)  # noqa: T201
    sys.stderr.write("y" * size)
    return size


def environment() -> dict[str, str]:
    return dict(os.environ)


def where() -> str:
    return str(Path.cwd())


def run() -> tuple[str, int, int]:
    context = tenure.current()
    context.progress(0.25, "a quarter")
    return context.task_id, context.attempt, context.fence


def unfit() -> object:
    return object()


def large(size: int) -> str:
    return "x" * size


def leave_a_thread() -> str:
    Thread(target=time.sleep, args=(600,)).start()
    return "left"


def note_process(file: str) -> None:
    """Leave this process's id in a file."""
    Path(file).write_text(str(os.getpid()))


async def nap(seconds: float, file: str = "") -> str:
    if file:
        note_process(file)
    await asyncio.sleep(seconds)
    return "napped"


async def meet(count: int, folder: str) -> str:
    """Wait until `count` calls of this are running side by side in this process."""
    place = Path(folder)
    (place / f"{os.getpid()}-{tenure.current().fence}").touch()
    while len(list(place.glob(f"{os.getpid()}-*"))) < count:  # noqa: ASYNC110, ASYNC240
        await asyncio.sleep(0.005)
    return "met"


async def deaf(file: str) -> None:
    """Ignore being cancelled."""
    note_process(file)
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            continue


def report_and_sleep(fraction: float, seconds: float) -> None:
    tenure.current().progress(fraction, "half")
    time.sleep(seconds)
