"""From what children and runners tell to inputs of the core: values, failures and ends, checked and cut to size."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter, ValidationError

from tenure.protocol.message import MAX_VALUE_BYTES
from tenure.protocol.metrics import read_metrics
from tenure.protocol.worker_messages import Failure, FailureKind, Outcome
from tenure.workers.calls import Dropped, Imported, Progress, Raised, Ready, Returned, Told
from tenure.workers.command_ends import command_outcome, how_it_ended, notes_on
from tenure.workers.inputs import CallEnded, ChildReady, HandlerSeen, Input, ProgressMade, TreeEnded

if TYPE_CHECKING:
    from tenure.workers.actions import StartCommand

_FAILURE: Final = TypeAdapter(Failure)
_MAX_MESSAGE: Final = 2_000
_TRANSIENT: Final = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EIO})


def as_input(slot: int, message: Told) -> Input:
    """What a child told."""
    match message:
        case Returned(call, duration_ms, value):
            return CallEnded(slot, call, _value(value), duration_ms)
        case Raised(call, duration_ms, failure):
            return CallEnded(slot, call, Outcome(failure=_failure(failure)), duration_ms)
        case Dropped(call, duration_ms):
            return CallEnded(slot, call, None, duration_ms)
        case Progress(call, fraction_ppm, text, metrics):
            return ProgressMade(slot, call, fraction_ppm, text[:_MAX_MESSAGE], _metrics(metrics))
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
    if error in _TRANSIENT and command is not None and not report.get("secret"):
        unstarted = [*unstarted, command.call]
    elif command is not None and report["reason"] == "exit":
        outcome = command_outcome(report, command.work, limit_bytes)
    return TreeEnded(
        slot,
        gone=True,
        unstarted=unstarted,
        outcome=outcome,
        duration_ms=report["duration"],
        by_deadline=report["reason"] == "deadline",
        detail=how_it_ended(report),
        begun=error is None,
        notes=notes_on(report),
    )


def _value(text: str) -> Outcome:
    try:
        return Outcome(value=text)
    except ValidationError:
        return _too_large(MAX_VALUE_BYTES)


def _metrics(text: str) -> str:
    """A child may hold anything; what the coordinator would refuse, with all that is told beside it, is left out."""
    try:
        read_metrics(text)
    except ValueError:
        return ""
    return text


def _too_large(limit_bytes: int) -> Outcome:
    message = f"the value is over the limit of {limit_bytes} bytes"
    return Outcome(failure=Failure(kind=FailureKind.RESULT_TOO_LARGE, message=message))


def _failure(text: str) -> Failure:
    try:
        return _FAILURE.validate_json(text)
    except ValidationError:
        return Failure(kind=FailureKind.EXCEPTION, message="the child's failure report could not be read")
