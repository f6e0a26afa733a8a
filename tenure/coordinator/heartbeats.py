"""Heartbeats: who is alive, what it holds, and what that renews.

A heartbeat whose sequence number was seen before renews nothing. A lease that is listed is renewed; an ACTIVE lease
that is missing from a heartbeat written after its claim is lost at once, for the worker itself says that it does not
hold it; when it was bound without a claim, by its result, two heartbeats are let pass. A parent renews the offer that
it has launched an executor for, and never the executor's lease. A lease whose end its worker could not prove is not
renewed any more: it is listed until a verdict comes, and none comes before it has run out. Nor is one missed that its
executor has given up, whose cause is waited for. All of this is memory; the store is written only when something
changes state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenure.coordinator import acceptance, directives, leases, registry
from tenure.protocol.control_messages import Drain, Registered, SayHello, Stop, StopReason
from tenure.protocol.states import LeaseState, WorkerState

if TYPE_CHECKING:
    from tenure.coordinator.fleet import WorkerView
    from tenure.coordinator.live import LiveLease
    from tenure.coordinator.turn import Turn
    from tenure.protocol.worker_messages import Heartbeat, Held

_MOST_STOPS: Final = 1_000
"""So many orders to stop something one heartbeat brings about; what is still listed in the next one is stopped then."""


def apply(turn: Turn, worker: WorkerView, beat: Heartbeat) -> None:
    """Renew what a new heartbeat lists, stop what is not the worker's, and note what it has lost."""
    if beat.generation > worker.generation:
        turn.out.order(worker.address, SayHello())
        return
    if beat.generation < worker.generation:
        # An older agent writes over the newer one's heartbeats until it is told to end.
        turn.out.order(worker.address, Registered(generation=worker.generation))
        return
    worker.beat, worker.seen_ms, worker.heard_ms = beat.sequence, turn.elapsed_ms, turn.elapsed_ms
    worker.remaining_ms = beat.remaining_ms
    if beat.window != worker.window:
        worker.window = beat.window
        registry.wake(turn, worker)
    if worker.state is WorkerState.STALE:
        registry.change_state(turn, worker, WorkerState.ACTIVE)
    elif worker.state is WorkerState.DRAINING and beat.window > 0:
        turn.out.order(worker.address, Drain())  # the order was lost: it still wants work
    listed: set[tuple[str, int]] = set()
    stops = 0
    for held in beat.held:
        listed.add((held.task_id, held.fence))
        reason = _renew(turn, worker, held)
        if reason is not None and stops < _MOST_STOPS:
            stops += 1
            turn.out.order(worker.address, Stop(task_id=held.task_id, fence=held.fence, reason=reason))
    _find_missing(turn, worker, beat, listed)


def renew_by_hand(turn: Turn, worker: WorkerView) -> None:
    """A sign of life of a worker that was registered by hand: renews the worker and all that it holds."""
    worker.seen_ms = turn.elapsed_ms
    worker.beat += 1
    if worker.state is WorkerState.STALE:
        registry.change_state(turn, worker, WorkerState.ACTIVE)
    for lease in turn.leases.of_worker(worker.worker_id):
        lease.renewed_ms = turn.elapsed_ms


def echo(epoch: int, worker: WorkerView) -> str:
    """What tells a worker which of its heartbeats the coordinator has seen."""
    return f"{epoch}:{worker.generation}:{worker.beat}"


def _renew(turn: Turn, worker: WorkerView, held: Held) -> StopReason | None:
    """Renew what the worker may hold; why it has to stop it, if it has."""
    lease = turn.leases.get(held.task_id)
    mine = lease is not None and lease.fence == held.fence and _may_hold(turn, lease, worker, held)
    if lease is not None and mine and not lease.unproved:
        if lease.state is LeaseState.OFFERED:
            lease.holder, lease.doubted_ms, lease.takers = worker.executor_of or worker.worker_id, -1, None
            lease.launched = lease.launched or held.state == "launched"
        if lease.state is LeaseState.OFFERED or held.state != "launched":
            lease.renewed_ms = turn.elapsed_ms
    if held.state in {"claimed", "launched", "running"} and (lease is None or not mine or lease.stopping):
        return StopReason.CANCELLED if lease is not None and mine else StopReason.SUPERSEDED
    return None


def _may_hold(turn: Turn, lease: LiveLease, worker: WorkerView, held: Held) -> bool:
    """A parent holds what its executor is bound to, without renewing it: only the executor's own word does."""
    if lease.state is LeaseState.ACTIVE and held.state == "launched":
        return lease.parent == worker.worker_id
    if lease.state is LeaseState.ACTIVE:
        return lease.worker_id == worker.worker_id
    return acceptance.may_take(turn, lease, worker)


def _find_missing(turn: Turn, worker: WorkerView, beat: Heartbeat, listed: set[tuple[str, int]]) -> None:
    if worker.bound == 0:
        return
    for lease in turn.leases.of_worker(worker.worker_id):
        if lease.after_beat is None:
            lease.after_beat = beat.sequence + 1  # the one after this may have been made before it, and come later
        known = lease.generation == worker.generation and beat.sequence > lease.after_beat and not lease.unproved
        is_missed = (lease.task_id, lease.fence) not in listed and lease.surrendered is None
        if known and is_missed and lease.state is LeaseState.ACTIVE:
            detail = f"{worker.worker_id} is alive and does not hold it any more"
            leases.end(turn, lease, LeaseState.EXPIRED, "not_held")
            directives.after_loss(turn, lease, directives.Loss("not_held", detail))
