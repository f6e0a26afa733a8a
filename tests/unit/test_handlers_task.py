"""The decorator and its options."""

from datetime import timedelta
from typing import Any, cast

import pytest

import tenure
from tenure.errors import UsageError
from tenure.handlers.options import TaskDefaults, defaults_of
from tenure.handlers.task import defaults_noted_on
from tenure.protocol.durations import duration_ms
from tests.fixtures_handlers import anything, exponent, greet


def test_a_decorated_function_stays_what_it_is() -> None:
    def double(value: int) -> int:
        return value * 2

    assert tenure.task(double) is double
    assert tenure.task(capability="cpu")(double) is double
    assert double(4) == 8


def test_options_are_noted_in_milliseconds() -> None:
    noted = defaults_noted_on(exponent)
    assert (noted.capability, noted.lease_ttl_ms, noted.retry) == ("cpu", 120_000, tenure.Retry(lost=2))


def test_a_bare_decorator_and_no_decorator_note_nothing() -> None:
    assert defaults_noted_on(greet) == defaults_noted_on(anything) == TaskDefaults()


def test_the_later_word_wins_and_silence_keeps_the_earlier() -> None:
    first = defaults_of({"capability": "cpu", "priority": 5, "labels": {"room": "b12"}, "exclusive": True})
    later = defaults_of({"capability": "gpu", "priority": 0, "exclusive": False})
    assert first.under(later) == defaults_of(
        {"capability": "gpu", "priority": 0, "labels": {"room": "b12"}, "exclusive": False}
    )


def test_mappings_are_put_in_order() -> None:
    noted = defaults_of({"labels": {"b": "2", "a": "1"}, "resources": {"gpu": 1}})
    assert (noted.labels, noted.resources) == ((("a", "1"), ("b", "2")), (("gpu", 1),))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"capabilty": "cpu"}, "unknown option 'capabilty'"),
        ({"lease_ttl": "2 minutes"}, "lease_ttl is not a duration: '2 minutes'"),
        ({"timeout": -1}, "timeout is not a duration"),
        ({"labels": ["a"]}, "labels must be a mapping"),
        ({"exclusive": True, "start": "claimed"}, "contradicts"),
    ],
)
def test_wrong_options_are_refused_at_once(options: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        tenure.task(**options)


def test_a_positional_option_is_refused() -> None:
    with pytest.raises(UsageError, match="decorates functions"):
        tenure.task(cast("Any", "cpu"))


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("2m", 120_000),
        ("1h30m", 5_400_000),
        ("1d", 86_400_000),
        ("1m500ms", 60_500),
        (250, 250),
        (0, 0),
        (timedelta(seconds=1.5), 1_500),
    ],
)
def test_durations_are_read(written: Any, milliseconds: int) -> None:
    assert duration_ms(written) == milliseconds


@pytest.mark.parametrize(
    "written", ["", "2", "m", "2 m", "-2m", "1.5s", "٣s", "2m ", -1, True, 1.5, None, timedelta(-1)]
)
def test_wrong_durations_are_refused(written: Any) -> None:
    with pytest.raises(UsageError, match="is not a duration"):
        duration_ms(written)


def test_a_wrong_duration_is_shown_only_in_part() -> None:
    with pytest.raises(UsageError) as caught:
        duration_ms("x" * 10_000)
    assert len(str(caught.value)) < 300
