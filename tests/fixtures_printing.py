"""Programs that print, a command that follows them, and what it takes to tell how late a line was."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from tests.fixtures_fleet import ROOT, Fleet
from tests.waiting import wait_until

CLOCK = """
import os, sys, time
print("ready", flush=True)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
for number in range(int(sys.argv[1])):
    print(time.clock_gettime_ns(time.CLOCK_MONOTONIC), flush=True)
    time.sleep(0.03 + 0.29 * (number * 7 % 10) / 10)
"""
"""Prints when it prints, at uneven times, once somebody reads along."""

FLOOD = """
import sys, time
line = b"x" * 99 + bytes([10])
until = time.monotonic() + float(sys.argv[1])
begun, printed = time.monotonic(), 0
while time.monotonic() < until:
    sys.stderr.buffer.write(line * 1000)
    sys.stderr.buffer.flush()
    printed += 100_000
    ahead = printed / 10_000_000 - (time.monotonic() - begun)
    if ahead > 0:
        time.sleep(ahead)
print(printed)
"""
"""Prints ten megabytes a second to standard error for that many seconds, and at last how much that was."""


class Follower:
    """The real command, following a task; each of its lines is noted with the time at which it came out."""

    def __init__(self, fleet: Fleet, task_id: str, *options: str) -> None:
        self.lines: list[tuple[int, str]] = []
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tenure", "logs", "-f", *options, task_id],
            cwd=ROOT,
            env={**os.environ, "TENURE_BROKER_URL": fleet.url, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def text(self) -> str:
        return "".join(line for _, line in self.lines)

    def wait(self, timeout_s: float = 30) -> int:
        """Its exit code."""
        code = self._process.wait(timeout_s)
        self._thread.join(timeout_s)
        return code

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append((time.clock_gettime_ns(time.CLOCK_MONOTONIC), line))


@contextmanager
def following(fleet: Fleet, task_id: str, *options: str) -> Generator[Follower]:
    """A follower that is ended with the test."""
    follower = Follower(fleet, task_id, *options)
    try:
        yield follower
    finally:
        follower.kill()


def measured_ms(fleet: Fleet, task_id: str, gate: Path) -> list[float]:
    """How late each line of `CLOCK` came out of the command, which has started before the first of them."""
    with following(fleet, task_id) as follower:
        wait_until(lambda: follower.lines, "the first line has come", 30)
        gate.touch()
        assert follower.wait(60) == 0
    return sorted((came - int(line)) / 1e6 for came, line in follower.lines if line.strip().isdigit())


def share(delays: Sequence[float], part: float) -> float:
    """The delay that this part of all stays below."""
    return delays[min(int(len(delays) * part), len(delays) - 1)]


def largest_gap_ms(fleet: Fleet, is_over: Callable[[], bool]) -> float:
    """The longest time between two heartbeats of the worker, as they arrive at the broker."""
    connection = fleet.server.connect()
    last, seen, largest = b"", time.clock_gettime(time.CLOCK_MONOTONIC), 0.0
    try:
        while not is_over():
            beat = connection.call("GET", "tenure:{main}:hb:default:w1")
            now = time.clock_gettime(time.CLOCK_MONOTONIC)
            if beat != last:
                largest = max(largest, now - seen) if last else 0.0
                last, seen = beat if isinstance(beat, bytes) else b"", now
    finally:
        connection.close()
    return largest * 1000
