"""The installed command on real processes: run it, keep a fleet up, and see that nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tests.waiting import wait_until

ROOT = Path(__file__).parents[1]

HANDLERS = """
import time
import tenure

def double(x: int) -> int: return 2 * x
def fail() -> None: raise ValueError("no good")
def shapeless() -> object: return object()
def big() -> str: return "x" * 300_000

def hold(gate: str) -> str:
    "Runs until the file is there: a test decides when."
    from pathlib import Path
    while not Path(gate).exists():
        time.sleep(0.01)
    return gate
"""


class Printed(NamedTuple):
    """What one command line did."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def error(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.err.splitlines()[-1])["error"]
        return found


@dataclass
class Place:
    """A folder to work in, with an environment in which nothing of Tenure is set but the data folder."""

    folder: Path
    more: dict[str, str] = field(default_factory=dict[str, str])

    def environment(self) -> dict[str, str]:
        plain = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
        path = os.pathsep.join(filter(None, (str(ROOT), plain.get("PYTHONPATH", ""))))
        return {**plain, "PYTHONPATH": path, "TENURE_DATA_DIR": str(self.folder / "data"), **self.more}

    def start(self, *arguments: str, cwd: Path | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tenure", *arguments],
            cwd=cwd or self.folder,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, timeout_s: float = 30) -> Printed:
        process = self.start(*arguments)
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        return Printed(process.returncode, out, err)


@dataclass
class Up(Place):
    """A running `tenure up`."""

    process: subprocess.Popen[str] = field(init=False)
    told: list[str] = field(default_factory=list[str])

    def launch(self, *arguments: str) -> None:
        self.process = self.start("up", *arguments)
        assert self.process.stdout is not None
        self.told = [self.process.stdout.readline()]
        if not self.told[0].startswith("ready"):
            _, err = self.process.communicate(timeout=30)
            message = f"tenure up did not get ready: {self.told[0]}{err}"
            raise AssertionError(message)

    def family(self) -> list[psutil.Process]:
        """`up` itself and everything below it."""
        root = psutil.Process(self.process.pid)
        return [root, *root.children(recursive=True)]

    def end(self, number: int = signal.SIGINT, timeout_s: float = 30) -> Printed:
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=timeout_s)
        return Printed(self.process.returncode, "".join(self.told) + out, err)

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        printed = self.run(*arguments, "--json")
        assert printed.code == 0, printed.err
        found: list[dict[str, Any]] = printed.json()
        return found

    def one(self, *arguments: str) -> dict[str, Any]:
        printed = self.run(*arguments, "--json")
        assert printed.code == 0, printed.err
        found: dict[str, Any] = printed.json()
        return found

    def state(self, task_id: str) -> str:
        return str(self.one("tasks", "show", task_id)["state"])


def gone(processes: Sequence[psutil.Process]) -> Callable[[], bool]:
    """Whether none of these processes runs any more; a zombie whose parent is gone does not count."""

    def runs(process: psutil.Process) -> bool:
        try:
            return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    return lambda: not any(map(runs, processes))


@contextmanager
def up(folder: Path, *arguments: str, more: dict[str, str] | None = None) -> Generator[Up]:
    """A fleet on this machine with the handlers above; ended afterwards, whatever happened."""
    (folder / "e2e_handlers.py").write_text(HANDLERS)
    fleet = Up(folder, more or {})
    fleet.launch("--allow", "e2e_handlers", *arguments)
    family = fleet.family()
    try:
        yield fleet
    finally:
        if fleet.process.poll() is None:
            family = [*family, *fleet.family()]
            fleet.end()
        wait_until(gone(family), "everything has ended", timeout_s=20)
