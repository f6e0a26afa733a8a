"""The mutants stay what they are: changes of code that is there, each of another rule."""

from collections import Counter

import pytest

from tests.mutants.__main__ import MUTANTS
from tests.mutants.mutant import Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_a_mutant_replaces_is_in_the_code_exactly_once(mutant: Mutant) -> None:
    for edit in mutant.edits:
        assert edit.count() == 1, f"{edit.file} has it {edit.count()} times: {edit.old}"
        assert edit.old != edit.new


def test_there_are_enough_mutants_and_each_has_its_own_name_and_rule() -> None:
    assert len(MUTANTS) >= 40
    assert Counter(mutant.name for mutant in MUTANTS).most_common(1)[0][1] == 1
    assert Counter(mutant.rule for mutant in MUTANTS).most_common(1)[0][1] == 1
