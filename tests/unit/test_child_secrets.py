"""What a call was given in secret is in nothing that its child tells."""

import json
from io import StringIO
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.handlers.context import running
from tenure.testing import ManualClock
from tenure.workers.calls import Call, FromChild, Printed, Progress
from tenure.workers.child_failures import failed, rendered
from tenure.workers.child_prints import CallStream, Prints
from tenure.workers.child_run import Run
from tenure.workers.child_secrets import GivenSecrets
from tenure.workers.child_sheet import MOST_WAITING

SECRET = "hunter2-of-the-hill"


@pytest.fixture
def known() -> GivenSecrets:
    known = GivenSecrets()
    known.add("key", f"{SECRET}\n")
    return known


def printed(known: GivenSecrets, *texts: str) -> str:
    """What the agent is sent of a call that prints these, one by one."""
    sent: list[Printed] = []
    prints = Prints(sent.append, ManualClock(), known)
    run = Run(Call(1, "T", 1, 1, "m:f", "{}"), lambda _: None, ManualClock(), known)
    for text in texts:
        prints.write(run, 1, text)
    prints.end(run)
    return "".join(each.text for each in sent)


def test_what_is_printed_is_masked(known: GivenSecrets) -> None:
    assert printed(known, f"it is {SECRET}.\n", "so\n") == "it is [secret key].\nso\n"


@given(st.lists(st.integers(0, len(SECRET)), max_size=5))
def test_in_whatever_pieces_it_is_printed(cuts: list[int]) -> None:
    known = GivenSecrets()
    known.add("key", SECRET)
    ends = sorted({0, *cuts, len(SECRET)})
    pieces = [SECRET[start:end] for start, end in pairwise(ends)]
    assert printed(known, "a", *pieces, "b") == "a[secret key]b"


def test_what_only_begins_like_a_secret_is_printed_in_the_end(known: GivenSecrets) -> None:
    assert printed(known, "it is hunter2-") == "it is hunter2-"


def test_a_secret_is_masked_before_what_is_too_much_is_cut(known: GivenSecrets) -> None:
    assert "of-the-hill" not in printed(known, SECRET + "x" * (MOST_WAITING - 8) + "\n")


def test_what_belongs_to_no_call_is_masked_too(known: GivenSecrets) -> None:
    plain = StringIO()
    text = f"{SECRET}\n"
    assert CallStream(1, plain, Prints(lambda _: None, ManualClock(), known)).write(text) == len(text)
    assert plain.getvalue() == "[secret key]\n"


def test_failures_are_masked_before_they_are_cut(known: GivenSecrets) -> None:
    error = ValueError("x" * (2_000 - len("ValueError: ") - 7) + SECRET)
    fields = json.loads(failed(1, 1, error, known).failure)
    assert "hunter2" not in str(fields)
    assert fields["message"].endswith("[secret")
    assert "[secret key]" in fields["trace"]


def test_progress_is_masked_before_it_is_cut(known: GivenSecrets) -> None:
    told: list[FromChild] = []
    run = Run(Call(1, "T", 1, 1, "m:f", "{}"), told.append, ManualClock(), known)
    run.progress(0.5, "x" * 995 + SECRET, note="x" * 195 + SECRET, **{SECRET: 1})
    (progress,) = told
    assert isinstance(progress, Progress)
    assert "hunter" not in str(progress)
    assert json.loads(progress.metrics)["[secret key]"] == 1


@pytest.mark.parametrize(
    ("secret", "value", "told"),
    [
        (SECRET, SECRET, "[secret key]"),
        (SECRET, {"a": [f"<{SECRET}>"], SECRET: 1}, {"a": ["<[secret key]>"], "[secret key]": 1}),
        ('"quoted"\n and Ünlaut', '"quoted"\n and Ünlaut', "[secret key]"),
        ("1234", {"pin": 1234, "other": 51234.5, "good": [True, None, 7]}, None),
        ('{"user":"me"}', {"user": "me"}, "[secret key]"),
        ("true", [True], ["[secret key]"]),
        (SECRET, {"plain": 1}, {"plain": 1}),
    ],
)
def test_a_value_is_masked_and_stays_json(secret: str, value: object, told: object) -> None:
    known = GivenSecrets()
    known.add("key", secret)
    text = rendered(value, known)
    found = json.loads(text)
    assert secret not in text
    assert found == told or told is None
    if told is None:
        assert found == {"pin": "[secret key]", "other": "5[secret key].5", "good": [True, None, 7]}


def test_what_a_call_reads_is_masked_for_those_after_it(known: GivenSecrets) -> None:
    plain = StringIO()
    sent: list[Printed] = []
    prints = Prints(sent.append, ManualClock(), known)
    later = Run(Call(2, "T", 1, 1, "m:f", "{}"), lambda _: None, ManualClock(), known)
    with running(later):
        CallStream(2, plain, prints).write(f"remembered {SECRET}\n")
    assert [each.text for each in sent] == ["remembered [secret key]\n"]


def test_both_values_of_a_secret_that_was_changed_are_masked(known: GivenSecrets) -> None:
    known.add("key", "another-value")
    assert known.text(f"{SECRET} another-value") == "[secret key] [secret key 1]"
