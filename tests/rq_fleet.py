"""An RQ fleet of real processes: a server of its own, and RQ's own worker command on one queue."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from tenure.processes.tied import tied_argv
from tests.fixtures_services import require_program, unavailable
from tests.servers import launch

if TYPE_CHECKING:
    from tests.servers import Server

QUEUE = "muscle"
ROOT = Path(__file__).parents[1]


@dataclass
class RqFleet:
    """A server, and the RQ workers that a test starts on it."""

    server: Server
    folder: Path
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])

    def options(self, **more: Any) -> dict[str, Any]:
        """The launcher's options for this fleet."""
        return {"redis_url": self.server.url, "queue": QUEUE, **more}

    def start_worker(self, kind: str = "rq.Worker", *more: str) -> subprocess.Popen[bytes]:
        """One more RQ worker, with a secret in its environment that no executor may see."""
        number = len(self.workers) + 1
        command = [sys.executable, "-m", "rq.cli", "worker", "--url", self.server.url, "--serializer", "json"]
        with (self.folder / f"rq-{number}.log").open("wb") as log:
            worker = subprocess.Popen(
                tied_argv([*command, "--worker-class", kind, *more, QUEUE]),
                cwd=ROOT,
                env={"RQ_SECRET": "not for executors", "PATH": "/usr/bin:/bin"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,  # a worker of RQ can kill its own, see `RqLink.send_stop`
            )
        self.workers.append(worker)
        return worker

    def horse(self, worker: subprocess.Popen[bytes]) -> int:
        """The process id of the work-horse of that worker."""
        (horse,) = psutil.Process(worker.pid).children()
        return horse.pid

    def close(self) -> None:
        """End everything at once."""
        for worker in self.workers:
            with suppress(psutil.NoSuchProcess):
                for process in psutil.Process(worker.pid).children(recursive=True):
                    with suppress(psutil.NoSuchProcess):
                        process.kill()
            worker.kill()
            worker.wait()
        self.server.stop()


def start_rq_fleet(folder: Path) -> RqFleet:
    """A fleet without workers. Where RQ is not installed, the test ends."""
    if find_spec("rq") is None:
        unavailable("the library rq is not installed")
    return RqFleet(launch(require_program("valkey"), folder), folder)
