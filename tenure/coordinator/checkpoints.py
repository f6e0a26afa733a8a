"""Checkpoints: taken only from the holder of the live lease, read to the last byte, on record, then in the store.

A worker tells a checkpoint again until it hears that it is kept. It hears so, too, when the checkpoint never will be:
its lease is over, a newer one is on record, or the staged bytes are not what was told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenure.coordinator import acceptance, promotion
from tenure.coordinator.errands import Artifact, CheckpointCheck, place_of
from tenure.coordinator.journal import Step
from tenure.protocol.control_messages import Kept, Reason
from tenure.protocol.states import LeaseState

if TYPE_CHECKING:
    from tenure.artifacts.jobs import Ended
    from tenure.coordinator.fleet import WorkerView
    from tenure.coordinator.turn import Turn
    from tenure.protocol.worker_messages import Checkpointed

_MOST_TRIES: Final = 5


def take(turn: Turn, worker: WorkerView, event: Checkpointed) -> None:
    """Have the staged bytes of a checkpoint read, if it can be accepted; a repeated message starts nothing twice."""
    binding = event.binding
    lease = turn.leases.get(binding.task_id)
    if lease is not None and lease.start == "claimed" and acceptance.may_bind(turn, lease, worker, binding):
        return  # its claim is on the way and says which heartbeats must list it; until then it is told again
    known = turn.store.row("artifact", (binding.task_id, binding.fence, "checkpoint", event.ordinal))
    if known is not None and known[10] == "ACCEPTED":
        return  # it is on its way into the store
    if known is not None or not turn.curator.ready:
        _tell_kept(turn, worker, event)
        return
    if _let_go(turn, worker, event):
        return
    errand = CheckpointCheck(worker.address, event)
    if not turn.curator.waits(errand.key, turn.elapsed_ms):
        turn.ask_porter(errand)


def checked(turn: Turn, errand: CheckpointCheck, end: Ended) -> None:
    """The porter has read a staged checkpoint, or could not: take it into the records, or let it go."""
    worker, event = turn.fleet.get(errand.who.worker_id), errand.event
    if worker is None:
        return
    problem = end.problem
    if problem is not None:
        tries = turn.curator.failed(errand.key, end, turn.elapsed_ms)
        if problem.code in promotion.DAMAGED or tries >= _MOST_TRIES:
            turn.curator.succeeded(errand.key)
            _refuse(turn, worker, event, problem.message)
        return
    turn.curator.succeeded(errand.key)
    if _let_go(turn, worker, event):
        return
    binding = event.binding
    artifact = Artifact(
        task_id=binding.task_id,
        fence=binding.fence,
        attempt=binding.attempt,
        kind="checkpoint",
        ordinal=event.ordinal,
        name=event.name,
        bundle=event.bundle,
        place=place_of(errand.who.site, binding),
    )
    promotion.record(turn, artifact)
    text = f"Checkpoint {event.name} of attempt {binding.attempt} (fence {binding.fence}) was taken."
    step = Step(after="ACCEPTED", principal=f"site:{worker.site}", site=worker.site)
    turn.record("checkpoint_taken", text, task_id=binding.task_id, worker_id=worker.worker_id, step=step)


def _let_go(turn: Turn, worker: WorkerView, event: Checkpointed) -> bool:
    """Let a checkpoint go that is not from the holder of the live lease, or that a newer one on record has replaced."""
    binding = event.binding
    lease = turn.leases.get(binding.task_id)
    if lease is None or lease.state is not LeaseState.ACTIVE or not acceptance.holds(lease, worker, binding):
        reason = acceptance.why_not(turn, worker.address, binding) or Reason.TASK_OVER
        _refuse(turn, worker, event, str(reason))
        return True
    newest = turn.store.row("newest_checkpoint", (binding.task_id,))
    if newest is None or (newest[1], newest[4]) < (binding.fence, event.ordinal):
        return False
    _tell_kept(turn, worker, event)
    return True


def _refuse(turn: Turn, worker: WorkerView, event: Checkpointed, why: str) -> None:
    binding = event.binding
    if turn.memory.is_first_refusal(f"{worker.worker_id} {binding.task_id} {binding.fence} checkpoint", why):
        text = f"Checkpoint {event.name} of attempt {binding.attempt} (fence {binding.fence}) was not taken: {why}."
        known = turn.store.row("lease", (binding.task_id, binding.fence)) is not None
        task_id = binding.task_id if known else None
        step = Step(reason=why, site=worker.site)
        turn.record("checkpoint_refused", text, task_id=task_id, worker_id=worker.worker_id, step=step)
    _tell_kept(turn, worker, event)


def _tell_kept(turn: Turn, worker: WorkerView, event: Checkpointed) -> None:
    binding = event.binding
    kept = Kept(task_id=binding.task_id, fence=binding.fence, nonce=binding.nonce, ordinal=event.ordinal)
    turn.out.order(worker.address, kept)
