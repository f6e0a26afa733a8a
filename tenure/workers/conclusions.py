"""Conclusions: which report follows from the way in which a hold has come to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenure.protocol.worker_messages import Cause, Failure, FailureKind, Finished, Outcome, Released

if TYPE_CHECKING:
    from tenure.workers.holds import Hold
    from tenure.workers.ledger import Ledger

_MAX_DETAIL: Final = 1_000


def finish(ledger: Ledger, hold: Hold, outcome: Outcome, duration_ms: int, now_ms: int) -> None:
    """The task came to its own end."""
    if hold.scope is None:
        return
    ledger.counts["finished"] += 1
    duration_ms = max(duration_ms, 0)
    report = Finished(binding=hold.binding, scope=hold.scope, outcome=outcome, duration_ms=duration_ms)
    ledger.conclude(hold, report, now_ms)


def give_back(ledger: Ledger, hold: Hold, cause: Cause, now_ms: int) -> None:
    """The attempt is given back; it provably never started."""
    release(ledger, hold, cause, now_ms, started=False)


def release(ledger: Ledger, hold: Hold, cause: Cause, now_ms: int, *, started: bool, gone: bool = True) -> None:
    """The attempt ended without a result."""
    ledger.counts["released"] += 1
    detail = hold.detail[:_MAX_DETAIL]
    report = Released(binding=hold.binding, cause=cause, started=started, tree_gone=gone, detail=detail)
    ledger.conclude(hold, report, now_ms)


def stopped(ledger: Ledger, hold: Hold, now_ms: int, *, started: bool, gone: bool = True) -> None:
    """A hold that was being stopped has ended, for the reason that was noted."""
    match hold.end:
        case FailureKind.TIMEOUT if started:
            failure = Failure(kind=FailureKind.TIMEOUT, message=f"ran longer than {hold.timeout_ms} ms")
            finish(ledger, hold, Outcome(failure=failure), now_ms - hold.began_ms, now_ms)
        case Cause() as cause:
            release(ledger, hold, cause, now_ms, started=started, gone=gone)
        case _:
            release(ledger, hold, Cause.UNSTARTED, now_ms, started=started, gone=gone)
