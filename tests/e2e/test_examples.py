"""The examples do what their pages say."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures_e2e import ROOT, Place, Up, gone
from tests.fixtures_fleet_handlers import count
from tests.fixtures_parity import open_parity
from tests.launcher_folder import installed
from tests.waiting import wait_until

LORENZ = ROOT / "examples" / "lorenz"


def test_the_published_exponent_is_reproduced() -> None:
    done = subprocess.run(
        [sys.executable, "lorenz.py", "--rho", "28"],
        cwd=LORENZ,
        env=Place(LORENZ).environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert round(found["exponent"], 2) == 0.91
    assert found["uncertainty"] < 0.005


@pytest.mark.slow
def test_the_sweep_reaches_every_point_although_a_worker_is_killed(tmp_path: Path) -> None:
    fleet = Up(tmp_path)
    fleet.process = fleet.start("up", "--allow", "lorenz", cwd=LORENZ)
    assert fleet.process.stdout is not None
    fleet.told = [fleet.process.stdout.readline()]
    family = fleet.family()
    try:
        arguments = ["--points", "28", "--retries", "1", "--out", str(tmp_path / "lorenz.csv")]
        sweep = subprocess.Popen(
            [sys.executable, "sweep.py", *arguments],
            cwd=LORENZ,
            env=fleet.environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        wait_until(lambda: len(fleet.rows("tasks", "list", "--state", "succeeded")) >= 4, "a few are done")
        holding = [row for row in fleet.rows("workers", "list") if row["holding"]]
        next(one for one in fleet.family() if one.pid == holding[0]["pid"]).kill()
        out, _ = sweep.communicate(timeout=150)
        assert sweep.returncode == 0
        assert "rho = 28: 0.91" in out
        assert len((tmp_path / "lorenz.csv").read_text().splitlines()) == 29
        leases = fleet.rows("leases", "list", "--limit", "1000")
        assert sum(lease["state"] == "COMPLETED" for lease in leases) == 28
        again = [lease for lease in leases if lease["attempt"] > 1]
        directives = fleet.rows("directives", "list")
        assert {(row["task_id"], row["next_attempt"]) for row in directives} == {
            (lease["task_id"], lease["attempt"]) for lease in again
        }
    finally:
        fleet.end()
        wait_until(gone(family), "everything has ended", timeout_s=20)


def test_a_worker_runs_tasks_by_the_launcher_of_the_example(tmp_path: Path) -> None:
    (tmp_path / "installed").mkdir()
    with open_parity("folder", tmp_path, *installed(tmp_path / "installed")) as parity:
        handle = parity.submit(count, 42)
        assert handle.result(60) == 42
        wait_until(lambda: handle.task_id not in parity.journal(), "the worker has forgotten it")
        assert not list((tmp_path / "bench" / "jobs").iterdir())
