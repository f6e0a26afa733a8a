"""The tree of errors."""

import inspect

import pytest

from tenure import errors
from tenure.client.refusals import error_of
from tenure.protocol.client_messages import Refusal

ALL = [found for found in vars(errors).values() if inspect.isclass(found) and issubclass(found, errors.TenureError)]


@pytest.mark.parametrize("kind", ALL)
def test_each_error_has_a_code_of_its_own_and_an_exit_code(kind: type[errors.TenureError]) -> None:
    assert [other for other in ALL if other.code == kind.code] == [kind]
    assert kind.exit_code in {1, 2, 3}
    assert inspect.getdoc(kind)


@pytest.mark.parametrize(("root", "exit_code"), [(errors.TaskError, 1), (errors.UsageError, 2), (errors.FleetError, 3)])
def test_a_branch_shares_its_exit_code(root: type[errors.TenureError], exit_code: int) -> None:
    assert {kind.exit_code for kind in ALL if issubclass(kind, root)} == {exit_code}


def test_the_text_says_what_happened_and_what_to_do() -> None:
    assert str(errors.UnknownTask("no task 7", "Look it up")) == "no task 7. Look it up"
    assert str(errors.UnknownTask("no task 7")) == "no task 7"


@pytest.mark.parametrize("kind", ALL)
def test_a_refusal_becomes_the_error_that_it_was(kind: type[errors.TenureError]) -> None:
    error = error_of(Refusal(code=kind.code, message="m", remedy="r"))
    assert type(error) is kind
    assert (error.message, error.remedy) == ("m", "r")


def test_a_wait_that_ran_out_is_a_timeout_to_everybody() -> None:
    assert issubclass(errors.WaitTimedOut, TimeoutError)
