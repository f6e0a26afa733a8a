"""Cancel: at once where nothing can be running, else a stop order and CANCELLING until the end is proved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.broker.base import WorkerAddress
from tenure.coordinator import directives, leases, remnants
from tenure.coordinator.journal import Step
from tenure.errors import UnknownTask
from tenure.protocol.client_messages import Done
from tenure.protocol.control_messages import Stop, StopReason
from tenure.protocol.states import TERMINAL_TASK_STATES, LeaseState, TaskState

if TYPE_CHECKING:
    from tenure.coordinator.live import LiveLease
    from tenure.coordinator.store.database import Row
    from tenure.coordinator.turn import Turn


def cancel(turn: Turn, task_id: str, by: str, reason: str) -> TaskState:
    """Cancel one task; answers the state that it is in now. Asking again is safe; a terminal task stays as it is.

    Raises:
        UnknownTask: there is no such task.
    """
    task = turn.store.row("task", (task_id,))
    if task is None:
        raise UnknownTask(f"there is no task {task_id}", "See `tenure tasks list`")
    state, watcher = TaskState(task[1]), task[9]
    if state in TERMINAL_TASK_STATES:
        return state
    if state is not TaskState.CANCELLING:
        because = f" ({reason})" if reason else ""
        step = Step(before=state, reason=reason)
        turn.record("cancel_asked", f"{by or 'Somebody'} asked to cancel it{because}.", task_id=task_id, step=step)
    lease = turn.leases.get(task_id)
    if state is TaskState.LOST:
        directives.deny(turn, task_id, by or "cancel", "the task was cancelled")
    if lease is None:
        return _without_lease(turn, task)
    if lease.state is LeaseState.OFFERED and lease.start == "granted":
        leases.end(turn, lease, LeaseState.RELEASED, "cancelled")
        return _over(turn, task_id, watcher, state, "it was never granted to anyone")
    if state is not TaskState.CANCELLING:
        turn.store.run("task_state", (TaskState.CANCELLING, None, task_id, state))
    _stop(turn, lease)
    return TaskState.CANCELLING


def note_unoffered(turn: Turn, task_id: str, watcher: str, who: str, proof: str) -> None:
    """Record and tell that a task was cancelled which was still in the queue; `who` says by whom and why."""
    step = Step(TaskState.QUEUED, TaskState.CANCELLED)
    turn.record("cancelled", f"{who}: {proof}.", task_id=task_id, step=step)
    turn.tell(watcher, Done(task_id=task_id, state=TaskState.CANCELLED, detail=proof))


def proof_of_rest(attempt: int, newest: int | None) -> str:
    """Why nobody runs a task that waits in the queue for that attempt; `newest` is the attempt of its newest lease."""
    if newest is None:
        return "it had not been offered to anyone"
    if newest == attempt:
        return f"attempt {attempt} had come back before it started, and was not offered to anyone again"
    return f"attempt {newest} was over, and no further one had been offered to anyone"


def _without_lease(turn: Turn, task: Row) -> TaskState:
    """Nobody has it now; CANCELLED all the same only if nothing can be left of what a revoked site had."""
    task_id, state, watcher = task[0], TaskState(task[1]), task[9]
    if state is TaskState.CANCELLING:
        return state
    until_ms = remnants.left_until_ms(turn, task_id)
    if until_ms:
        turn.store.run("task_state", (TaskState.CANCELLING, None, task_id, state))
        turn.memory.remnants.cancel(task_id, until_ms)
        return TaskState.CANCELLING
    newest = turn.store.row("newest_lease", (task_id,))
    proof = proof_of_rest(task[6], newest[3] if newest is not None else None)
    return _over(turn, task_id, watcher, state, "its lease was over already" if state is TaskState.LOST else proof)


def _over(turn: Turn, task_id: str, watcher: str, before: TaskState, proof: str) -> TaskState:
    turn.store.run("task_state", (TaskState.CANCELLED, turn.now_ms, task_id, before))
    step = Step(before, TaskState.CANCELLED, reason=proof)
    turn.record("cancelled", f"Cancelled: {proof}.", task_id=task_id, step=step)
    turn.tell(watcher, Done(task_id=task_id, state=TaskState.CANCELLED, detail=proof))
    return TaskState.CANCELLED


def _stop(turn: Turn, lease: LiveLease) -> None:
    lease.stopping = True
    stop = Stop(task_id=lease.task_id, fence=lease.fence, reason=StopReason.CANCELLED)
    for worker_id in (lease.worker_id or lease.holder or lease.directed_to, lease.parent):
        if worker_id:
            turn.out.order(WorkerAddress(lease.site, worker_id), stop)
