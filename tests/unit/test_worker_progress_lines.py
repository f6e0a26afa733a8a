"""What a line of a program says, and what is left out of it."""

import pytest

from tenure.protocol.metrics import MAX_METRICS
from tenure.workers.progress_lines import ProgramLine, read_line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{}", ProgramLine()),
        ('{"fraction": 0.25}', ProgramLine(fraction_ppm=250_000)),
        ('{"fraction": 1}', ProgramLine(fraction_ppm=1_000_000)),
        ('{"fraction": -3, "message": "x"}', ProgramLine(fraction_ppm=0, message="x")),
        ('{"fraction": 1e300}', ProgramLine(fraction_ppm=1_000_000)),
        ('{"metrics": {"loss": 0.5, "n": [1]}}', ProgramLine(metrics='{"loss":0.5,"n":[1]}')),
        ('{"checkpoint": "step-6"}', ProgramLine(checkpoint="step-6")),
        ('{"something": "else"}', ProgramLine()),
    ],
)
def test_good_lines(text: str, line: ProgramLine) -> None:
    assert read_line(text, form="folder") == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"checkpoint": "a", "state": {"x": [1, null]}}', ProgramLine(checkpoint="a", state='{"x":[1,null]}')),
        ('{"state": 1}', ProgramLine()),
        ('{"result": null}', ProgramLine(result="null")),
        ('{"log": "a\\nb", "fraction": 0}', ProgramLine(log="a\nb", fraction_ppm=0)),
    ],
)
def test_what_only_the_form_lines_has(text: str, line: ProgramLine) -> None:
    assert read_line(text, form="lines") == line


@pytest.mark.parametrize("field", ["result", "state", "log"])
def test_what_other_forms_do_not_have(field: str) -> None:
    line = read_line(f'{{"{field}": "x", "fraction": 0.5}}', form="folder")
    assert (line.result, line.state, line.log, line.fraction_ppm) == (None, None, "", 500_000)
    assert field in line.problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "JSON"),
        ("nonsense", "JSON"),
        ("[]", "object"),
        ('"x"', "object"),
        ("[" * 100_000, "deeply"),
        ('{"fraction": NaN}', "NaN"),
        ('{"fraction": 1e999}', "large"),
        ('{"fraction": true}', "fraction"),
        ('{"fraction": "1"}', "fraction"),
        ('{"message": 3}', "message"),
        ('{"metrics": [1]}', "metrics"),
        ('{"metrics": {"x": "' + "y" * MAX_METRICS + '"}}', "metrics"),
        ('{"metrics": {"x": ' + "[" * 20 + "]" * 20 + "}}", "nested too deeply"),
        ('{"metrics": {"x": "\\ud800"}}', "surrogate"),
        ('{"checkpoint": "../x"}', "checkpoint"),
        ('{"checkpoint": "a/b"}', "checkpoint"),
        ('{"checkpoint": ""}', "checkpoint"),
        ('{"checkpoint": "."}', "checkpoint"),
        ('{"checkpoint": 7}', "checkpoint"),
        ('{"log": 1}', "log"),
        ('{"result": "\\ud800"}', "surrogate"),
    ],
)
def test_what_cannot_be_understood_is_left_out(text: str, problem: str) -> None:
    line = read_line(text, form="lines")
    assert problem in line.problem
    line.problem = ""
    assert line == ProgramLine()


def test_a_bad_field_does_not_spoil_the_others() -> None:
    line = read_line('{"fraction": 0.5, "metrics": 1, "checkpoint": "a"}', form="folder")
    assert (line.fraction_ppm, line.metrics, line.checkpoint) == (500_000, None, "a")


def test_texts_can_always_be_sent_on() -> None:
    line = read_line('{"message": "\\ud800' + "x" * 5_000 + '", "log": "\\udfff"}', form="lines")
    assert line.message is not None
    assert len(line.message.encode()) == 2_000
    assert line.log == "?"
