"""How a command has come out, from what its runner reports."""

import errno
from typing import Any

import pytest

from tenure.protocol.envelope import CommandWork
from tenure.protocol.worker_messages import FailureKind
from tenure.workers.actions import StartCommand
from tenure.workers.command_ends import command_outcome, notes_on
from tenure.workers.endings import tree_ended
from tests.fixtures_runner import BINDING

LIMIT = 100
GOOD: dict[str, Any] = {
    "run": 1,
    "reason": "exit",
    "code": 0,
    "duration": 5,
    "error": None,
    "stdout": "",
    "over": False,
    "stderr": "",
    "out_of_memory": False,
    "breach": "",
    "allowed": 0,
    "full": False,
    "left": 0,
    "left_out": [0, 0],
    "secret": "",
    "result": None,
    "forbidden": "",
    "damaged": "",
}


def failure_of(form: str = "stdout", **report: Any) -> tuple[FailureKind, str]:
    work = CommandWork.model_validate({"argv": ("program",), "form": form})
    failure = command_outcome({**GOOD, **report}, work, LIMIT).failure
    assert failure is not None
    return failure.kind, failure.message


def value_of(form: str, **report: Any) -> str | None:
    work = CommandWork.model_validate({"argv": ("program",), "form": form})
    return command_outcome({**GOOD, **report}, work, LIMIT).value


@pytest.mark.parametrize(
    ("form", "report", "value"),
    [
        ("stdout", {"stdout": "grün\n"}, '"grün\\n"'),
        ("folder", {"result": ' {"b": 1.0,\n "a": [null]} '}, '{"b":1.0,"a":[null]}'),
        ("lines", {"result": '"x"', "over": True}, '"x"'),
        ("folder", {"result": "null", "stdout": "not this"}, "null"),
    ],
)
def test_each_form_has_its_value(form: str, report: dict[str, Any], value: str) -> None:
    assert value_of(form, **report) == value


@pytest.mark.parametrize(
    ("report", "kind", "words"),
    [
        ({"code": 3, "stderr": "one\ntwo\n"}, FailureKind.EXIT_CODE, "exit code 3: two"),
        ({"code": -9}, FailureKind.SIGNAL, "SIGKILL"),
        ({"code": -9, "out_of_memory": True}, FailureKind.OUT_OF_MEMORY, "out of memory"),
        ({"code": 137, "out_of_memory": True}, FailureKind.OUT_OF_MEMORY, "137"),
        ({"code": 1, "out_of_memory": True}, FailureKind.EXIT_CODE, "1"),
        ({"code": -25}, FailureKind.FILE_TOO_LARGE, "SIGXFSZ"),
        ({"code": 1, "full": True}, FailureKind.DISK_LIMIT, "no room was left"),
        ({"code": 1, "stderr": "dd: No space left on device"}, FailureKind.DISK_LIMIT, "no room was left"),
        ({"code": -9, "breach": "memory", "allowed": 7}, FailureKind.OUT_OF_MEMORY, "limit of 7 bytes"),
        ({"code": -9, "breach": "disk", "allowed": 7}, FailureKind.DISK_LIMIT, "limit of 7 bytes"),
        ({"code": 1, "breach": "file", "allowed": 7}, FailureKind.FILE_TOO_LARGE, "limit of 7 bytes"),
        ({"code": 0, "breach": "files", "allowed": 7}, FailureKind.TOO_MANY_FILES, "limit of 7"),
        ({"code": -9, "breach": "printed", "allowed": 7}, FailureKind.PRINTED_TOO_MUCH, "limit of 7 bytes"),
        ({"code": None, "error": errno.ENOENT}, FailureKind.COMMAND_NOT_FOUND, "program cannot be executed"),
        ({"code": None, "error": errno.EIO, "secret": "key"}, FailureKind.UNKNOWN_SECRET, "'key'"),
        ({"stdout": "x" * 200}, FailureKind.RESULT_TOO_LARGE, "100 bytes"),
        ({"over": True}, FailureKind.RESULT_TOO_LARGE, "100 bytes"),
    ],
)
def test_each_bad_end_has_its_own_failure(report: dict[str, Any], kind: FailureKind, words: str) -> None:
    found, message = failure_of(**report)
    assert found is kind
    assert words in message


@pytest.mark.parametrize(
    ("form", "report", "kind"),
    [
        ("folder", {"damaged": "it left no result.json"}, FailureKind.INVALID_RESULT),
        ("folder", {"forbidden": "result.json is a link"}, FailureKind.FORBIDDEN_PATH),
        ("folder", {"over": True}, FailureKind.RESULT_TOO_LARGE),
        ("folder", {"result": '"' + "x" * 200 + '"'}, FailureKind.RESULT_TOO_LARGE),
        ("folder", {"result": ""}, FailureKind.INVALID_RESULT),
        ("folder", {"result": "1e999"}, FailureKind.INVALID_RESULT),
        ("folder", {"result": "[" * 100_000}, FailureKind.INVALID_RESULT),
        ("folder", {"result": '"\\ud800"'}, FailureKind.INVALID_RESULT),
        ("lines", {}, FailureKind.INVALID_RESULT),
        ("lines", {"over": True}, FailureKind.RESULT_TOO_LARGE),
        ("lines", {"result": "1", "code": 2}, FailureKind.EXIT_CODE),
    ],
)
def test_each_bad_result_has_its_own_failure(form: str, report: dict[str, Any], kind: FailureKind) -> None:
    assert failure_of(form, **report)[0] is kind


def test_a_number_of_too_many_digits_is_told_in_our_words() -> None:
    kind, message = failure_of("folder", result="9" * 6_000)
    assert kind is FailureKind.INVALID_RESULT
    assert message.endswith("it holds a number of more than 4300 digits")


def test_notes_say_what_a_good_value_does_not() -> None:
    assert notes_on(GOOD) == ()
    notes = notes_on({**GOOD, "left": 1, "left_out": [5, 2]})
    assert [note.split(" ", 3)[:3] for note in notes] == [
        ["1", "process", "was"],
        ["5", "characters", "of"],
        ["2", "lines", "that"],
    ]


def test_a_host_that_lacks_something_for_a_moment_has_not_begun_the_task() -> None:
    command = StartCommand(0, 7, BINDING, CommandWork(argv=("program",)))
    ended = tree_ended(0, {**GOOD, "code": None, "error": errno.ENOSPC}, command, [], LIMIT)
    assert (list(ended.unstarted), ended.outcome) == ([7], None)


def test_a_tree_that_was_stopped_has_no_outcome() -> None:
    command = StartCommand(0, 7, BINDING, CommandWork(argv=("program",)))
    assert tree_ended(0, {**GOOD, "reason": "stop", "code": -15}, command, [], LIMIT).outcome is None
