"""A real Ray cluster of one node on loopback, for all tests of this process: starting it takes half a minute.

It is made when it is first asked for, and ended by process id when this process ends.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import psutil

from tests.fixtures_services import unavailable
from tests.servers import free_port
from tests.waiting import wait_until

START_S: Final = 60.0
CPUS: Final = 8
ATTEMPTS: Final = 3
AGENTS: Final = ("dashboard-agent-grpc", "dashboard-agent-listen", "runtime-env-agent", "metrics-export")
ON_LOOPBACK: Final = MappingProxyType({"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"})
"""Otherwise Ray takes 127.0.0.1 for the address that the host has outside, and listens everywhere."""
SECRET: Final = "raylet-secret"

REMOVE: Final = """
import sys, ray, ray.util
ray.init(address=sys.argv[1], namespace="tenure", log_to_driver=False)
ray.util.remove_placement_group(ray.util.get_placement_group(sys.argv[2]))
"""


@dataclass(frozen=True)
class RayCluster:
    """The head, which holds everything else."""

    head: subprocess.Popen[bytes]
    port: int
    folder: Path

    def options(self, **more: Any) -> dict[str, Any]:
        """The launcher's options for this cluster."""
        own = {"address": f"127.0.0.1:{self.port}", "variables": dict(ON_LOOPBACK), "cpus": 0.5}
        return {**own, **more}

    def processes(self) -> list[psutil.Process]:
        """All processes of the cluster."""
        return psutil.Process(self.head.pid).children(recursive=True)

    def gcs(self) -> psutil.Process:
        """The server that knows of all actors."""
        return next(each for each in self.processes() if each.name() == "gcs_server")

    def remove_group(self, name: str) -> None:
        """Remove a placement group, as an administrator would."""
        words = [sys.executable, "-W", "ignore", "-c", REMOVE, f"127.0.0.1:{self.port}", name]
        env = {"PATH": "/usr/bin:/bin", "HOME": str(self.folder), **ON_LOOPBACK}
        subprocess.run(words, env=env, check=True, capture_output=True, timeout=120)

    def close(self) -> None:
        """End it at once."""
        found = self.processes() if self.head.poll() is None else []
        self.head.kill()
        for process in found:
            if process.is_running():
                process.kill()
        self.head.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def start_cluster(**variables: str) -> RayCluster:
    """A cluster of one's own."""
    if find_spec("ray") is None:
        unavailable("the library ray is not installed")
    for _ in range(ATTEMPTS - 1):
        # Ray gives its own Python programs 15 s to start, and a busy machine needs longer.
        with suppress(AssertionError):
            return _start_cluster(variables)
    return _start_cluster(variables)


def _start_cluster(variables: Mapping[str, str]) -> RayCluster:
    # Ray's sockets lie in here, and their paths may not be long.
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    port = free_port()
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={port}"]
    command += ["--node-ip-address=127.0.0.1", f"--num-cpus={CPUS}", "--object-store-memory=80000000"]
    command += ["--include-dashboard=false", "--disable-usage-stats", "--no-monitor", f"--temp-dir={folder}"]
    own = {
        "RAYLET_SECRET": SECRET,
        "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "0",
        "PYTHONUNBUFFERED": "1",
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
    }
    log = folder / "start.log"
    with log.open("wb") as output:
        head = subprocess.Popen(
            command, env={**own, **ON_LOOPBACK, **variables}, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    cluster = RayCluster(head, port, folder)

    def started() -> bool:
        assert head.poll() is None, f"Ray did not start:\n{log.read_text()}"
        return "Ray runtime started" in log.read_text()

    try:
        wait_until(started, "the Ray cluster is up", START_S)
    except BaseException:
        cluster.close()
        raise
    return cluster


@cache
def ray_cluster() -> RayCluster:
    """The cluster that all tests of this process share."""
    cluster = start_cluster()
    owner = os.getpid()
    atexit.register(lambda: cluster.close() if os.getpid() == owner else None)
    return cluster
