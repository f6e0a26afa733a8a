"""A fleet for measuring, started the way a user starts one: `tenure up` in a folder of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import redis

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

ROOT = Path(__file__).resolve().parent.parent
READY_TIMEOUT_S = 30.0


@contextmanager
def fleet(folder: Path, *, workers: int, slots: int) -> Generator[str]:
    """Run `tenure up` with that many workers; gives the broker's URL, and ends everything afterwards."""
    command = [sys.executable, "-m", "tenure", "up", "--data", str(folder), "--workers", str(workers)]
    command += ["--slots", str(slots), "--allow", "bench.work"]
    log = folder.parent / "up.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output, start_new_session=True)
    try:
        url_file = folder / "broker.url"
        _wait_for(lambda: "ready" in log.read_text(errors="replace").lower(), process, log)
        yield url_file.read_text().strip()
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def broker_memory(url: str) -> int:
    """Bytes that the broker uses now."""
    with redis.Redis.from_url(url) as connection:
        return int(connection.info("memory")["used_memory"])


def left_on_streams(url: str) -> dict[str, tuple[int, int]]:
    """Length and pending entries of every stream with a group, by key."""
    found: dict[str, tuple[int, int]] = {}
    with redis.Redis.from_url(url, decode_responses=True) as connection:
        for key in connection.scan_iter("tenure:*", _type="stream"):
            groups = connection.xinfo_groups(key)
            if groups:
                found[key] = (connection.xlen(key), sum(int(group["pending"]) for group in groups))
    return found


def show(figures: dict[str, object]) -> None:
    """Print one JSON line."""
    print(json.dumps(figures), flush=True)


def _wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + READY_TIMEOUT_S
    while not condition():
        if process.poll() is not None or time.monotonic() > until:
            raise SystemExit(f"the fleet did not come up; it said:\n{log.read_text(errors='replace')}")
        time.sleep(0.05)
