"""Checkpoints: what a running task has saved is told until the coordinator answers; only the newest unanswered one.

Each that is told is read, recorded and stored, so a program that saves in a tight loop is told of twice a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from tenure.protocol.worker_messages import Checkpointed
from tenure.workers.actions import Tell
from tenure.workers.conclusions import disclose

if TYPE_CHECKING:
    from tenure.protocol.control_messages import Kept
    from tenure.workers.holds import Hold
    from tenure.workers.inputs import CheckpointSaved
    from tenure.workers.ledger import Ledger

_PAUSE_MS: Final = 500
_PATIENCE_MS: Final = 2_000
_MOST_DOUBLINGS: Final = 4


@final
class Checkpoints:
    """The checkpoints of all holds that are still unanswered."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def saved(self, hold: Hold, happened: CheckpointSaved, now_ms: int) -> None:
        """A checkpoint is staged: it takes the place of an older one, answered or not."""
        hold.checkpoints += 1
        hold.checkpoint = Checkpointed(
            binding=hold.binding, ordinal=hold.checkpoints, name=happened.name, bundle=happened.bundle
        )
        hold.checkpoint_repeats = 0
        if not hold.checkpoint_told or now_ms - hold.checkpoint_told_ms >= _PAUSE_MS:
            self._tell(hold, hold.checkpoint, now_ms)

    def kept(self, order: Kept, now_ms: int) -> None:
        """The coordinator has answered that checkpoint."""
        hold = self._ledger.find((order.task_id, order.fence))
        if hold is None or hold.checkpoint is None or hold.binding.nonce != order.nonce:
            return
        if order.ordinal >= hold.checkpoint.ordinal:
            hold.checkpoint = None
            disclose(self._ledger, hold, now_ms)

    def repeat(self, hold: Hold, now_ms: int, *, at_once: bool) -> None:
        """Tell it when it has waited for its turn, again when unanswered for long, or `at_once` if it may be lost."""
        if hold.checkpoint is None:
            return
        is_new = hold.checkpoint.ordinal != hold.checkpoint_told
        patience_ms = _PAUSE_MS if is_new else _PATIENCE_MS << min(hold.checkpoint_repeats, _MOST_DOUBLINGS)
        if at_once or now_ms - hold.checkpoint_told_ms >= patience_ms:
            hold.checkpoint_repeats += not is_new
            self._tell(hold, hold.checkpoint, now_ms)

    def _tell(self, hold: Hold, checkpoint: Checkpointed, now_ms: int) -> None:
        hold.checkpoint_told, hold.checkpoint_told_ms = checkpoint.ordinal, now_ms
        self._ledger.act(Tell(checkpoint))
