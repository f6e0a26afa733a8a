"""Another host as far as the network is concerned: a network namespace of its own, and a worker in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.fixtures_fleet import ROOT, TTL_MS
from tests.fixtures_services import unavailable


@contextmanager
def another_host() -> Generator[tuple[str, str]]:
    """A network namespace of its own, and the address under which this one is reached from there."""
    if os.geteuid() != 0:
        unavailable("making a network namespace needs root")
    name, number = f"tenure{os.getpid()}", os.getpid() % 250
    here, there = f"10.209.{number}.1", f"10.209.{number}.2"
    ip = ["ip", "-n", name]
    steps = [
        ["ip", "netns", "add", name],
        ["ip", "link", "add", f"v{os.getpid()}", "type", "veth", "peer", "name", "eth0", "netns", name],
        ["ip", "addr", "add", f"{here}/30", "dev", f"v{os.getpid()}"],
        ["ip", "link", "set", f"v{os.getpid()}", "up"],
        [*ip, "addr", "add", f"{there}/30", "dev", "eth0"],
        [*ip, "link", "set", "eth0", "up"],
        [*ip, "link", "set", "lo", "up"],
    ]
    try:
        for step in steps:
            done = subprocess.run(step, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                unavailable(f"no network namespaces here: {done.stderr.strip()}")
        yield name, here
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@contextmanager
def worker_on(name: str, url: str, folder: Path) -> Generator[None]:
    """A worker in that network namespace."""
    command = ["ip", "netns", "exec", name, sys.executable, "-P", "-m", "tenure", "worker", "--worker-id", "far"]
    with (folder / "far.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--state-dir", str(folder), "--ttl", f"{TTL_MS}ms"],
            cwd=ROOT,
            env={**os.environ, "TENURE_BROKER_URL": url, "PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=log,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)
