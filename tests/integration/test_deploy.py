"""What is in deploy/: scripts and units that name options which exist, and a batch script that passes signals on."""

import os
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import click
import pytest

from tenure.cli.commands import tenure
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SCRIPTS = sorted(
    path
    for path in DEPLOY.rglob("*")
    if path.is_file() and path.read_bytes().startswith((b"#!/bin/sh", b"#!/bin/bash"))
)
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
BATCH = DEPLOY / "slurm" / "tenure-workers.sbatch"

WORKER = """#!/bin/sh
printf '%s\\n' "$@" > "$HOME/arguments"
mkdir -p "$TMPDIR/tenure-7/workers/slurm-5-2"
trap 'echo drained > "$HOME/told"; exit 4' TERM
: > "$HOME/ready"
while :; do sleep 0.1; done
"""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_every_script_can_be_read_by_its_shell(script: Path) -> None:
    shell = script.read_text().splitlines()[0].removeprefix("#!")
    subprocess.run([shell, "-n", script], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", script], check=True)


def test_scripts_are_there_at_all() -> None:
    assert {"start-broker", "check-part", "make-secrets", BATCH.name} <= {path.name for path in SCRIPTS}


def options_of(command: str) -> set[str]:
    found = tenure.get_command(click.Context(tenure), command)
    assert found is not None, command
    return {option for parameter in found.params for option in parameter.opts}


def commands(text: str) -> list[list[str]]:
    """Every command line of ours in a file: its name, and its options."""
    joined = text.replace("\\\n", " ")
    lines = [line for line in joined.splitlines() if not line.lstrip().startswith("#")]
    found: list[list[str]] = []
    for line in lines:
        words = shlex.split(line.replace('"$tenure"', "/tenure"), comments=True) if "tenure" in line else []
        at = next((index for index, word in enumerate(words) if word.endswith("/tenure")), None)
        if at is not None and len(words) > at + 1:
            found.append([words[at + 1], *[word for word in words[at + 2 :] if word.startswith("--")]])
    return found


@pytest.mark.parametrize("path", [*UNITS, BATCH], ids=lambda path: path.name)
def test_units_and_batch_script_name_options_that_exist(path: Path) -> None:
    (line,) = commands(path.read_text())
    assert set(line[1:]) <= options_of(line[0])


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_takes_the_units(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/tenure/bin/tenure", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if unit.stem in line]) == (0, [])


def test_the_batch_script_passes_the_end_on_and_waits_for_the_worker(tmp_path: Path) -> None:
    worker = tmp_path / "worker"
    worker.write_text(WORKER)
    worker.chmod(0o755)
    variables = {
        "HOME": str(tmp_path),
        "PATH": os.defpath,
        "TMPDIR": str(tmp_path),
        "TENURE": str(worker),
        "SLURM_JOB_ID": "7",
        "SLURM_ARRAY_JOB_ID": "5",
        "SLURM_ARRAY_TASK_ID": "2",
        "SLURM_JOB_END_TIME": "1700000000",
    }
    job = subprocess.Popen(["bash", BATCH, "--capability", "cpu"], env=variables)
    try:
        wait_until((tmp_path / "ready").exists, "the worker runs")
        job.send_signal(signal.SIGTERM)
        assert job.wait(timeout=10) == 4
    finally:
        job.kill()
    said = (tmp_path / "arguments").read_text().split()
    assert said[:3] == ["worker", "--worker-id", "slurm-5-2"]
    assert said[-4:] == ["--gone-by", "1700000000", "--capability", "cpu"]
    assert (tmp_path / "told").read_text() == "drained\n"
    assert not (tmp_path / "tenure-7").exists()
