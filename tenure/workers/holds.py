"""A hold: one assignment that this worker has in hand, and how far it has come."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, final

from tenure.protocol.worker_messages import Held
from tenure.workers.provision import BARE

if TYPE_CHECKING:
    from tenure.protocol.envelope import CallWork, CommandWork, Scope
    from tenure.protocol.worker_messages import Binding, Cause, Checkpointed, FailureKind, Finished, Released
    from tenure.workers.provision import Provision

NEVER = -1
"""An instant that has not come."""


class Stage(StrEnum):
    """How far a hold has come."""

    ASKING = "asking"  #: the claim is told; the grant is awaited
    READY = "ready"  #: may start; waits for a place
    PLACED = "placed"  #: given to a slot's process; may be running
    CLOSING = "closing"  #: it has ended badly; its report waits for the answer to its last checkpoint
    OVER = "over"  #: its report is told; the verdict is awaited


@final
@dataclass(slots=True, eq=False)
class Hold:
    """One assignment in hand. Changed by the modules of the core only.

    `call` numbers the holds of this agent and is what the processes know it by. `base_ms` is when its right to run
    began to count, before any heartbeat that listed it (those have a sequence above `after_beat`).
    """

    call: int
    binding: Binding
    ttl_ms: int
    exclusive: bool
    base_ms: int
    after_beat: int
    stage: Stage
    work: CallWork | CommandWork | None = None
    scope: Scope | None = None
    provision: Provision = BARE
    predecessor: Hold | None = None
    """An older hold of the same task; this one does not start before that one is over."""
    slot: int = -1
    expected_ms: float = 0.0
    began_ms: int = NEVER
    """Since when it is believed to run; `NEVER` while others are before it in the same process."""
    claim_told: bool = False
    told_ms: int = NEVER
    """When something about it was told last, or else when it was taken."""
    repeats: int = 0
    end: Cause | FailureKind | None = None
    """Why it is being stopped."""
    end_by_ms: int = NEVER
    detail: str = ""
    report: Finished | Released | None = None
    closing_ms: int = NEVER
    """Since when its report waits."""
    progress: tuple[int, str, str] | None = None
    cursor: int = 0
    checkpoint: Checkpointed | None = None
    """The newest checkpoint, until the coordinator has answered it."""
    checkpoint_told: int = 0
    """The ordinal of the checkpoint that was told last."""
    checkpoint_told_ms: int = NEVER
    checkpoint_repeats: int = 0
    checkpoints: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """Task and fence."""
        return self.binding.task_id, self.binding.fence

    def held(self) -> Held:
        """What heartbeats say about it."""
        return Held(task_id=self.binding.task_id, fence=self.binding.fence, state=self._state())

    def _state(self) -> Literal["claimed", "running", "finished", "stopping"]:
        if self.stage is Stage.OVER:
            return "finished"
        if self.end is not None:
            return "stopping"
        return "running" if self.began_ms != NEVER else "claimed"
