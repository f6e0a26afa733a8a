"""How a command has come out, from what its runner reports: its value by its form, or one clear failure.

What is said first counts: a limit that it broke, then how its program ended, then what is wrong with its result.
"""

from __future__ import annotations

import errno
import os
import signal
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from tenure.handlers.json_text import NotJson, dump, parse
from tenure.protocol.worker_messages import Failure, FailureKind, Outcome

if TYPE_CHECKING:
    from tenure.protocol.envelope import CommandWork

_MAX_MESSAGE: Final = 2_000
_MAX_WORDS: Final = 200
_MAX_TRACE: Final = 8_000
_OUT_OF_MEMORY: Final = ": the kernel had to end a process of this control group, which was out of memory"
_DISK_FULL: Final = "no room was left on the disk of the task's folder"
_KILLED: Final = (-signal.SIGKILL, 128 + signal.SIGKILL)
_OVER_A_FILE: Final = (-signal.SIGXFSZ, 128 + signal.SIGXFSZ)
_BREACHES: Final = MappingProxyType(
    {
        "memory": (FailureKind.OUT_OF_MEMORY, "its processes used more memory than the limit of {} bytes"),
        "disk": (FailureKind.DISK_LIMIT, "its folder grew over the limit of {} bytes"),
        "file": (FailureKind.FILE_TOO_LARGE, "it wrote a file up to or over the limit of {} bytes"),
        "files": (FailureKind.TOO_MANY_FILES, "it made more files than the limit of {}, or nested folders too deeply"),
        "printed": (FailureKind.PRINTED_TOO_MUCH, "it printed more than the limit of {} bytes"),
    }
)


def command_outcome(report: dict[str, Any], work: CommandWork, limit_bytes: int) -> Outcome:
    """The outcome of a command that came to its own end, or broke a limit, or could not be started."""
    error: int | None = report["error"]
    if report.get("secret"):
        message = f"this worker's host has no secret {report['secret']!r} that can be read"
        return _failed(FailureKind.UNKNOWN_SECRET, message)
    if error is not None:
        return _failed(FailureKind.COMMAND_NOT_FOUND, f"{work.argv[0]} cannot be executed: {os.strerror(error)}")
    if report.get("breach"):
        kind, words = _BREACHES[report["breach"]]
        return _ended_badly(report, kind, words.format(report.get("allowed", 0)))
    if report["code"] != 0:
        return _bad_end(report)
    if work.form == "stdout":
        return _valued(dump(report["stdout"]), limit_bytes, is_over=report["over"])
    return _result(report, work.form, limit_bytes)


def notes_on(report: dict[str, Any]) -> tuple[str, ...]:
    """What a person should know about an end, beside its outcome."""
    notes: list[str] = []
    left: int = report.get("left", 0)
    characters, lines = report.get("left_out", (0, 0))
    if left:
        notes.append(f"{_count(left, 'process was', 'processes were')} left behind by the program, and ended")
    if characters:
        notes.append(f"{_count(characters, 'character', 'characters')} of what it printed were left out of its log")
    if lines:
        notes.append(f"{_count(lines, 'line', 'lines')} that it told came too fast and were left out")
    return tuple(notes)


def how_it_ended(report: dict[str, Any]) -> str:
    """How the first process of a tree ended, in words; "" when nobody knows."""
    code: int | None = report["code"]
    error: int | None = report["error"]
    if error is not None:
        return f"could not be started: {os.strerror(error)}"
    if code is None:
        return ""
    if code >= 0:
        return f"the process ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    why = _OUT_OF_MEMORY if code == -signal.SIGKILL and report.get("out_of_memory") else ""
    return f"the process was ended by {name}{why}"


def _bad_end(report: dict[str, Any]) -> Outcome:
    code: int = report["code"]
    if code in _OVER_A_FILE:
        return _ended_badly(report, FailureKind.FILE_TOO_LARGE, f"it wrote a file up to its limit: {_how(report)}")
    if code in _KILLED and report.get("out_of_memory"):
        return _ended_badly(report, FailureKind.OUT_OF_MEMORY, _how(report))
    if report.get("full") or os.strerror(errno.ENOSPC) in report["stderr"]:
        return _ended_badly(report, FailureKind.DISK_LIMIT, f"{_DISK_FULL}: {_how(report)}")
    kind = FailureKind.EXIT_CODE if code > 0 else FailureKind.SIGNAL
    return _ended_badly(report, kind, _how(report))


def _how(report: dict[str, Any]) -> str:
    """How it ended, with its last words."""
    words = report["stderr"][-_MAX_TRACE:].rstrip().rpartition("\n")[2].strip()[:_MAX_WORDS]
    how = how_it_ended(report)
    return f"{how}: {words}" if words else how


def _ended_badly(report: dict[str, Any], kind: FailureKind, message: str) -> Outcome:
    trace = report["stderr"][-_MAX_TRACE:]
    failure = Failure(kind=kind, message=message[:_MAX_MESSAGE], trace=trace, exit_code=report["code"])
    return Outcome(failure=failure)


def _result(report: dict[str, Any], form: str, limit_bytes: int) -> Outcome:
    where = "result.json" if form == "folder" else "its last result"
    text: str | None = report.get("result")
    if report.get("forbidden"):
        return _failed(FailureKind.FORBIDDEN_PATH, f"{report['forbidden']}; it must be a file of its own")
    if report.get("over") and text is None:
        return _valued("", limit_bytes, is_over=True)
    if text is None:
        missing = "it printed no line with a result"
        return _failed(FailureKind.INVALID_RESULT, f"the program ended well, but {report.get('damaged') or missing}")
    try:
        value = dump(parse(text))
    except NotJson as problem:
        return _failed(FailureKind.INVALID_RESULT, f"the program ended well, but {where} is not JSON: {problem}")
    return _valued(value, limit_bytes)


def _valued(text: str, limit_bytes: int, *, is_over: bool = False) -> Outcome:
    if is_over or len(text.encode()) > limit_bytes:
        return _failed(FailureKind.RESULT_TOO_LARGE, f"the value is over the limit of {limit_bytes} bytes")
    return Outcome(value=text)


def _failed(kind: FailureKind, message: str) -> Outcome:
    return Outcome(failure=Failure(kind=kind, message=message[:_MAX_MESSAGE]))


def _count(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"
