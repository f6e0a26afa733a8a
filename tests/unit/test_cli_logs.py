"""`tenure logs`, and how far a task is."""

import json
from typing import Any

import pytest

from tenure.broker.base import LogChunk, LogKey
from tests.fixtures_cli import CommandLine, FakeFleet, task_id

TASK = task_id(1)
ROWS: dict[str, list[dict[str, Any]]] = {
    "tasks": [{"task_id": TASK, "state": "SUCCEEDED", "progress": 0.425, "metrics": '{"loss":0.5}'}],
    "leases": [{"attempt": 1, "fence": 7, "state": "COMPLETED", "worker_id": "w1", "site": "lab"}],
    "artifacts": [],
}


@pytest.fixture
def tenure(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    fleet = FakeFleet(rows=dict(ROWS))
    chunks = [
        LogChunk(1, 0, "out\n"),
        LogChunk(2, 4, "\x1b[1moh\n"),
        LogChunk(1, 12_357, "end"),
        LogChunk(0, 12_360, ""),
    ]
    fleet.broker.worker(site="lab", worker_id="w1").print(LogKey("lab", TASK, 7), chunks, 10)
    return CommandLine(fleet, capsys)


@pytest.mark.parametrize("follow", [[], ["-f"]])
@pytest.mark.parametrize(
    ("only", "shown"),
    [
        ([], "out\n\x1b[1moh\nend"),
        (["--stdout"], "out\nend"),
        (["--stderr"], "\x1b[1moh\n"),
        (["--stdout", "--stderr"], None),
        (["--attempt", "1"], None),
    ],
)
def test_what_was_printed_goes_out_unchanged_and_our_words_to_standard_error(
    tenure: CommandLine, only: list[str], shown: str | None, follow: list[str]
) -> None:
    printed = tenure("logs", *follow, *only, TASK.lower())

    assert (printed.code, printed.out) == (0, shown or "out\n\x1b[1moh\nend")
    assert printed.err == "... 12,346 characters left out ...\n"


def test_json_is_one_object_per_line(tenure: CommandLine) -> None:
    lines = [json.loads(line) for line in tenure("logs", "--json", TASK).out.splitlines()]

    assert lines[0] == {"attempt": 1, "stream": "stdout", "position": 0, "text": "out\n"}
    assert [line["stream"] for line in lines] == ["stdout", "stderr", "tenure", "stdout"]
    assert [json.loads(line)["text"] for line in tenure("logs", "--json", "--stderr", TASK).out.splitlines()] == [
        "\x1b[1moh\n"
    ]


def test_nothing_printed_is_said(tenure: CommandLine) -> None:
    tenure.fleet.rows["leases"] = []
    printed = tenure("logs", TASK)

    assert (printed.code, printed.out, printed.err) == (0, "", "The task has printed nothing.\n")


def test_an_attempt_that_never_was(tenure: CommandLine) -> None:
    printed = tenure("logs", "--attempt", "3", TASK)

    assert printed.code == 2
    assert "no attempt 3" in printed.err


def test_progress_is_shown_as_people_say_it(tenure: CommandLine) -> None:
    shown = dict(line.split(maxsplit=1) for line in tenure("tasks", "show", TASK).out.splitlines())

    assert shown["progress"] == "42.5 %"
    assert shown["metrics"] == '{"loss":0.5}'
    assert tenure("tasks", "show", TASK, "--json").json()["progress"] == 0.425
