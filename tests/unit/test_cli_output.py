"""Output for people on a terminal, for pipes, and for programs."""

import io
from typing import Any

import pytest

from tenure.cli.output import Column, Output, colour_of, duration, listed, moment, plain, time_of_day

COLUMNS = (Column("NAME", "name"), Column("N", "n", right=True), Column("STATE", "state"))
ROWS: list[dict[str, Any]] = [{"name": "a", "n": 10, "state": "FAILED"}, {"name": "two\nlines", "n": None, "state": ""}]


def printed(*, as_json: bool = False, terminal: bool = False) -> str:
    stream = io.StringIO()
    Output(stream, as_json=as_json, terminal=terminal).table(COLUMNS, ROWS, empty="nothing")
    return stream.getvalue()


def test_a_pipe_gets_aligned_columns() -> None:
    assert printed().splitlines() == ["NAME        N  STATE", "a          10  FAILED", "two lines   -  -"]


def test_a_terminal_gets_a_table() -> None:
    text = printed(terminal=True)
    assert "NAME" in text
    assert "─" in text


def test_a_program_gets_the_rows_as_they_are() -> None:
    text = printed(as_json=True, terminal=True)
    assert '"two\\nlines"' in text
    assert "\x1b" not in text


def test_json_leaves_out_what_is_said_to_people() -> None:
    stream = io.StringIO()
    output = Output(stream, as_json=True, terminal=False)
    output.say("hello", bold=True)
    output.answer({"a": 1}, "one")
    assert stream.getvalue() == '{\n  "a": 1\n}\n'


@pytest.mark.parametrize("terminal", [True, False])
def test_words_of_tasks_and_workers_move_no_cursor(terminal: bool) -> None:  # noqa: FBT001
    stream = io.StringIO()
    output = Output(stream, as_json=False, terminal=terminal)
    output.say("one\x1b]0;title\x07\ttwo\nthree\x9b2J\x7f")
    output.table((Column("NAME", "name"),), [{"name": "a\x1b[2Jb\x9bc"}], empty="")
    assert not set(stream.getvalue()) & {"\x1b", "\x07", "\x9b", "\x7f"}
    assert "\ttwo\nthree" in stream.getvalue()


def test_colours_only_on_a_terminal() -> None:
    for terminal in (True, False):
        stream = io.StringIO()
        Output(stream, as_json=False, terminal=terminal).say("hello", bold=True, colour="red")
        assert ("\x1b" in stream.getvalue()) is terminal


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0 ms"), (999, "999 ms"), (1500, "1.5 s"), (61_000, "1 min 01 s"), (3_600_000, "1 h 00 min")],
)
def test_durations(milliseconds: int, text: str) -> None:
    assert duration(milliseconds) == text


def test_values_are_one_line() -> None:
    assert plain({"a": [1, "ü"]}) == '{"a": [1, "ü"]}'
    assert plain("a\n  b") == "a b"
    assert listed(["a", "b"]) == "a, b"
    assert listed([]) == "-"


def test_times_are_of_this_hosts_zone() -> None:
    assert len(moment(1_700_000_000_000)) == len("2023-11-14 22:13:20")
    assert time_of_day(1_700_000_000_250).endswith(":20.2")


def test_states_have_colours() -> None:
    assert (colour_of("LOST"), colour_of("SUCCEEDED"), colour_of("anything")) == ("yellow", "green", "")


def test_a_narrow_terminal_breaks_no_id(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    columns = (Column("TASK", "id"), Column("STATE", "state"), Column("RUN", "run", spare=1))
    stream = io.StringIO()
    row = {"id": "01M8MK6QEPJST66P3DVDZ1C1P0", "state": "SUCCEEDED", "run": "default"}
    Output(stream, as_json=False, terminal=True).table(columns, [row], empty="")
    assert stream.getvalue().splitlines()[-1] == f"{row['id']}  SUCCEEDED"
    assert capsys.readouterr().err == "The terminal is too narrow for RUN; --json has everything.\n"
