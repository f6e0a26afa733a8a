"""Submitting one task: what was typed becomes a call or a program, and its end becomes output and an exit code."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tenure.client.calls import Call
from tenure.protocol.envelope import Retry
from tenure.protocol.states import TaskState
from tests.fixtures_cli import CommandLine, FakeFleet, Printed, task_id

HANDLERS = """
def add(x: int, y: int = 1) -> int: return x + y
def greet(name: str, *, loud: bool = False) -> str: return name
def loose(a, b=None): return a
"""


@pytest.fixture
def tenure(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    (tmp_path / "cli_handlers.py").write_text(HANDLERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "cli_handlers", raising=False)
    return CommandLine(FakeFleet(), capsys)


def submitted(tenure: CommandLine, *arguments: str) -> Any:
    printed = tenure("submit", *arguments)
    assert printed.code == 0, printed.err
    assert printed.out.strip() == next(iter(tenure.fleet.tasks.values())).task_id
    (task,) = tenure.fleet.tasks.values()
    return task.work


@pytest.mark.parametrize(
    ("typed", "args", "kwargs"),
    [
        (["cli_handlers:add", "1", "2"], (1, 2), {}),
        (["cli_handlers:add", "1", "y=2"], (1,), {"y": 2}),
        (["cli_handlers:greet", "28"], ("28",), {}),
        (["cli_handlers:greet", '"a=b"', "loud=true"], ("a=b",), {"loud": True}),
        (["cli_handlers:greet", "name=two words"], (), {"name": "two words"}),
        (["cli_handlers:loose", '{"k": [1]}', "b=text"], ({"k": [1]},), {"b": "text"}),
        (["not_here_at_all:f", "1.5", "word", "n=null"], (1.5, "word"), {"n": None}),
    ],
)
def test_what_was_typed_becomes_arguments(
    tenure: CommandLine, typed: list[str], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    call = submitted(tenure, *typed)
    assert isinstance(call, Call)
    assert (call.args, call.kwargs) == (args, kwargs)


def test_a_program_and_its_arguments_stay_as_they_are(tenure: CommandLine) -> None:
    work = submitted(tenure, "--priority", "3", "--", "wc", "--words", "--json", "-", "a b")
    assert work == ("wc", "--words", "--json", "-", "a b")
    assert tenure.fleet.options == [{"priority": 3}]


def test_only_what_was_said_is_said_to_the_fleet(tenure: CommandLine) -> None:
    submitted(tenure, "cli_handlers:add", "1")
    assert tenure.fleet.options == [{}]


def test_every_option_reaches_the_fleet(tenure: CommandLine) -> None:
    line = (
        "--capability gpu --retries 2 --retries-failed 1 --lease-ttl 5s --start granted --exclusive --priority -5 "
        "--delay 1m --timeout 2h --on-worker w1 --label room=b12 --resource gb=8 --key k1 --run r1 cli_handlers:add 1"
    )
    submitted(tenure, *line.split())
    assert tenure.fleet.options == [
        {
            "capability": "gpu",
            "retry": Retry(lost=2, failed=1),
            "lease_ttl": "5s",
            "start": "granted",
            "exclusive": True,
            "priority": -5,
            "delay": "1m",
            "timeout": "2h",
            "worker": "w1",
            "labels": {"room": "b12"},
            "resources": {"gb": 8},
            "key": "k1",
            "run": "r1",
        }
    ]


def ended(tenure: CommandLine, end: object, *arguments: str) -> Printed:
    tenure.fleet.ends = lambda _: end
    return tenure("submit", "--wait", *arguments)


def test_waiting_prints_the_value(tenure: CommandLine) -> None:
    assert ended(tenure, 42, "cli_handlers:add", "1").out == "42\n"
    printed = tenure("submit", "--wait", "--json", "cli_handlers:add", "2").json()
    assert (printed["result"], printed["state"], printed["attempt"]) == (42, "SUCCEEDED", 1)


@pytest.mark.parametrize(("output", "shown"), [("3 lines\n", "3 lines\n"), ("no end", "no end\n")])
def test_a_programs_output_is_printed_as_it_is(tenure: CommandLine, output: str, shown: str) -> None:
    assert ended(tenure, output, "--", "wc").out == shown


def test_a_failed_task_is_code_1_with_its_traceback_before_the_line(tenure: CommandLine) -> None:
    printed = ended(tenure, ValueError("no good"), "cli_handlers:add", "1")
    assert printed.code == 1
    *trace, line = printed.err.splitlines()
    assert trace == ["Traceback: here"]
    assert line.startswith("tenure: task ")
    assert "no good" in line


@pytest.mark.parametrize(
    ("state", "code"),
    [(TaskState.LOST, "task_lost"), (TaskState.CANCELLED, "task_cancelled"), (TaskState.ABANDONED, "task_abandoned")],
)
def test_other_ends_are_code_1_too(tenure: CommandLine, state: TaskState, code: str) -> None:
    printed = ended(tenure, state, "--json", "cli_handlers:add", "1")
    assert printed.code == 1
    assert json.loads(printed.err)["error"]["code"] == code


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "say what to run"),
        (["cli_handlers:add", "--", "wc"], "say what to run"),
        (["cli_handlers:nothing"], "no function nothing"),
        (["just-a-word"], "reference"),
        (["cli_handlers:add", "--label", "x"], "key=value"),
        (["cli_handlers:add", "--priority", "5000"], "--priority"),
        (["cli_handlers:add", "--start", "later"], "--start"),
    ],
)
def test_wrong_use_is_one_line_and_nothing_is_submitted(tenure: CommandLine, arguments: list[str], words: str) -> None:
    printed = tenure("submit", *arguments)
    assert printed.code == 2
    assert printed.err.count("\n") == 1
    assert words in printed.err
    assert not tenure.fleet.tasks


def test_wait_tells_how_all_of_them_ended(tenure: CommandLine) -> None:
    tenure.fleet.ends = lambda call: call.args[0] * 10 or ValueError("nought")
    tenure("submit", "cli_handlers:add", "1")
    tenure("submit", "cli_handlers:add", "0")
    ids = [task.task_id for task in tenure.fleet.tasks.values()]
    printed = tenure("wait", *ids, "--json")
    assert printed.code == 1
    assert [(row["state"], row["result"]) for row in printed.json()] == [("SUCCEEDED", 10), ("FAILED", None)]
    assert tenure("wait", ids[0]).code == 0


def test_waiting_in_vain_is_code_3_and_says_that_the_task_goes_on(tenure: CommandLine) -> None:
    tenure("submit", "cli_handlers:add", "1")
    printed = tenure("wait", task_id(0), "--timeout", "1ms")
    assert printed.code == 3
    assert "goes on" in printed.err


def test_result_does_not_wait_unless_told_to(tenure: CommandLine) -> None:
    tenure("submit", "cli_handlers:add", "1")
    tenure.fleet.rows["tasks"] = [{"task_id": task_id(0), "state": "QUEUED", "work": "cli_handlers:add"}]
    printed = tenure("result", task_id(0))
    assert printed.code == 3
    assert "has not ended yet" in printed.err
    assert "wait for it with --timeout" in printed.err.lower()
    assert "within the time given" in tenure("result", task_id(0), "--timeout", "1ms").err
    tenure.fleet.rows["tasks"] = []
    tenure.fleet.ends = lambda _: {"a": 1}
    tenure("submit", "cli_handlers:add", "2")
    assert tenure("result", task_id(1)).json() == {"a": 1}
