"""What a run of the tests, or of the simulation, says about a mutant.

A mutant is killed by a test that fails, by a history that breaks an invariant, or by a run that does not end. A run
that did not come to judge anything (nothing collected, no such option, a mutant that is no program) kills nobody: it is
a mistake of this harness.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, final

_TESTS_FAILED: Final = 1
_STOPPED: Final = ("Failed: Timeout", "+++ Timeout +++")
"""What pytest's time limit for one test leaves in the output."""
_SHOWN: Final = 500


class How(StrEnum):
    """How a mutant was noticed."""

    NOT = "nothing"
    TEST = "a failing test"
    HISTORY = "a broken invariant"
    CRASH = "a crash of the simulation"
    HANG = "a run that did not end"


@final
@dataclass(frozen=True, slots=True)
class Verdict:
    """How the mutant was noticed, and where."""

    how: How = How.NOT
    where: str = ""

    @property
    def killed(self) -> bool:
        """Whether anything noticed."""
        return self.how is not How.NOT

    def __str__(self) -> str:
        """In a few words, for people."""
        plain = self.how in {How.TEST, How.HISTORY}
        return self.where if plain else f"{self.how}: {self.where}"


UNNOTICED: Final = Verdict()


@final
class BrokenMutant(Exception):
    """The run judged nothing, so the mutant was not tried."""


@final
@dataclass(frozen=True, slots=True)
class Run:
    """A process that has ended, or was stopped because it did not (`code` is None then)."""

    code: int | None
    output: str


def of_tests(run: Run) -> Verdict:
    """What pytest says. Raises `BrokenMutant` when it did not come to run tests."""
    if run.code == 0:
        return UNNOTICED
    lines = run.output.splitlines()
    failed = [line for line in lines if line.startswith(("FAILED ", "ERROR ")) and "::" in line]
    where = failed[0].removeprefix("FAILED tests/").removeprefix("ERROR tests/") if failed else "the tests"
    if run.code is None or any(mark in line for line in lines for mark in _STOPPED):
        return Verdict(How.HANG, where)
    if run.code != _TESTS_FAILED or not failed:
        raise BrokenMutant(f"pytest ended with {run.code} and no failed test: {run.output[-_SHOWN:]}")
    return Verdict(How.TEST, where)


def of_simulation(run: Run) -> Verdict:
    """What the simulation says. Raises `BrokenMutant` when it did not come to judge a history."""
    if run.code == 0:
        return UNNOTICED
    if run.code is None:
        return Verdict(How.HANG, "the simulation")
    found = next((line for line in run.output.splitlines() if line.startswith("seed ")), "")
    if not found:
        raise BrokenMutant(f"the simulation ended with {run.code} and no history: {run.output[-_SHOWN:]}")
    return Verdict(How.CRASH if "the simulation itself broke" in found else How.HISTORY, found)
