"""From accepted to kept: a row for what was accepted, its way into the store, and what the next attempt starts from.

The row is written in the transaction that accepts; the contents move after the commit, as often as it takes. A crash in
between is found by the row's state: what is ACCEPTED is promoted again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenure.broker.base import WorkerAddress
from tenure.coordinator.errands import Discarding, Promotion, open_artifact
from tenure.coordinator.journal import Step
from tenure.protocol.artifact import Checkpoint
from tenure.protocol.control_messages import Kept

if TYPE_CHECKING:
    from tenure.artifacts.jobs import Ended, Problem, StagingPlace
    from tenure.coordinator.errands import Artifact
    from tenure.coordinator.store.database import Row
    from tenure.coordinator.turn import Turn

DAMAGED: Final = frozenset({"artifact_damaged", "unknown_artifact", "forbidden_path", "malformed_message"})
"""Problems that trying again does not cure: what is there is not what was told."""

_LONGEST_WAIT_MS: Final = 60_000
"""So long the next attempt waits for the newest checkpoint to come into the store; then it starts from an older one."""

_LOOK_AGAIN_MS: Final = 200
_PORTION: Final = 200


def record(turn: Turn, artifact: Artifact) -> None:
    """Write down that this was accepted, and bring it into the store after the commit."""
    _insert(turn, artifact)
    turn.ask_porter(Promotion(artifact))


def record_promoted(turn: Turn, artifact: Artifact) -> None:
    """Write down something that is in the store already."""
    _insert(turn, artifact)
    turn.store.run("artifact_promoted", artifact.key)


def go_on(turn: Turn) -> None:
    """Promote what was accepted and is not under way: after a start, and after a store was away.

    A portion at a time, round and round: what never succeeds must not stand before all others.
    """
    rows = turn.store.rows("unpromoted_artifacts", (turn.memory.promotion_position, _PORTION))
    turn.memory.promotion_position = rows[-1][14] if len(rows) == _PORTION else 0
    for row in rows:
        errand = Promotion(open_artifact(row))
        if not turn.curator.waits(errand.key, turn.elapsed_ms):
            turn.ask_porter(errand)


def ended(turn: Turn, errand: Promotion, end: Ended) -> None:
    """A promotion has ended: the row follows, and the worker hears that its checkpoint is kept."""
    artifact = errand.artifact
    if end.problem is not None:
        _not_promoted(turn, errand, end, end.problem)
        return
    turn.curator.succeeded(errand.key)
    turn.store.run("artifact_promoted", artifact.key)
    if artifact.kind == "checkpoint":
        turn.store.run("older_checkpoints_collected", (artifact.task_id, artifact.fence, artifact.ordinal))
        tell_kept(turn, artifact)


def tell_kept(turn: Turn, artifact: Artifact) -> None:
    """Tell the executor that made it, if it still holds the lease, that a checkpoint need not be told again."""
    lease = turn.leases.get(artifact.task_id)
    if lease is not None and lease.fence == artifact.fence and lease.worker_id:
        kept = Kept(
            task_id=artifact.task_id, fence=artifact.fence, nonce=artifact.place.nonce, ordinal=artifact.ordinal
        )
        turn.out.order(WorkerAddress(lease.site, lease.worker_id), kept)


def discard(turn: Turn, place: StagingPlace) -> None:
    """Remove what is staged in a place, unless something of it was accepted and is still to be promoted.

    While its lease is live the same files may come with a result that is accepted; a collection takes them otherwise.
    """
    lease = turn.leases.get(place.task_id)
    if lease is not None and lease.fence == place.fence:
        return
    if turn.store.row("unpromoted_in_place", (place.task_id, place.fence, place.nonce)) is None:
        turn.ask_porter(Discarding(place))


def must_wait(turn: Turn, task_id: str, attempt: int) -> bool:
    """Whether a further attempt is held back, because the newest checkpoint is still on its way into the store."""
    row = turn.store.row("newest_checkpoint", (task_id,)) if attempt > 1 and turn.curator.ready else None
    if row is None or row[10] == "PROMOTED":
        turn.memory.checkpoint_awaited.pop(task_id, None)
        return False
    since_ms = turn.memory.checkpoint_awaited.setdefault(task_id, turn.elapsed_ms)
    if turn.elapsed_ms - since_ms > _LONGEST_WAIT_MS:
        return False
    turn.store.run("task_waits", (turn.now_ms + _LOOK_AGAIN_MS, task_id))
    turn.memory.next_due_ms = 0
    return True


def starting_point(turn: Turn, task_id: str, attempt: int) -> Checkpoint | None:
    """The newest checkpoint of a task that is in the store, for a further attempt."""
    row: Row | None = turn.store.row("newest_promoted_checkpoint", (task_id,)) if attempt > 1 else None
    if row is None:
        return None
    artifact = open_artifact(row)
    return Checkpoint(
        name=artifact.name,
        attempt=artifact.attempt,
        fence=artifact.fence,
        ordinal=artifact.ordinal,
        bundle=artifact.bundle,
    )


def _insert(turn: Turn, artifact: Artifact) -> None:
    bundle = artifact.bundle
    turn.store.run(
        "insert_artifact",
        (
            artifact.task_id,
            artifact.fence,
            artifact.attempt,
            artifact.kind,
            artifact.ordinal,
            artifact.name,
            bundle.manifest.digest,
            bundle.manifest.size,
            bundle.files,
            bundle.size,
            artifact.place.fence,
            artifact.place.nonce,
            turn.now_ms,
        ),
    )


def _not_promoted(turn: Turn, errand: Promotion, end: Ended, problem: Problem) -> None:
    artifact = errand.artifact
    what = f"checkpoint {artifact.name}" if artifact.kind == "checkpoint" else "the outputs"
    if artifact.kind == "checkpoint" and problem.code in DAMAGED:
        turn.store.run("artifact_collected", artifact.key)
        tell_kept(turn, artifact)
        text = f"Checkpoint {artifact.name} of attempt {artifact.attempt} is gone: {problem.message}."
        step = Step(reason=problem.code, site=artifact.place.site)
        turn.record("checkpoint_lost", text, task_id=artifact.task_id, step=step)
    elif turn.curator.failed(errand.key, end, turn.elapsed_ms) == 1:
        text = (
            f"The store does not take {what} of attempt {artifact.attempt} yet: {problem.message}. It is tried again."
        )
        step = Step(reason=problem.code, site=artifact.place.site)
        turn.record("not_promoted", text, task_id=artifact.task_id, step=step)
