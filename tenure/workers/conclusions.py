"""Conclusions: which report follows from the way in which a hold has come to its end.

The coordinator takes a checkpoint only while the attempt's lease is live, and a report ends that. So the report of an
attempt that has ended badly waits until its last checkpoint is answered: the next attempt goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from tenure.protocol.worker_messages import Cause, Failure, FailureKind, Finished, Outcome, Released
from tenure.workers.holds import Stage

if TYPE_CHECKING:
    from tenure.protocol.artifact import Bundle
    from tenure.workers.holds import Hold
    from tenure.workers.ledger import Ledger

_MAX_DETAIL: Final = 1_000
_MOST_NOTES: Final = 16
_ACCIDENTS: Final = frozenset({Cause.PROCESS_DIED, Cause.COLLATERAL})


@final
@dataclass(frozen=True, slots=True)
class Ending:
    """How a task came to its own end, and what it left."""

    outcome: Outcome
    duration_ms: int
    outputs: Bundle | None = None
    notes: tuple[str, ...] = ()


def finish(ledger: Ledger, hold: Hold, ending: Ending, now_ms: int) -> None:
    """The task came to its own end."""
    if hold.scope is None:
        return
    ledger.counts["finished"] += 1
    report = Finished(
        binding=hold.binding,
        scope=hold.scope,
        outcome=ending.outcome,
        duration_ms=max(ending.duration_ms, 0),
        outputs=ending.outputs,
        notes=tuple(note[:_MAX_DETAIL] for note in ending.notes[:_MOST_NOTES]),
    )
    _conclude(ledger, hold, report, now_ms)


def give_back(ledger: Ledger, hold: Hold, cause: Cause, now_ms: int) -> None:
    """The attempt is given back; it provably never started."""
    release(ledger, hold, cause, now_ms, started=False)


def release(ledger: Ledger, hold: Hold, cause: Cause, now_ms: int, *, started: bool, gone: bool = True) -> None:
    """The attempt ended without a result."""
    ledger.counts["released"] += 1
    detail = hold.detail[:_MAX_DETAIL]
    report = Released(binding=hold.binding, cause=cause, started=started, tree_gone=gone, detail=detail)
    _conclude(ledger, hold, report, now_ms)


def stopped(ledger: Ledger, hold: Hold, now_ms: int, *, started: bool, gone: bool = True) -> None:
    """A hold that was being stopped has ended, for the reason that was noted."""
    match hold.end:
        case FailureKind.TIMEOUT if started:
            message = f"ran longer than {hold.provision.timeout_ms} ms"
            failure = Failure(kind=FailureKind.TIMEOUT, message=message)
            finish(ledger, hold, Ending(Outcome(failure=failure), now_ms - hold.began_ms), now_ms)
        case Cause() as cause:
            release(ledger, hold, cause, now_ms, started=started, gone=gone)
        case _:
            cause = Cause.PROCESS_DIED if started else Cause.UNSTARTED
            release(ledger, hold, cause, now_ms, started=started, gone=gone)


def disclose(ledger: Ledger, hold: Hold, now_ms: int) -> None:
    """Tell a report that waits, if there is one."""
    if hold.stage is Stage.CLOSING and hold.report is not None:
        ledger.conclude(hold, hold.report, now_ms)


def _conclude(ledger: Ledger, hold: Hold, report: Finished | Released, now_ms: int) -> None:
    ended_badly = report.outcome.failure is not None if isinstance(report, Finished) else report.cause in _ACCIDENTS
    if hold.checkpoint is not None and ended_badly:
        hold.stage, hold.report, hold.slot, hold.closing_ms = Stage.CLOSING, report, -1, now_ms
    else:
        ledger.conclude(hold, report, now_ms)
