"""`tenure workers render-launch`: a plan is shown, for a task on record or a made-up one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures_cli import CommandLine, FakeFleet, task_id
from tests.kubernetes_objects import check, read_yaml

ROOT = Path(__file__).parents[2]


@pytest.fixture
def line(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    row = {
        "task_id": task_id(1),
        "capability": "gpu",
        "run": "r1",
        "attempt": 2,
        "fence": 9,
        "digest": "e" * 64,
        "timeout_ms": 60_000,
        "memory_bytes": 1 << 30,
        "resources": {"gpu": 2},
    }
    return CommandLine(FakeFleet({"tasks": [row], "status": [{"world": "w1"}]}), capsys)


def test_an_example_holds_all_that_a_cluster_must_have(line: CommandLine) -> None:
    printed = line("workers", "render-launch", "--launcher", "kubernetes", "--example")
    assert printed.code == 0, printed.err
    documents = read_yaml(printed.out)
    for document in documents:
        check(document)
    assert {"Role", "RoleBinding", "NetworkPolicy", "Secret", "Job", "Lease"} <= {each["kind"] for each in documents}
    assert not line.fleet.asked


def test_a_task_on_record_is_shown_as_it_would_be_launched(line: CommandLine) -> None:
    options = ("--launcher-option", "image=a/b:1", "--launcher-option", "resources=gpu=nvidia.com/gpu")
    command = ("workers", "render-launch", task_id(1), "--launcher", "kubernetes", *options, "--allow", "tasks")
    printed = line(*command)
    assert printed.code == 0, printed.err
    job, lease = read_yaml(printed.out)
    assert (job["kind"], lease["kind"]) == ("Job", "Lease")
    assert job["metadata"]["annotations"]["tenure/digest"] == "sha256:" + "e" * 64
    assert job["metadata"]["labels"]["tenure/world"] == "w1"
    assert job["metadata"]["name"].startswith(f"tenure-{task_id(1).lower()}-f9-")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert container["args"][:3] == ["run-assignment", "--allow", "tasks"]
    assert line(*command, "--json").json() == {"name": job["metadata"]["name"], "plan": printed.out.rstrip("\n")}


def test_a_launcher_file_may_say_how_executors_start(line: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "launcher.toml"
    file.write_text(
        '[executor]\nprogram = ["/opt/tenure"]\nenvironment = {A = "b"}\n'
        '[kubernetes]\nimage = "a/b:1"\nlease = false\nnode_selector = {pool = "batch"}\n'
    )
    printed = line("workers", "render-launch", task_id(1), "--launcher", "kubernetes", "--launcher-file", str(file))
    (job,) = read_yaml(printed.out)
    spec = job["spec"]["template"]["spec"]
    assert spec["containers"][0]["command"] == ["/opt/tenure"]
    assert {"name": "A", "value": "b"} in spec["containers"][0]["env"]
    assert spec["nodeSelector"] == {"pool": "batch"}


def test_the_other_launchers_show_theirs(line: CommandLine) -> None:
    printed = line("workers", "render-launch", "--launcher", "local", "--example")
    assert "run-assignment" in json.loads(printed.out)["argv"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--launcher", "kubernetes"], "a task or --example is needed"),
        ([task_id(1), "--launcher", "kubernetes", "--example"], "not both"),
        ([task_id(1), "--launcher", "kubernetes"], "image"),
        ([task_id(1), "--launcher", "slurm"], "there is no launcher called 'slurm'"),
    ],
)
def test_what_cannot_be_shown_is_said(line: CommandLine, arguments: list[str], said: str) -> None:
    printed = line("workers", "render-launch", *arguments)
    assert (printed.code, said in printed.err) == (2, True), printed.err


def test_a_worker_that_may_not_change_a_cluster_does_not_start(line: CommandLine) -> None:
    printed = line("worker", "--launcher", "kubernetes", "--launcher-option", "image=a/b:1")
    assert printed.code == 2
    assert "--enable-writes" in printed.err


@pytest.mark.parametrize(
    "statement",
    [
        "import tenure",
        "import tenure.cli.commands",
        "import tenure.workers.shift, tenure.cli.worker",
        "import tenure.launchers.kubernetes_launcher",
    ],
)
def test_nothing_of_the_client_is_imported_before_it_is_needed(statement: str) -> None:
    script = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "kubernetes" not in {name.partition(".")[0] for name in done.stdout.split()}
