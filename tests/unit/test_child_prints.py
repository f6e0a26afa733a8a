"""How a child gathers what calls print, and what it makes of metrics."""

import json
from collections.abc import Callable
from io import StringIO
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.handlers.context import running
from tenure.protocol.metrics import MAX_METRICS
from tenure.testing import ManualClock
from tenure.workers.calls import Call, FromChild, Printed
from tenure.workers.child_metrics import MOST_CHARACTERS, rendered
from tenure.workers.child_prints import CallStream, Prints
from tenure.workers.child_run import Run
from tenure.workers.child_secrets import GivenSecrets
from tenure.workers.child_sheet import MOST_WAITING


class Press:
    """A child's prints, and what the agent is sent."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.sent: list[Printed] = []
        self.given = GivenSecrets()
        self.prints = Prints(self.sent.append, self.clock, self.given)

    def run(self, number: int = 1) -> Run:
        return Run(Call(number, "0" * 26, 1, number, "m:f", "{}"), lambda _: None, self.clock, self.given)


@pytest.fixture
def press() -> Press:
    return Press()


def test_a_line_goes_out_at_once_and_an_unfinished_one_with_the_end(press: Press) -> None:
    run = press.run()
    press.prints.write(run, 1, "whole\n")
    assert press.sent == [Printed(1, 0, 1, "whole\n")]
    press.prints.write(run, 2, "half")
    assert len(press.sent) == 1
    press.prints.end(run)

    assert press.sent[1:] == [Printed(1, 6, 2, "half")]


def test_a_call_that_is_over_prints_for_nobody(press: Press) -> None:
    run = press.run()
    press.prints.write(run, 1, "mine\n")
    press.prints.end(run)

    assert not press.prints.write(run, 1, "nobody's\n")
    assert len(press.sent) == 1


@given(st.lists(st.tuples(st.integers(1, 2), st.integers(1, MOST_WAITING * 2)), max_size=30))
def test_positions_count_what_was_left_out(texts: list[tuple[int, int]]) -> None:
    press = Press()
    run = press.run()
    for stream, size in texts:
        press.prints.write(run, stream, "x" * size)
    press.prints.end(run)

    ends = [(each.position, each.position + len(each.text)) for each in press.sent]
    assert all(a[1] <= b[0] for a, b in pairwise(ends))
    assert not texts or ends[-1][1] == sum(size for _, size in texts)


def test_an_agent_that_is_gone_is_no_error_of_whoever_prints() -> None:
    def gone(_: FromChild) -> None:
        raise BrokenPipeError

    prints = Prints(gone, ManualClock(), GivenSecrets())
    assert prints.write(Press().run(), 1, "line\n")


def test_printing_in_the_middle_of_printing_is_left_to_the_worker() -> None:
    """A signal handler may print at any time."""
    press, plain = Press(), StringIO()
    run = press.run()

    def interrupted(printed: Printed) -> None:
        press.sent.append(printed)
        stream.write("from a handler\n")

    prints = Prints(interrupted, press.clock, press.given)
    stream = CallStream(1, plain, prints)
    with running(run):
        stream.write("line\n")

    assert [each.text for each in press.sent] == ["line\n"]
    assert plain.getvalue() == "from a handler\n"


def test_outside_of_calls_the_stream_is_the_process_s_own(press: Press) -> None:
    plain = StringIO()
    stream = CallStream(1, plain, press.prints)
    stream.write("nobody's\n")
    with running(press.run()):
        stream.write("somebody's\n")

    assert plain.getvalue() == "nobody's\n"
    assert [each.text for each in press.sent] == ["somebody's\n"]


class Odd:
    def __float__(self) -> float:
        raise RuntimeError("no")

    def __str__(self) -> str:
        raise RuntimeError("no")


class Tensor:
    def __float__(self) -> float:
        return 0.25


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.5, 0.5),
        (7, 7),
        (True, True),
        (None, None),
        ("text", "text"),
        (float("inf"), "inf"),
        (Tensor(), 0.25),
        (Odd(), "(Odd)"),
        (10**30, "1" + "0" * 30),
        ([1, 2], "[1, 2]"),
        ("x" * 500, "x" * 200),
        ("\udcff", "?"),
    ],
)
def test_metrics_become_json_whatever_they_are(value: object, shown: object) -> None:
    assert json.loads(rendered({"name": value})) == {"name": shown}


def test_metrics_are_bounded_and_none_are_nothing() -> None:
    many = json.loads(rendered({f"name{number}": "x" * 100 for number in range(100)}))

    assert rendered({}) == ""
    assert MOST_CHARACTERS == MAX_METRICS
    assert 30 <= len(many) < 100
    assert "name0" in many


def test_a_huge_number_is_not_an_error() -> None:
    make: Callable[[], int] = lambda: 10**10_000  # noqa: E731 - so that no report prints it
    assert json.loads(rendered({"n": make()})) == {"n": "(int)"}
