"""Break each rule in turn, and see whether the tests notice: `python -m tests.mutants`, or `make mutants`.

Each mutant is the package, copied and changed in one rule. It is killed when a unit test or a simulated history fails.
One that survives is a rule that nothing holds, and fails the run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Final, final

from tests.mutants import acceptance, decisions, workers
from tests.mutants.mutant import Mutant

ROOT: Final = Path(__file__).parents[2]
MUTANTS: Final = (*acceptance.MUTANTS, *decisions.MUTANTS, *workers.MUTANTS)
TESTS: Final = (
    "tests/unit/test_coordinator_*.py",
    "tests/unit/test_store*.py",
    "tests/unit/test_worker_*.py",
    "tests/unit/test_broker_incarnation.py",
    "tests/property/test_worker_claims.py",
    "tests/fault/test_coordinator_*.py",
)
"""Tests without processes, servers and waiting."""
_TIMEOUT_S: Final = 600
_WIDTH: Final = 30


@final
@dataclass(frozen=True, slots=True)
class Death:
    """What noticed a mutant: a test or a history of each kind, or "" for nothing."""

    unit: str
    simulation: str

    @property
    def killed(self) -> bool:
        """Whether anything noticed."""
        return bool(self.unit or self.simulation)


@final
class Bench:
    """A copy of the package and its tests, in which one mutant after the other is made and undone."""

    def __init__(self, root: Path, seeds: int) -> None:
        self._root = root
        self._seeds = seeds
        ignore = shutil.ignore_patterns("__pycache__", ".*")
        for folder in ("tenure", "tests"):
            shutil.copytree(ROOT / folder, root / folder, ignore=ignore)
        shutil.copy(ROOT / "pyproject.toml", root)
        self._files = [str(path) for pattern in TESTS for path in sorted(root.glob(pattern))]

    def examine(self, mutant: Mutant | None, *, both: bool) -> Death:
        """Make a mutant (None for the package as it is), and see who notices."""
        package = self._root / "tenure"
        kept = {edit.file: (package / edit.file).read_bytes() for edit in (mutant.edits if mutant else ())}
        try:
            for edit in mutant.edits if mutant else ():
                edit.apply(package)
            unit = self._unit()
            simulation = self._simulation() if both or not unit else ""
            return Death(unit, simulation)
        finally:
            for file, content in kept.items():
                (package / file).write_bytes(content)

    def _unit(self) -> str:
        options = [
            "-q",
            "-x",
            "-p",
            "no:randomly",
            "-p",
            "no:cacheprovider",
            "--no-header",
            "--tb=no",
            "-m",
            "not slow",
        ]
        code, output = self._run(["-m", "pytest", *options, *self._files])
        if any(line.startswith("ERROR ") and "::" not in line for line in output.splitlines()):
            raise SystemExit(f"A mutant is no program: {output[-500:]}")
        return _first(output, "FAILED ", "ERROR ") or ("pytest failed" if code else "")

    def _simulation(self) -> str:
        options = ["--seeds", str(self._seeds), "--base", "1", "--processes", "1", "--until-failure"]
        code, output = self._run(["-m", "tests.simulation", *options])
        return _first(output, "seed ") or ("the simulation failed" if code else "")

    def _run(self, arguments: list[str]) -> tuple[int, str]:
        keep = ("PATH", "HOME", "LANG", "TMPDIR")
        env = {name: value for name in keep if (value := os.environ.get(name))}  # noqa: TID251 - for other programs
        env |= {"PYTHONPATH": str(self._root), "PYTHONDONTWRITEBYTECODE": "1", "HYPOTHESIS_MAX_EXAMPLES": "30"}
        try:
            done = subprocess.run(
                [sys.executable, *arguments],
                cwd=self._root,
                env=env,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return 1, "FAILED by not ending"
        return done.returncode, done.stdout


def _first(output: str, *marks: str) -> str:
    for line in output.splitlines():
        if line.startswith(marks):
            return line.removeprefix("FAILED tests/").removeprefix("ERROR tests/")
    return ""


def main(arguments: list[str]) -> int:
    """Examine all mutants, or those that are named; 1 when one survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Break each rule and see who notices.")
    parser.add_argument("--seeds", type=int, default=400, help="how many histories a mutant has to survive")
    parser.add_argument("--jobs", type=int, default=2, help="how many mutants at a time")
    parser.add_argument("--both", action="store_true", help="ask the simulation also when a unit test has noticed")
    parser.add_argument("names", nargs="*", help="only these mutants")
    options = parser.parse_args(arguments)
    chosen = [mutant for mutant in MUTANTS if not options.names or mutant.name in options.names]
    with tempfile.TemporaryDirectory(prefix="tenure-mutants-") as folder:
        benches: SimpleQueue[Bench] = SimpleQueue()
        for number in range(options.jobs):
            benches.put(Bench(Path(folder) / str(number), options.seeds))
        untouched = _examine(benches, None, both=True)
        if untouched.killed:
            _say(f"The package as it is does not pass: {untouched.unit or untouched.simulation}")
            return 1
        with ThreadPoolExecutor(options.jobs) as pool:
            deaths = list(pool.map(partial(_report, benches, both=options.both), chosen))
    survivors = [mutant.name for mutant, death in zip(chosen, deaths, strict=True) if not death.killed]
    _say(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants killed")
    if survivors:
        _say(f"Survivors: {', '.join(survivors)}")
    return 1 if survivors else 0


def _examine(benches: SimpleQueue[Bench], mutant: Mutant | None, *, both: bool) -> Death:
    bench = benches.get()
    try:
        return bench.examine(mutant, both=both)
    finally:
        benches.put(bench)


def _report(benches: SimpleQueue[Bench], mutant: Mutant, *, both: bool) -> Death:
    death = _examine(benches, mutant, both=both)
    noticed = "; ".join(filter(None, (death.unit, death.simulation))) or "SURVIVED"
    _say(f"{mutant.name:<{_WIDTH}} {noticed[:200]}")
    return death


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
