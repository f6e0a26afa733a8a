"""The reference programs of `examples/protocol`: each runs, and goes on from the checkpoint of a stopped attempt."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures_runner import ROOT, RunnerBench
from tests.fixtures_services import unavailable

EXAMPLES = ROOT / "examples" / "protocol"
ENDLESS = 100_000
FOLDER = ("steps.py", "steps.sh", "steps.c")
LINES = ("steps_lines.py", "steps_lines.sh")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[RunnerBench]:
    bench = RunnerBench(tmp_path)
    yield bench
    bench.close()


def whole(steps: int, *, started_at: int = 1, resumed_from: str | None = None) -> dict[str, Any]:
    return {
        "total": sum(step * step for step in range(1, steps + 1)),
        "started_at": started_at,
        "resumed_from": resumed_from,
    }


def argv_of(name: str, folder: Path, steps: int, pause_ms: int) -> list[str]:
    program = EXAMPLES / name
    if name.endswith(".py"):
        return [sys.executable, str(program)]
    if name.endswith(".sh"):
        return ["sh", str(program), str(steps), str(pause_ms / 1000)]
    compiler = shutil.which("cc") or unavailable("no C compiler is installed")
    built = folder / "steps"
    subprocess.run([compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-o", built, program], check=True)
    return [str(built)]


def start(bench: RunnerBench, name: str, steps: int, *, checkpoint: dict[str, Any] | None, pause_ms: int = 0) -> Path:
    attempt = 1 if checkpoint is None else checkpoint["attempt"] + 1
    parameters = {"steps": steps, "pause_ms": pause_ms}
    task = {"task_id": "0" * 26, "attempt": attempt, "parameters": parameters, "checkpoint": checkpoint}
    env = {"PATH": "/usr/bin:/bin", "TENURE_ATTEMPT": str(attempt)}
    form = "lines" if name in LINES else "folder"
    return bench.start(*argv_of(name, bench.folder, steps, pause_ms), form=form, task=task, env=env)


def checkpoints(bench: RunnerBench) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, bench.lines) if "checkpoint" in line]


def stop_in_the_middle(bench: RunnerBench, name: str) -> tuple[Path, dict[str, Any]]:
    folder = start(bench, name, ENDLESS, checkpoint=None, pause_ms=20)
    bench.until(lambda: len(checkpoints(bench)) >= 6, "it has come to step 6")
    bench.send({"op": "stop", "run": bench.run, "grace": 0})
    assert bench.report()["reason"] == "stop"
    return folder, checkpoints(bench)[-1]


@pytest.mark.parametrize("name", [*FOLDER, *LINES])
def test_a_program_gives_its_result_and_tells_its_progress(bench: RunnerBench, name: str) -> None:
    start(bench, name, 10, checkpoint=None)
    assert json.loads(bench.value()) == whole(10)
    assert [line["checkpoint"] for line in checkpoints(bench)] == [f"step-{step}" for step in range(1, 11)]
    assert [line["fraction"] for line in checkpoints(bench)] == [step / 10 for step in range(1, 11)]
    said = [*bench.lines, bench.text(1)]
    assert any("attempt 1 starts at step 1" in each for each in said)


@pytest.mark.parametrize("name", FOLDER)
def test_the_next_attempt_goes_on_from_the_newest_file(bench: RunnerBench, name: str) -> None:
    folder, told = stop_in_the_middle(bench, name)
    newest = folder / "checkpoint" / told["checkpoint"]
    brought = bench.folder / "task-2" / "checkpoint"
    brought.mkdir(parents=True)
    shutil.copy(newest, brought)
    step = int(newest.name.removeprefix("step-"))
    checkpoint = {"name": newest.name, "path": f"checkpoint/{newest.name}", "attempt": 1, "fence": 1}
    folder = start(bench, name, step + 4, checkpoint=checkpoint)
    assert json.loads(bench.value()) == whole(step + 4, started_at=step + 1, resumed_from=newest.name)
    assert f"attempt 2 starts at step {step + 1}" in bench.text(1)
    table = (folder / "outputs" / "table.csv").read_text().splitlines()
    last = f"{step + 4},{whole(step + 4)['total']}"
    assert (len(table), table[0], table[-1]) == (step + 5, "step,total", last)
    assert [file.name for file in (folder / "outputs").iterdir()] == ["table.csv"]


@pytest.mark.parametrize("name", LINES)
def test_the_next_attempt_goes_on_from_the_newest_state(bench: RunnerBench, name: str) -> None:
    _, told = stop_in_the_middle(bench, name)
    step = int(told["checkpoint"].removeprefix("step-"))
    bench.lines.clear()
    checkpoint = {"name": told["checkpoint"], "attempt": 1, "fence": 1, "state": told["state"]}
    start(bench, name, step + 4, checkpoint=checkpoint)
    assert json.loads(bench.value()) == whole(step + 4, started_at=step + 1, resumed_from=told["checkpoint"])
    assert any(f"attempt 2 starts at step {step + 1}" in line for line in bench.lines)
