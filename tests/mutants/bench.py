"""Where mutants are made and tried: a copy of the package and its tests, in which nothing else is changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, final

from tests.mutants.verdict import UNNOTICED, BrokenMutant, Run, Verdict, of_simulation, of_tests
from tests.mutants.witnesses import MEASURED, Witnesses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutants.mutant import Mutant

ROOT: Final = Path(__file__).parents[2]
TESTS: Final = (
    "tests/unit/test_coordinator_*.py",
    "tests/unit/test_store*.py",
    "tests/unit/test_worker_*.py",
    "tests/unit/test_protocol_*.py",
    "tests/unit/test_broker_*.py",
    "tests/property/test_worker_claims.py",
    "tests/fault/test_coordinator_*.py",
)
"""Tests without processes, servers and waiting."""
_TIMEOUT_S: Final = 600
_PLAIN: Final = ("-p", "no:randomly", "-p", "no:cacheprovider", "--no-header", "--tb=no")
_PYTEST: Final = ("-m", "pytest", "-q", "-x", *_PLAIN, "-m", "not slow")

Ask = Literal["first", "both", "tests", "simulation"]
"""Who is asked: the tests and, when they have not noticed, the simulation; both always; or one of them alone."""


@final
@dataclass(frozen=True, slots=True)
class Death:
    """What the tests and the simulation say of one mutant; `broken` says why they could not say anything."""

    tests: Verdict = UNNOTICED
    simulation: Verdict = UNNOTICED
    broken: str = ""

    @property
    def killed(self) -> bool:
        """Whether anything noticed."""
        return self.tests.killed or self.simulation.killed

    @property
    def first(self) -> Verdict:
        """What noticed it first."""
        return self.tests if self.tests.killed else self.simulation

    def __str__(self) -> str:
        """In a few words, for people."""
        if self.broken:
            return f"BROKEN: {self.broken}"
        return "; ".join(str(each) for each in (self.tests, self.simulation) if each.killed) or "SURVIVED"


@final
class Bench:
    """A copy of the package and its tests, in which one mutant after the other is made and undone."""

    def __init__(self, root: Path, seeds: int) -> None:
        self._root = root
        self._seeds = seeds
        ignore = shutil.ignore_patterns("__pycache__", ".*")
        self._compiled = root / "compiled"
        self._measured = root / "coverage.measured"
        for folder in ("tenure", "tests"):
            shutil.copytree(ROOT / folder, root / folder, ignore=ignore)
        shutil.copy(ROOT / "pyproject.toml", root)
        self._files = [str(path) for pattern in TESTS for path in sorted(root.glob(pattern))]

    def untouched(self, ask: Ask) -> Death:
        """Whether the package as it is passes; what its tests run is measured for `witnesses`."""
        rules = self._root / "coverage.rules"
        rules.write_text(MEASURED, encoding="utf-8")
        measure = ["-m", "coverage", "run", f"--rcfile={rules}", f"--data-file={self._measured}"]
        try:
            tests = of_tests(self._run([*measure, *_PYTEST, *self._files])) if ask != "simulation" else UNNOTICED
            return Death(tests, self._simulation() if ask != "tests" else UNNOTICED)
        except BrokenMutant as error:
            return Death(broken=str(error))

    def witnesses(self, mutants: Sequence[Mutant]) -> dict[str, list[str]]:
        """The tests to ask first, by the mutant's name; none of them when the tests were not measured here."""
        if not self._measured.exists():
            return {}
        witnesses = Witnesses(self._measured, self._root / "tenure")
        return {mutant.name: witnesses.of(mutant.edits) for mutant in mutants}

    def examine(self, mutant: Mutant, ask: Ask, witnesses: Sequence[str] = ()) -> Death:
        """Make a mutant, and see who notices: those tests before all others."""
        package = self._root / "tenure"
        kept = {edit.file: (package / edit.file).read_bytes() for edit in mutant.edits}
        try:
            for edit in mutant.edits:
                edit.apply(package)
                self._forget(package / edit.file)
            tests = self._tests(mutant, witnesses) if ask != "simulation" else UNNOTICED
            asked = ask in {"both", "simulation"} or (ask == "first" and not tests.killed)
            return Death(tests, self._simulation() if asked else UNNOTICED)
        except BrokenMutant as error:
            return Death(broken=str(error))
        finally:
            for file, content in kept.items():
                (package / file).write_bytes(content)
                self._forget(package / file)

    def _tests(self, mutant: Mutant, witnesses: Sequence[str]) -> Verdict:
        # The first failure ends the run, so what is likely to notice comes first.
        if witnesses and (verdict := of_tests(self._run([*_PYTEST, *witnesses]))).killed:
            return verdict
        edited = [edit.file for edit in mutant.edits]
        files = sorted(self._files, key=lambda file: _distance(Path(file).name, edited))
        return of_tests(self._run([*_PYTEST, *files]))

    def _forget(self, file: Path) -> None:
        """Remove the compiled form: Python looks at a file's second and size alone, which an edit may not change."""
        compiled = self._compiled.joinpath(*file.parts[1:])
        for each in compiled.parent.glob(f"{compiled.stem}.*"):
            each.unlink()

    def _simulation(self) -> Verdict:
        options = ["--seeds", str(self._seeds), "--base", "1", "--processes", "1", "--until-failure"]
        return of_simulation(self._run(["-m", "tests.simulation", *options]))

    def _run(self, arguments: list[str]) -> Run:
        keep = ("PATH", "HOME", "LANG", "TMPDIR")
        env = {name: value for name in keep if (value := os.environ.get(name))}  # noqa: TID251 - for other programs
        env |= {
            "CI": "true",  # hypothesis then measures no time: a busy machine kills nobody
            "PYTHONPATH": str(self._root),
            "PYTHONPYCACHEPREFIX": str(self._compiled),
            "HYPOTHESIS_MAX_EXAMPLES": "30",
        }
        try:
            done = subprocess.run(
                [sys.executable, *arguments],
                cwd=self._root,
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Run(None, "")
        return Run(done.returncode, done.stdout)


def _distance(test: str, edited: Sequence[str]) -> int:
    """How far a test file is from what was edited: 0 when it is named after the module, 1 after the part, else 2."""
    if any(f"_{Path(file).stem}." in test for file in edited):
        return 0
    return 1 if any(_area(file) in test for file in edited) else 2


def _area(file: str) -> str:
    """The word by which tests of a part of the package are named: `coordinator/leases.py` has `test_coordinator_*`."""
    return "store" if "/store/" in file else file.split("/", 1)[0].removesuffix("s")
