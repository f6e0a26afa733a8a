"""Handlers that behave, and handlers that do not, for tests of workers."""

import asyncio
import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread
from typing import Final

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


say: Final = print
"""The point of what follows is that it prints."""

_CHATTING: Final[list[str]] = []


def chat(name: str, lines: int) -> None:
    """Print lines to both streams."""
    for number in range(lines):
        say(f"{name} {number}")
    say("oh", name, file=sys.stderr)
    say("unfinished", end="")


async def chat_beside(name: str, others: int) -> None:
    """Print while others do, from the coroutine, from a thread that knows the context and from one that does not."""
    _CHATTING.append(name)
    while len(_CHATTING) < others:  # noqa: ASYNC110 - an event would belong to one call's loop only
        await asyncio.sleep(0.001)
    say(name, "one")
    await asyncio.sleep(0)
    await asyncio.to_thread(say, name, "two")
    bare = Thread(target=lambda: say("nobody's"))
    bare.start()
    bare.join()
    tenure.current().logger.info("%s three", name)


def print_everywhere() -> str:
    """Print in every way that there is but through `print`."""
    run = tenure.current()
    sys.stdout.buffer.write("bytes é\n".encode())
    sys.stdout.writelines(["written\n", "as lines\n"])
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    logging.getLogger("my.own").warning("a warning")
    bare = Thread(target=lambda: run.logger.info("from a bare thread"))
    bare.start()
    bare.join()
    subprocess.run(["true"], stdout=sys.stdout, check=True)
    if (pid := os.fork()) == 0:
        say("a copy's", flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
    sys.stdout.close()
    say("lone \udcff")
    return f"{sys.stdout.encoding} {sys.stdout.isatty()}"


def flood(megabytes: int) -> int:
    """Print that much, in lines of a hundred characters; answers how many characters that was."""
    line = "x" * 99
    for _ in range(megabytes * 10_000):
        say(line)
    say("the end")
    return megabytes * 1_000_000 + 8


def tell_metrics() -> None:
    tenure.current().progress(0.5, "half\nway", loss=float("nan"), epoch=3, name="x" * 9_999, other=object())
    time.sleep(600)


def chat_and_die(text: str) -> None:
    say(text)
    os._exit(1)
