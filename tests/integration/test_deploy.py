"""What is in deploy/: scripts and units that name options which exist, and a batch script that passes signals on."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from tenure.broker.keys import DEFAULT_SITE
from tenure.cli.commands import tenure
from tenure.workers.identity import of_site
from tests.kubernetes_objects import read_yaml
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
folder="$TMPDIR/tenure-7/workers/$WORKER"
mkdir -p "$folder"
printf %s "$LEFT" > "$folder/spool.jsonl"
trap 'echo drained > "$HOME/told"; exit 4' TERM
: > "$HOME/ready"
while :; do sleep 0.1; done
"""

AGENT = """
import signal, sys
from pathlib import Path
from tenure.clock import SystemClock, SystemEntropy
from tenure.workers.identity import assume
assume(Path(sys.argv[1]), None, SystemClock(), SystemEntropy(), site="imaging")
print("at work", flush=True)
signal.pause()
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


def run_batch_script(home: Path, worker_id: str, *, left: str) -> Path:
    """Run it to its signalled end, with a worker that leaves `left` in its spool; the state folder that it had."""
    worker = home / "worker"
    worker.write_text(WORKER)
    worker.chmod(0o755)
    variables = {
        "HOME": str(home),
        "PATH": os.defpath,
        "TMPDIR": str(home),
        "TENURE": str(worker),
        "WORKER": worker_id,
        "LEFT": left,
        "SLURM_JOB_ID": "7",
        "SLURM_ARRAY_JOB_ID": "5",
        "SLURM_ARRAY_TASK_ID": "2",
        "SLURM_JOB_END_TIME": "1700000000",
    }
    job = subprocess.Popen(["bash", BATCH, "--capability", "cpu"], env=variables)
    try:
        wait_until((home / "ready").exists, "the worker runs")
        job.send_signal(signal.SIGTERM)
        assert job.wait(timeout=10) == 4
    finally:
        job.kill()
    return home / "tenure-7"


def test_the_batch_script_passes_the_end_on_and_waits_for_the_worker(tmp_path: Path) -> None:
    state = run_batch_script(tmp_path, "slurm-5-2", left="")
    said = (tmp_path / "arguments").read_text().split()
    assert said[:3] == ["worker", "--worker-id", "slurm-5-2"]
    assert said[-4:] == ["--gone-by", "1700000000", "--capability", "cpu"]
    assert (tmp_path / "told").read_text() == "drained\n"
    assert not state.exists()


@pytest.mark.parametrize("site", [DEFAULT_SITE, "imaging"])
def test_the_batch_script_keeps_results_without_a_verdict_whoever_the_worker_is(tmp_path: Path, site: str) -> None:
    """A site's worker has a folder that begins with the site's name; its spool was removed once."""
    worker_id = of_site(site, "slurm-5-2")
    state = run_batch_script(tmp_path, worker_id, left="{}\n")
    assert (state / "workers" / worker_id / "spool.jsonl").read_text() == "{}\n"


def test_the_batch_script_removes_the_empty_folder_of_a_sites_worker(tmp_path: Path) -> None:
    assert not run_batch_script(tmp_path, of_site("imaging", "slurm-5-2"), left="").exists()


def worker_health(state: Path) -> int:
    """What the check of a worker's container says; it gets no address of a broker, so it can ask nobody."""
    variables = {"PATH": os.defpath, "TENURE_DATA_DIR": str(state)}
    check = ["sh", str(DEPLOY / "container" / "check-part"), "worker"]
    return subprocess.run(check, env=variables, check=False, capture_output=True).returncode


def test_a_workers_container_is_healthy_while_its_agent_is_at_work_whatever_its_credential(tmp_path: Path) -> None:
    assert worker_health(tmp_path) == 1
    agent = subprocess.Popen([sys.executable, "-c", AGENT, tmp_path], cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert agent.stdout is not None
        assert agent.stdout.readline() == b"at work\n"
        assert worker_health(tmp_path) == 0
        agent.send_signal(signal.SIGSTOP)
        wait_until(lambda: worker_health(tmp_path) == 1, "an agent that is stopped is not at work")
        agent.send_signal(signal.SIGCONT)
        wait_until(lambda: worker_health(tmp_path) == 0, "it goes on")
    finally:
        agent.kill()
        agent.communicate()
    assert worker_health(tmp_path) == 1


def test_each_unit_has_a_credential_of_its_own() -> None:
    loaded = {
        unit.stem: [line.partition("=")[2] for line in unit.read_text().splitlines() if line.startswith("LoadCred")]
        for unit in UNITS
    }
    assert loaded == {
        "tenure-broker": [],
        "tenure-coordinator": ["broker.url:/etc/tenure/coordinator.url"],
        "tenure-worker@": ["broker.url:/etc/tenure/worker-%i.url"],
    }


def composed(**variables: str) -> dict[str, Any]:
    """The file with these variables, and its own word for each other one and for one that is empty."""
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    said = re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: variables.get(found[1]) or found[2], text)
    assert "$" not in said
    (fleet,) = read_yaml(said)
    return fleet


def files_of_parts(fleet: dict[str, Any]) -> dict[str, str]:
    """The name of the file in which each service finds its address; all see it under the same path."""
    found: dict[str, str] = {}
    for name, service in fleet["services"].items():
        (secret,) = service["secrets"]
        source, target = (secret, secret) if isinstance(secret, str) else (secret["source"], secret["target"])
        assert target == "broker_url"
        found[name] = Path(fleet["secrets"][source]["file"]).name
    return found


PARTS = ("broker", "cli", "coordinator", "programs", "worker")


def test_one_secret_is_enough_for_a_fleet_in_containers() -> None:
    assert files_of_parts(composed()) == dict.fromkeys(PARTS, "broker.url")


def test_a_credential_that_is_named_empty_is_the_one_secret() -> None:
    assert files_of_parts(composed(TENURE_WORKER_CREDENTIAL="")) == dict.fromkeys(PARTS, "broker.url")


def test_each_part_in_a_container_takes_a_credential_of_its_own() -> None:
    fleet = composed(
        TENURE_SECRETS="/srv/secrets",
        TENURE_COORDINATOR_CREDENTIAL="coordinator.url",
        TENURE_WORKER_CREDENTIAL="imaging.url",
        TENURE_CLI_CREDENTIAL="operator.url",
    )
    expected = ("broker.url", "operator.url", "coordinator.url", "imaging.url", "imaging.url")
    assert files_of_parts(fleet) == dict(zip(PARTS, expected, strict=True))
    assert {Path(secret["file"]).parent for secret in fleet["secrets"].values()} == {Path("/srv/secrets")}
