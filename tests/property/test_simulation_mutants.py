"""The mutants stay what they are: changes of code that is there, each of another rule."""

from collections import Counter

import pytest

from tests.mutants.__main__ import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.verdict import BrokenMutant, How, Run, Verdict, of_simulation, of_tests


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_a_mutant_replaces_is_in_the_code_exactly_once(mutant: Mutant) -> None:
    for edit in mutant.edits:
        assert edit.count() == 1, f"{edit.file} has it {edit.count()} times: {edit.old}"
        assert edit.old != edit.new


def test_there_are_enough_mutants_and_each_has_its_own_name_and_rule() -> None:
    assert len(MUTANTS) >= 40
    assert Counter(mutant.name for mutant in MUTANTS).most_common(1)[0][1] == 1
    assert Counter(mutant.rule for mutant in MUTANTS).most_common(1)[0][1] == 1


@pytest.mark.parametrize(
    ("run", "verdict"),
    [
        (Run(0, "3 passed"), Verdict()),
        (Run(1, "FAILED tests/unit/a.py::b - assert 1 == 2"), Verdict(How.TEST, "unit/a.py::b - assert 1 == 2")),
        (Run(1, "ERROR tests/unit/a.py::b - KeyError"), Verdict(How.TEST, "unit/a.py::b - KeyError")),
        (Run(1, "FAILED tests/a.py::b - Failed: Timeout >60s"), Verdict(How.HANG, "a.py::b - Failed: Timeout >60s")),
        (Run(1, "+++ Timeout +++"), Verdict(How.HANG, "the tests")),
        (Run(None, ""), Verdict(How.HANG, "the tests")),
    ],
)  # fmt: skip
def test_a_run_of_the_tests_is_judged_by_how_it_ended(run: Run, verdict: Verdict) -> None:
    assert of_tests(run) == verdict


@pytest.mark.parametrize(
    "run",
    [
        Run(1, "ERROR tests/unit/test_a.py - SyntaxError"),  # with -x; without it pytest answers 2
        Run(2, "ERROR tests/unit/test_a.py - ImportError"),
        Run(3, "INTERNALERROR>"),
        Run(4, "ERROR: file or directory not found: tests/unit/test_a.py"),
        Run(5, "no tests ran"),
        Run(-11, ""),
    ],
)
def test_a_run_that_tested_nothing_kills_no_mutant(run: Run) -> None:
    with pytest.raises(BrokenMutant):
        of_tests(run)


def test_the_simulation_kills_by_what_a_history_breaks_and_not_by_falling_over() -> None:
    assert of_simulation(Run(0, "")) == Verdict()
    assert of_simulation(Run(1, "seed 7 FAILED: at 3: overlap")).how is How.HISTORY
    assert of_simulation(Run(1, "seed 7 FAILED: the simulation itself broke: KeyError: 1")).how is How.CRASH
    assert of_simulation(Run(None, "")).how is How.HANG
    with pytest.raises(BrokenMutant):
        of_simulation(Run(1, "Traceback (most recent call last):"))
