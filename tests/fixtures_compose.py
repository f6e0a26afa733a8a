"""The fleet of docker-compose.yml, up for a test."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.fixtures_docker import Engine, debian_base, engine, inspected
from tests.fixtures_e2e import ROOT, Place
from tests.waiting import wait_until

BUILD_S = 900
PATIENCE_S = 300
_SECTION = re.compile(r"## Credentials of their own\n.*?```console\n(.*?)```.*?```\n(.*?)```", re.DOTALL)
PARTS = ("broker", "coordinator", "worker", "programs")


def wait_patiently(predicate: Callable[[], object], description: str) -> None:
    """Wait for what a command line is asked about, on a machine that may be busy with the containers' own work."""
    wait_until(predicate, description, PATIENCE_S, step_ms=500)


@dataclass
class Composed:
    """A fleet in containers, and a place on this host to command it from."""

    docker: Engine
    project: str
    folder: Path
    settings: dict[str, str]

    @property
    def place(self) -> Place:
        return Place(self.folder, {"TENURE_BROKER_URL_FILE": str(self.folder / "secrets" / "host.url")})

    @property
    def url(self) -> str:
        return (self.folder / "secrets" / "host.url").read_text().strip()

    @property
    def marks(self) -> Path:
        return self.folder / "marks"

    def compose(self, *arguments: str, timeout_s: float = PATIENCE_S) -> str:
        files = ("-f", "docker-compose.yml", "-f", "tests/e2e/compose.test.yml", "-p", self.project)
        return self.docker.call(*self.docker.compose, *files, *arguments, timeout_s=timeout_s, more=self.settings)

    def containers(self, service: str = "", *, all_states: bool = False) -> list[str]:
        """Ids of the project's containers, of one service or of all."""
        wanted = ["--filter", f"label=com.docker.compose.project={self.project}"]
        if service:
            wanted += ["--filter", f"label=com.docker.compose.service={service}"]
        return self.docker.run("ps", "--quiet", *wanted, *(["--all"] if all_states else [])).split()

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        """What a command on this host lists, asked again while the fleet is away."""
        found: list[list[dict[str, Any]]] = []

        def ask() -> bool:
            printed = self.place.run(*arguments, "--json", timeout_s=PATIENCE_S)
            if printed.code == 0:
                found.append(printed.json())
            return bool(found)

        wait_patiently(ask, f"the fleet answers {arguments}")
        return found[0]

    def workers(self, capability: str, *states: str) -> list[dict[str, Any]]:
        return [
            row
            for row in self.rows("workers", "list", "--limit", "1000")
            if capability in row["capabilities"] and row["state"] in (states or ("ACTIVE",))
        ]

    def scale(self, **replicas: int) -> None:
        """Bring services to that many replicas, and wait until the fleet knows so many workers."""
        wanted = {"worker": 2, "programs": 2} | replicas
        counts = [word for name, count in wanted.items() for word in ("--scale", f"{name}={count}")]
        self.compose("up", "--detach", "--no-build", *counts)
        for name, capability in (("worker", "default"), ("programs", "programs")):
            self._wait_for_workers(capability, wanted[name])

    def _wait_for_workers(self, capability: str, count: int) -> None:
        wait_patiently(
            lambda: len(self.workers(capability)) == count, f"the fleet has {count} workers for {capability}"
        )

    def kill_a_busy(self, service: str, capability: str) -> str:
        """End a container in the middle of its work, as if its machine were gone; answers its worker's id."""
        busy: list[dict[str, Any]] = []

        def look() -> bool:
            busy[:] = [row for row in self.workers(capability) if row["holding"]]
            return bool(busy)

        wait_patiently(look, f"a worker of {capability} is busy")
        victim = next(each for each in self.containers(service) if each.startswith(busy[0]["host"]))
        self.docker.run("kill", victim)
        return str(busy[0]["worker_id"])

    def strike(self, service: str) -> None:
        """End the one container of a service without warning, and start it again."""
        (victim,) = self.containers(service)
        self.docker.run("kill", victim)
        self.docker.run("start", victim)

    def start_sweep(self, points: int, out: Path) -> subprocess.Popen[str]:
        """The example's sweep, from this host."""
        arguments = ["--points", str(points), "--retries", "2", "--out", str(out)]
        return subprocess.Popen(
            [sys.executable, "sweep.py", *arguments],
            cwd=ROOT / "examples" / "lorenz",
            env=self.place.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait_until_healthy(self, service: str) -> None:
        def look() -> bool:
            states = [each["State"] for each in inspected(self.docker, *self.containers(service))]
            return all(state["Health"]["Status"] == "healthy" for state in states)

        wait_patiently(look, f"{service} is healthy")


def secure(fleet: Composed) -> None:
    """Give each part a credential of its own: by the very commands and variables of docs/compose.md."""
    found = _SECTION.search((ROOT / "docs" / "compose.md").read_text(encoding="utf-8"))
    assert found is not None
    commands = "\n".join(line.removeprefix("$ ") for line in found[1].splitlines())
    environment = fleet.place.environment()
    environment["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), environment["PATH"]))
    subprocess.run(["sh", "-e", "-c", commands], cwd=fleet.folder, env=environment, check=True, timeout=PATIENCE_S)
    fleet.settings |= dict(line.split("=") for line in found[2].splitlines())
    fleet.compose("up", "--detach", "--no-build", "--force-recreate")
    fleet.scale()


def user_in(fleet: Composed, container: str) -> str:
    """As whose user of the broker a container comes to it."""
    address = fleet.docker.run("exec", container, "cat", "/run/secrets/broker_url")
    return urlsplit(address.strip()).username or ""


@contextmanager
def composed_fleet(folder: Path) -> Generator[Composed]:
    """Images built and the fleet up; afterwards nothing of it is left."""
    project = f"tenure-e2e-{os.getpid()}"
    settings = {
        "TENURE_BASE": f"{project}-base",
        "TENURE_IMAGE": f"{project}-part",
        "TENURE_BROKER_IMAGE": f"{project}-broker",
        "TENURE_BROKER_PORT": str(_free_port()),
        "TENURE_SECRETS": str(folder / "secrets"),
        "TENURE_TEST_MARKS": str(folder / "marks"),
    }
    (folder / "marks").mkdir()
    (folder / "marks").chmod(0o777)  # programs in containers run as another user
    with engine() as docker:
        fleet = Composed(docker, project, folder, settings)
        secrets = ["sh", "deploy/container/make-secrets", settings["TENURE_SECRETS"]]
        docker.call(*secrets, timeout_s=30, more=settings)
        images = [settings[name] for name in ("TENURE_BASE", "TENURE_IMAGE", "TENURE_BROKER_IMAGE")]
        try:
            debian_base(docker, folder, images[0])
            fleet.compose("build", "broker", "coordinator", timeout_s=BUILD_S)
            fleet.scale()
            yield fleet
        finally:
            fleet.compose("down", "--volumes", "--remove-orphans", "--timeout", "5")
            docker.run("image", "rm", "--force", *reversed(images), check=False)
        assert _leavings(fleet) == ""


def _leavings(fleet: Composed) -> str:
    """What of the project the engine still has: containers, networks and volumes."""
    mine = ["--quiet", "--filter", f"label=com.docker.compose.project={fleet.project}"]
    kinds = (["ps", "--all"], ["network", "ls"], ["volume", "ls"])
    return "".join(fleet.docker.run(*kind, *mine) for kind in kinds)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
