"""Handlers that leave marks of when they run, and handlers that harm their worker, for tests on real fleets.

A mark is one line, written by one call to a file that is open for appending: what happened, the task, its attempt and
fence, the process, and the host's CLOCK_BOOTTIME in nanoseconds. A start is stamped before the work, an end after it.
While a file of the same name with `.hold` at its end is there, what has started only waits.
Run as a script it is a command task: `fixtures_fleet_handlers.py MARKS SECONDS [--detached]`.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

import tenure

_STEP_S = 0.01


@contextmanager
def marked(path: str, task: tuple[str, int, int] | None = None) -> Generator[None]:
    """Mark the start, and the end however it comes about, unless the process is killed."""
    run = tenure.current()
    task_id, attempt, fence = task or (run.task_id, run.attempt, run.fence)
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def mark(what: str) -> None:
        line = f"{what} {task_id} {attempt} {fence} {os.getpid()} {time.clock_gettime_ns(time.CLOCK_BOOTTIME)}\n"
        os.write(file, line.encode())

    try:
        mark("start")
        try:
            yield
        finally:
            mark("end")
    finally:
        os.close(file)


def work(marks: str, number: int, seconds: float) -> int:
    """Be busy for that long."""
    with marked(marks):
        while _is_held(marks):
            time.sleep(_STEP_S)
        _pass_time(seconds)
    return number


async def work_async(marks: str, number: int, seconds: float) -> int:
    """The same beside many others in one process."""
    with marked(marks):
        while _is_held(marks):  # noqa: ASYNC110 - another process lets it go
            await asyncio.sleep(_STEP_S)
        await asyncio.sleep(seconds)
    return number


def count(number: int) -> int:
    """Answer at once."""
    return number


def stubborn(marks: str, number: int, seconds: float) -> int:
    """Ignore every polite request to end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with marked(marks):
        while _is_held(marks):
            time.sleep(_STEP_S)
        _pass_time(seconds)
    return number


def hold_the_lock(marks: str, number: int, seconds: float) -> int:
    """Spend that long, or a little longer, in calls of C code that never lets another thread or a signal in."""
    with marked(marks):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            pow(7, 400_000, 10**60_000 + 7)
    return number


def hold_the_lock_once(marks: str, number: int, length: int) -> int:
    """One single call of C code whose time doubles with each further letter: a regular expression that backtracks."""
    with marked(marks):
        re.match(r"(a+)+$", "a" * length + "b")
    return number


def die_once(marks: str, number: int, code: int) -> int:
    """End the process in the middle of the first attempt: with that exit code, or by that signal when negative."""
    with marked(marks):
        if tenure.current().attempt == 1:
            _die(code)
    return number


def poison(marks: str, number: int, victim: str) -> int:
    """Kill the own process, its runner, or the worker's agent, in every attempt."""
    with marked(marks):
        if victim == "child":
            _die(-signal.SIGKILL)
        runner = os.getppid()
        os.kill(runner if victim == "runner" else _parent_of(runner), signal.SIGKILL)
        _pass_time(60)
    return number


def eat_memory(marks: str, number: int, megabytes: int) -> int:
    """Take that much memory and touch it, in the first attempt."""
    with marked(marks):
        if tenure.current().attempt == 1:
            eaten = [bytearray(os.urandom(1024) * 1024) for _ in range(megabytes)]
            return len(eaten)
    return number


def _is_held(marks: str) -> bool:
    return os.path.exists(f"{marks}.hold")  # noqa: PTH110 - this file does without


def _die(code: int) -> None:
    if code >= 0:
        os._exit(code)
    os.kill(os.getpid(), -code)
    _pass_time(60)


def _parent_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - as small as it can be
        return int(file.read().rpartition(b")")[2].split(None, 2)[1])


def tick(lines: int, gate: str) -> None:
    """Print when it prints, at uneven times, once somebody reads along."""
    sys.stdout.write("ready\n")
    while not os.path.exists(gate):  # noqa: PTH110 - this file does without
        time.sleep(_STEP_S)
    for number in range(lines):
        sys.stdout.write(f"{time.clock_gettime_ns(time.CLOCK_MONOTONIC)}\n")
        time.sleep(0.03 + 0.29 * (number * 7 % 10) / 10)


def _pass_time(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(_STEP_S)


def _command(marks: str, seconds: str, *options: str) -> None:
    if "--detached" in options:
        # The command itself only waits; the work is done by a process in a session of its own.
        argv = [sys.executable, __file__, marks, seconds]
        subprocess.run(argv, check=True, start_new_session=True, stdout=subprocess.DEVNULL)
    else:
        task = (os.environ["TENURE_TASK_ID"], int(os.environ["TENURE_ATTEMPT"]), int(os.environ["TENURE_FENCE"]))
        with marked(marks, task):
            _pass_time(float(seconds))
    sys.stdout.write("done")


if __name__ == "__main__":
    _command(*sys.argv[1:])
