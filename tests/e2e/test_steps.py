"""Ten steps with checkpoints, on fleets whose workers die or go stale in between."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.fault.proxy import Proxy
from tests.fixtures_files_fleet import FilesFleet, files_fleet
from tests.fixtures_fleet import ROOT, Worker
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(120)
STEPS = ROOT / "examples" / "protocol" / "steps.py"
LEAP = """
import json, os, pathlib, sys
attempt, gates = os.environ["TENURE_ATTEMPT"], pathlib.Path(sys.argv[1])
task = json.loads(pathlib.Path("task.json").read_text())

def save(name):
    path = pathlib.Path("checkpoint", name)
    path.write_text(f"made by attempt {attempt}")
    with open("progress.jsonl", "a") as file:
        file.write(json.dumps({"checkpoint": name}) + "\\n")

def wait_for(gate):
    while not (gates / gate).exists():
        import time; time.sleep(0.02)

if attempt == "3":
    checkpoint = task["checkpoint"]
    print(checkpoint["name"], pathlib.Path(checkpoint["path"]).read_text())
    sys.exit()
save("begun-" + attempt)
wait_for("go-" + attempt)
save("late-" + attempt)
(gates / ("late-" + attempt)).touch()
wait_for("never")
"""
"""Saves a checkpoint at once and one when told so; the third attempt says what it was given."""


def kept(files: FilesFleet, task_id: str) -> list[str]:
    """The names of the checkpoints that were taken into the records, oldest first."""
    rows = files.rows("artifacts", task_id=task_id, kind="checkpoint")
    return [row["name"] for row in sorted(rows, key=lambda row: (row["fence"], row["recorded_at_ms"]))]


def kill(files: FilesFleet, name: str) -> None:
    """Every process of the worker, with SIGKILL."""
    for process in files.fleet.everything_of(name):
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            process.kill()
    files.fleet.processes[name].wait()


def test_the_next_attempt_starts_where_the_newest_checkpoint_was(tmp_path: Path) -> None:
    with files_fleet(tmp_path) as files:
        parameters = json.dumps({"steps": 10, "pause_ms": 1_000})
        options = ("--form", "folder", "--parameters", parameters, "--retries", "1", "--lease-ttl", "2s")
        task_id = files.submit(*options, "--", sys.executable, str(STEPS))
        wait_until(lambda: "step-6" in kept(files, task_id), "step 6 is kept", 60)
        kill(files, "w1")
        assert kept(files, task_id)[-1] == "step-6"
        files.fleet.start_worker(Worker("w1"))
        files.wait_for(task_id, "SUCCEEDED", 60)

        assert files.fine("result", task_id, "--json").json()["result"] == {
            "total": 385,
            "started_at": 7,
            "resumed_from": "step-6",
        }
        assert files.fine("logs", "--attempt", "2", task_id).out == "attempt 2 starts at step 7\n"
        assert "starts from checkpoint step-6 of attempt 1" in files.explained(task_id)
        back = files.place.folder / "back"
        files.fine("result", task_id, "--outputs", str(back))
        assert len((back / "table.csv").read_text().splitlines()) == 11
        files.fine("artifacts", "gc", "--older-than", "0s")
        rows = files.rows("artifacts", task_id=task_id, kind="checkpoint")
        assert {row["state"] for row in rows} == {"COLLECTED"}, "nobody needs the checkpoints of a task that is over"
        files.fine("artifacts", "verify", task_id)


@pytest.mark.slow
def test_a_stale_worker_cannot_replace_the_newest_checkpoint(tmp_path: Path) -> None:
    with files_fleet(tmp_path, []) as files:
        gates = tmp_path / "gates"
        gates.mkdir()
        proxy = Proxy(files.fleet.server.port)
        try:
            files.fleet.start_worker(Worker("far", url=proxy.url, ttl_ms=4_000))
            files.fleet.wait_for_workers("far")
            task_id = files.submit(
                *("--retries", "2", "--lease-ttl", "4s", "--", sys.executable, "-c", LEAP, str(gates))
            )
            wait_until(lambda: kept(files, task_id) == ["begun-1"], "its first checkpoint is kept", 30)
            proxy.lead_nowhere()
            (gates / "go-1").touch()
            wait_until((gates / "late-1").exists, "it has told one more, and nobody heard it", 30)
            wait_until(lambda: len(files.depot.places()) == 1, "which is staged", 30)
            files.fleet.start_worker(Worker("near", ttl_ms=4_000))
            wait_until(lambda: "begun-2" in kept(files, task_id), "another attempt has a checkpoint", 30)
            proxy.heal()
            files.fleet.wait_for_workers("far")
            (gates / "go-2").touch()
            wait_until(lambda: "late-2" in kept(files, task_id), "the newer attempt goes on", 30)
            assert "late-1" not in kept(files, task_id)
            kill(files, "near")
            files.wait_for(task_id, "SUCCEEDED", 60)
            assert files.fine("result", task_id).out == "late-2 made by attempt 2\n"
            assert kept(files, task_id) == ["begun-1", "begun-2", "late-2"]
        finally:
            proxy.heal()
            files.fleet.processes["far"].kill()
            proxy.close()
