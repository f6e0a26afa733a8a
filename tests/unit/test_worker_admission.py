"""What a worker says when the broker does not accept its site's credential any more."""

import logging

import pytest

from tenure.errors import BrokerRefused, BrokerUnreachable, CredentialRefused
from tenure.workers.admission import Admission

REFUSED = CredentialRefused("The broker at h:1 refuses this user or password", "Check the broker URL")


@pytest.fixture
def admission(caplog: pytest.LogCaptureFixture) -> Admission:
    caplog.set_level(logging.DEBUG)
    return Admission("lab")


def fail(admission: Admission, *lines: str, times: int = 4) -> None:
    for failures in range(1, times + 1):
        for line in lines:
            assert admission.met(line, REFUSED, failures)


def test_all_lines_together_say_it_once(admission: Admission, caplog: pytest.LogCaptureFixture) -> None:
    fail(admission, "taker", "pulse", "listener")

    assert len(caplog.records) == 1
    assert "the credential of site lab is not good any more, it was revoked or replaced" in caplog.text
    assert "tenure sites show lab" in caplog.text


def test_what_is_said_at_the_end_is_not_said_before(admission: Admission, caplog: pytest.LogCaptureFixture) -> None:
    admission.hush()
    fail(admission, "taker")

    assert caplog.records == []
    assert admission.refusal is not None
    assert admission.refusal.exit_code == 3


def test_a_worker_that_is_let_in_again_was_refused_nothing(
    admission: Admission, caplog: pytest.LogCaptureFixture
) -> None:
    """The credential's file came a little late after a rotation."""
    fail(admission, "taker", "pulse", times=2)
    for line in ("taker", "pulse"):
        admission.passed(line)
    assert (admission.refusal, caplog.records) == (None, [])

    fail(admission, "taker")
    assert len(caplog.records) == 1


@pytest.mark.parametrize("error", [BrokerUnreachable("The broker cannot be reached"), BrokerRefused("No rights")])
def test_other_failures_are_the_lines_own(admission: Admission, error: BrokerUnreachable | BrokerRefused) -> None:
    assert not admission.met("taker", error, 3)
    assert admission.refusal is None
