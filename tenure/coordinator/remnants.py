"""What sites that were revoked may still be running: attempts whose lease was taken away and whose end is not proved.

A revocation ends a lease before its time: nothing that the site says is taken any more, its word on an end included. So
only time proves the end, as long as an unrenewed lease takes to run out. Until then the next attempt waits, and the
task is not CANCELLED, for that would say that nothing runs; who cancels it meanwhile makes it CANCELLING.

All of this is elapsed time and kept in memory; a coordinator that begins knows no better than that everything began to
end just now, and waits a full term, as it does with leases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from tenure.coordinator import directives
from tenure.protocol.envelope import open_envelope
from tenure.protocol.states import TaskState
from tenure.protocol.timing import expiry_ms
from tenure.protocol.worker_messages import Cause

if TYPE_CHECKING:
    from tenure.coordinator.store.database import Database
    from tenure.coordinator.turn import Turn


@final
class Remnants:
    """Until when something may be left of each such attempt.

    Args:
        loaded_ms: since when they are watched; what was revoked before is taken to have been revoked then.
    """

    def __init__(self, loaded_ms: int) -> None:
        self._loaded_ms = loaded_ms
        self._until_ms: dict[str, int] = {}
        self._cancelling: dict[str, int] = {}

    def note(self, task_id: str, until_ms: int) -> None:
        """A lease on a task was taken away."""
        self._until_ms[task_id] = until_ms

    def until_ms(self, task_id: str, ttl_ms: int) -> int:
        """Until when something may be left of a task's attempt, whose lease was taken away whenever it was."""
        return self._until_ms.get(task_id, self._loaded_ms + expiry_ms(ttl_ms))

    def cancel(self, task_id: str, until_ms: int) -> None:
        """A task is CANCELLING for this reason alone, so that it is `due` when the time is over."""
        self._cancelling[task_id] = until_ms

    def due(self, elapsed_ms: int) -> list[str]:
        """Tasks whose cancellation is proved by now; they are not told again."""
        over = [task_id for task_id, until_ms in self._cancelling.items() if until_ms < elapsed_ms]
        for task_id in over:
            del self._cancelling[task_id]
        for task_id in [each for each, until_ms in self._until_ms.items() if until_ms < elapsed_ms]:
            del self._until_ms[task_id]
        return over


def load(store: Database, elapsed_ms: int) -> Remnants:
    """What is left as far as the store knows, each for a full term from now."""
    remnants = Remnants(elapsed_ms)
    for task_id, raw in store.rows("cancelling_without_lease"):
        remnants.cancel(task_id, elapsed_ms + expiry_ms(open_envelope(raw).lease_ttl_ms))
    return remnants


def left_until_ms(turn: Turn, task_id: str) -> int:
    """Until when something may be left of the last attempt of a task that has no live lease; 0 when nothing is."""
    row = turn.store.row("newest_lease", (task_id,))
    if row is None or row[0] != Cause.SITE_REVOKED or row[1] is None:
        return 0
    until_ms = turn.memory.remnants.until_ms(task_id, row[2])
    return until_ms if until_ms >= turn.elapsed_ms else 0


def settle(turn: Turn) -> None:
    """CANCELLED is what waited for nothing else but that nothing can be left of it."""
    for task_id in turn.memory.remnants.due(turn.elapsed_ms):
        task = turn.store.row("task", (task_id,))
        if task is not None and task[1] == TaskState.CANCELLING and turn.leases.get(task_id) is None:
            proof = "its site was revoked, and the lease that it had would have run out by now"
            directives.cancelled(turn, task_id, task[9], proof)
