"""From what children and runners tell to inputs of the core: values, failures and ends, checked and cut to size."""

from __future__ import annotations

import errno
import json
import os
import signal
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter, ValidationError

from tenure.protocol.message import MAX_VALUE_BYTES
from tenure.protocol.worker_messages import Failure, FailureKind, Outcome
from tenure.workers.calls import Dropped, FromChild, Imported, Progress, Raised, Ready, Returned
from tenure.workers.inputs import CallEnded, ChildReady, HandlerSeen, Input, ProgressMade, TreeEnded

if TYPE_CHECKING:
    from tenure.workers.actions import StartCommand

_FAILURE: Final = TypeAdapter(Failure)
_MAX_MESSAGE: Final = 2_000
_OUT_OF_MEMORY: Final = ": the kernel had to end a process of this control group, which was out of memory"
_MAX_WORDS: Final = 200
_MAX_TRACE: Final = 8_000
_TRANSIENT: Final = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EIO})


def as_input(slot: int, message: FromChild) -> Input:
    """What a child told."""
    match message:
        case Returned(call, duration_ms, value):
            return CallEnded(slot, call, _value(value), duration_ms)
        case Raised(call, duration_ms, failure):
            return CallEnded(slot, call, Outcome(failure=_failure(failure)), duration_ms)
        case Dropped(call, duration_ms):
            return CallEnded(slot, call, None, duration_ms)
        case Progress(call, fraction_ppm, text):
            return ProgressMade(slot, call, fraction_ppm, text[:_MAX_MESSAGE])
        case Ready():
            return ChildReady(slot)
        case Imported(handler, is_async):
            return HandlerSeen(slot, handler, is_async)


def tree_ended(
    slot: int, report: dict[str, Any], command: StartCommand | None, unstarted: list[int], limit_bytes: int
) -> TreeEnded:
    """What a runner told about the end of a tree."""
    error: int | None = report["error"]
    outcome: Outcome | None = None
    if error is not None and command is not None and error in _TRANSIENT:
        unstarted = [*unstarted, command.call]
    elif command is not None and report["reason"] == "exit":
        outcome = _not_found(command, error) if error is not None else _command_outcome(report, limit_bytes)
    return TreeEnded(
        slot,
        gone=True,
        unstarted=unstarted,
        outcome=outcome,
        duration_ms=report["duration"],
        by_deadline=report["reason"] == "deadline",
        detail=_how(report, error),
    )


def _value(text: str) -> Outcome:
    try:
        return Outcome(value=text)
    except ValidationError:
        return _too_large(MAX_VALUE_BYTES)


def _too_large(limit_bytes: int) -> Outcome:
    message = f"the value is over the limit of {limit_bytes} bytes"
    return Outcome(failure=Failure(kind=FailureKind.RESULT_TOO_LARGE, message=message))


def _failure(text: str) -> Failure:
    try:
        return _FAILURE.validate_json(text)
    except ValidationError:
        return Failure(kind=FailureKind.EXCEPTION, message="the child's failure report could not be read")


def _command_outcome(report: dict[str, Any], limit_bytes: int) -> Outcome:
    code: int = report["code"]
    if code == 0:
        value = json.dumps(report["stdout"], ensure_ascii=False)
        if report["over"] or len(value.encode()) > limit_bytes:
            return _too_large(limit_bytes)
        return Outcome(value=value)
    kind = FailureKind.EXIT_CODE if code > 0 else FailureKind.SIGNAL
    trace = report["stderr"][-_MAX_TRACE:]
    words = trace.rstrip().rpartition("\n")[2].strip()[:_MAX_WORDS]
    message = f"{_how(report, None)}: {words}" if words else _how(report, None)
    return Outcome(failure=Failure(kind=kind, message=message, trace=trace, exit_code=code))


def _not_found(command: StartCommand, error: int) -> Outcome:
    message = f"{command.work.argv[0]} cannot be executed: {os.strerror(error)}"[:_MAX_MESSAGE]
    return Outcome(failure=Failure(kind=FailureKind.COMMAND_NOT_FOUND, message=message))


def _how(report: dict[str, Any], error: int | None) -> str:
    code: int | None = report["code"]
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
