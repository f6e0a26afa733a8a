"""`kubectl` itself reads what is rendered and what is in deploy/kubernetes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures_services import unavailable
from tests.kubernetes_api import ApiServer
from tests.kubernetes_objects import check, read_yaml

ROOT = Path(__file__).parents[2]
BASES = ("deploy/kubernetes", "deploy/kubernetes/launcher")


def kubectl(*arguments: str, given: str = "") -> str:
    program = shutil.which("kubectl") or unavailable("kubectl is not installed")
    done = subprocess.run(
        [program, *arguments], cwd=ROOT, input=given, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def example() -> str:
    command = [sys.executable, "-m", "tenure", "workers", "render-launch", "--launcher", "kubernetes", "--example"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_kubectl_would_apply_the_example(example: str, tmp_path: Path) -> None:
    # Without TLS, kubectl sends no token.
    with ApiServer(wants_token=False).serving() as api:
        where = ("--kubeconfig", api.kubeconfig(tmp_path))
        # Validation would ask the server for its schemas, which the double applies by itself.
        said = kubectl(*where, "apply", "--dry-run=client", "--validate=false", "-f", "-", given=example)
        assert not [request for request in api.requests if request.method != "GET"]
    applied = said.splitlines()
    assert len(applied) == len(read_yaml(example))
    assert all(line.endswith("(dry run)") for line in applied), said


@pytest.mark.parametrize("base", BASES)
def test_kubectl_builds_the_bases(base: str) -> None:
    items = read_yaml(kubectl("kustomize", base))
    for item in items:
        check(item)
    images = {
        container["image"]
        for item in items
        if "template" in item.get("spec", {})
        for container in item["spec"]["template"]["spec"]["containers"]
    }
    assert all(image.startswith("registry.example/") for image in images)
