"""Surrenders: executors that were told to end from outside, ended what they ran, and gave their attempt up.

An executor knows of such an end only that it was sent a signal: an evicted pod, one that made room for another and one
whose host is shut down look the same from inside. Its parent asks the substrate, which often says why only when the
executor is gone. So the executor has its verdict at once and may go, and its lease is kept until its parent has told
the cause: some seconds, half of its term at most, and not at all when the parent is not there. Nothing runs under it
meanwhile, for the executor has said that its tree is gone.

The word is kept in the store, for its executor has its verdict and does not tell it again: after a restart of the
coordinator, and after a time in which the broker could not be read, the parent is waited for anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenure.coordinator import acceptance, directives, executors, leases
from tenure.coordinator.live import Surrender
from tenure.protocol.states import LeaseState, WorkerState
from tenure.protocol.worker_messages import Cause, Claimed, Finished, Released

if TYPE_CHECKING:
    from tenure.coordinator.fleet import WorkerView
    from tenure.coordinator.live import LiveLease
    from tenure.coordinator.turn import Turn
    from tenure.protocol.worker_messages import WorkerEvent

_PATIENCE_MS: Final = 10_000
_PATIENCE_PER_LAUNCH_MS: Final = 200
"""A parent with many launches in hand looks at each of them seldom."""
_IS_THERE: Final = frozenset({WorkerState.ACTIVE, WorkerState.DRAINING})


def patience_ms(ttl_ms: int, in_hand: int) -> int:
    """How long a lease that was given up is kept for the word of its parent, which has so many launches in hand."""
    return min(_PATIENCE_MS + _PATIENCE_PER_LAUNCH_MS * in_hand, ttl_ms // 2)


def take(turn: Turn, lease: LiveLease, event: Released) -> None:
    """Of an ACTIVE lease: what it was bound to is gone. RELEASED, as soon as it is known why."""
    if lease.surrendered is not None:
        return
    if event.cause is not Cause.DRAINED:
        _end(turn, lease, event, turn.now_ms)
        return
    lease.surrendered = Surrender(event, turn.elapsed_ms, turn.now_ms)
    if _awaits(turn, lease, lease.surrendered):
        turn.store.run("surrendered_lease", (event.model_dump_json(), turn.now_ms, lease.task_id, lease.fence))
    else:
        _end(turn, lease, event, turn.now_ms)


def close(turn: Turn, worker: WorkerView, event: WorkerEvent) -> None:
    """Before an event is applied: what contradicts that its holder has given it up finds a lease that is over."""
    if not isinstance(event, Finished | Claimed | Released) or (isinstance(event, Released) and event.started):
        return
    binding = event.binding
    lease = turn.leases.get(binding.task_id)
    if lease is not None and lease.surrendered is not None and acceptance.holds(lease, worker, binding):
        _end(turn, lease, lease.surrendered.told, lease.surrendered.now_ms)


def settle(turn: Turn) -> None:
    """Release what was given up and has its cause, or has waited for it long enough."""
    for lease in turn.leases:
        what = lease.surrendered
        if what is not None and not _awaits(turn, lease, what):
            _end(turn, lease, what.told, what.now_ms)


def _awaits(turn: Turn, lease: LiveLease, what: Surrender) -> bool:
    """Whether the parent may still tell why; of what is being cancelled everybody knows."""
    parent = turn.fleet.get(lease.parent)
    if lease.gone is not None or lease.stopping or parent is None or parent.state not in _IS_THERE:
        return False
    return turn.memory.heard_until_ms - what.at_ms < patience_ms(lease.ttl_ms, parent.bound)


def _end(turn: Turn, lease: LiveLease, event: Released, ended_at_ms: int) -> None:
    """It ended when its executor said so; nobody is charged for the wait."""
    lease.printed = event.printed
    cause, detail = event.cause, f"{lease.worker_id} gave it up after it had started: {event.cause}"
    if event.detail:
        detail = f"{detail} ({event.detail})"
    if event.cause is Cause.DRAINED and lease.gone is not None:
        told = lease.gone.told
        # Of an executor that "died" the substrate knows less than it has said itself.
        cause = told.cause if told.cause is not Cause.EXECUTOR_DIED else cause
        detail = f"{detail}, and {executors.story(lease, told)}"
        executors.judge_ended(turn, lease)
    leases.end(turn, lease, LeaseState.RELEASED, cause, ended_at_ms)
    directives.after_loss(turn, lease, directives.Loss(cause, detail))
