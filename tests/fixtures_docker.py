"""A Docker engine, and a Debian to build on: the machine's own where it has them, made on the spot where it has not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fixtures_e2e import ROOT
from tests.fixtures_services import unavailable
from tests.waiting import wait_until

PULLED_BASE = "debian:12-slim"
_SUITE = "bookworm"
_KEPT = ROOT / "build" / "e2e" / f"{_SUITE}.tar"
"""A Debian takes a minute to make, so it is kept until `make clean`."""
_PULL_S = 60


@dataclass(frozen=True)
class Engine:
    """The command line of one Docker daemon."""

    environment: Mapping[str, str]
    compose: tuple[str, ...]

    def run(self, *arguments: str, timeout_s: float = 300, check: bool = True) -> str:
        """What `docker ARGUMENTS` prints."""
        return self.call("docker", *arguments, timeout_s=timeout_s, check=check)

    def call(self, *command: str, timeout_s: float, check: bool = True, more: Mapping[str, str] | None = None) -> str:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**self.environment, **(more or {})},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if check and done.returncode != 0:
            message = (
                f"{' '.join(command[:6])} ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
            )
            raise AssertionError(message)
        return done.stdout


@contextmanager
def engine() -> Generator[Engine]:
    """The machine's daemon, or one that is started for the test and ended after it."""
    if shutil.which("docker") is None:
        unavailable("there is no docker command (Debian: apt-get install docker.io docker-compose debootstrap)")
    compose = compose_command()
    plain = plain_environment()
    if _answers(plain):
        yield Engine(plain, compose)
        return
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        unavailable("no Docker daemon answers, and starting one needs root and dockerd (Debian: docker.io)")
    with _daemon(plain) as environment:
        yield Engine(environment, compose)


def plain_environment() -> dict[str, str]:
    """This process's environment without what docker-compose.yml would take from it."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("TENURE_", "COMPOSE_"))}


def compose_command() -> tuple[str, ...]:
    """How compose is called here. It reads its file without a daemon."""
    asked = ["docker", "compose", "version"]
    if shutil.which("docker") is not None and subprocess.run(asked, capture_output=True, check=False).returncode == 0:
        return ("docker", "compose")
    if shutil.which("docker-compose") is None:
        unavailable("there is no docker compose (Debian: apt-get install docker-compose)")
    return ("docker-compose",)


def _answers(environment: Mapping[str, str]) -> bool:
    asked = ["docker", "version", "--format", "{{.Server.Version}}"]
    return subprocess.run(asked, env=dict(environment), capture_output=True, check=False).returncode == 0


@contextmanager
def _daemon(plain: dict[str, str]) -> Generator[dict[str, str]]:
    # Not below pytest's folder: the paths of sockets are short.
    folder = Path(tempfile.mkdtemp(prefix="tenure-e2e-"))
    environment = {**plain, "DOCKER_HOST": f"unix://{folder}/docker.sock"}
    # No bridge of its own: the networks of the fleet are all that is needed, and another daemon's stays untouched.
    arguments = ["--bridge", "none", "--pidfile", f"{folder}/pid", "--host", environment["DOCKER_HOST"]]
    arguments += ["--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(["dockerd", *arguments], stdout=log, stderr=log, start_new_session=True)
    try:
        wait_until(lambda: process.poll() is not None or _answers(environment), "the Docker daemon answers", 120, 500)
        if process.poll() is not None:
            unavailable(f"dockerd does not start here: {(folder / 'log').read_text()[-500:]}")
        yield environment
    finally:
        process.terminate()
        try:
            process.wait(timeout=60)
        finally:
            process.kill()
            _unmount_below(folder)
            shutil.rmtree(folder)


def _unmount_below(folder: Path) -> None:
    """A daemon that has ended leaves the network namespaces mounted that it knew."""
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for mount in sorted((each for each in mounts if each.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", mount], check=True)


def debian_base(docker: Engine, folder: Path, tag: str) -> None:
    """Make an image of that name that the product's Dockerfile can be built on.

    A pulled Debian where a registry is reachable, else one that debootstrap makes. What pip needs on this host to reach
    its index (certificates, addresses) comes into this image only.
    """
    if _pulls(docker):
        docker.run("tag", PULLED_BASE, tag)
    else:
        docker.run("import", str(_debootstrapped()), tag, timeout_s=900)
    context = folder / "base"
    context.mkdir()
    lines = [f"FROM {tag}", "COPY pip.conf /etc/pip.conf"]
    (context / "pip.conf").write_text("\n".join(["[global]", *_pip_settings()]) + "\n")
    bundle = os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE")
    if bundle:
        shutil.copy(bundle, context / "ca.crt")
        inside = "/etc/ssl/certs/ca-certificates.crt"
        lines += [f"COPY ca.crt {inside}", f"ENV PIP_CERT={inside} SSL_CERT_FILE={inside}"]
    (context / "Dockerfile").write_text("\n".join(lines) + "\n")
    docker.run("build", "--quiet", "--tag", tag, str(context), timeout_s=900)


def _pulls(docker: Engine) -> bool:
    try:
        docker.run("pull", "--quiet", PULLED_BASE, timeout_s=_PULL_S)
    except (AssertionError, subprocess.TimeoutExpired):
        return False
    return True


def _debootstrapped() -> Path:
    if _KEPT.exists():
        return _KEPT
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        unavailable(f"{PULLED_BASE} cannot be pulled, and making a Debian needs root and debootstrap")
    _KEPT.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tenure-debian-") as tree:
        # Nothing that the product's own Dockerfile is to bring by itself.
        made = ["debootstrap", "--variant=minbase", "--include=ca-certificates", _SUITE, tree]
        done = subprocess.run(made, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode != 0:
            unavailable(f"debootstrap cannot make a Debian here: {done.stdout[-500:]}")
        draft = _KEPT.with_suffix(".new")
        subprocess.run(["tar", "--create", "--file", draft, "--directory", tree, "."], check=True, timeout=300)
        draft.rename(_KEPT)
    return _KEPT


def _pip_settings() -> list[str]:
    """Where this host's pip finds its index, as far as it is not on this host's disk."""
    done = subprocess.run(["python3", "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
    wanted = {"index-url", "extra-index-url", "trusted-host", "proxy"}
    found: list[str] = []
    for line in done.stdout.splitlines():
        name, _, value = line.partition("=")
        key = name.rpartition(".")[2]
        words = [word for word in value.strip("'\"").split() if not word.startswith("file:")]
        if key in wanted and words:
            found.append(f"{key} = {' '.join(words)}")
    return found


def inspected(docker: Engine, *names: str) -> list[dict[str, Any]]:
    """What the engine knows of these containers or images."""
    found: list[dict[str, Any]] = json.loads(docker.run("inspect", *names))
    return found
