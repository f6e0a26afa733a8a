"""Cancel: at once where nothing can be running, else a stop order and CANCELLING until the end is proved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.broker.base import WorkerAddress
from tenure.coordinator import directives, leases
from tenure.coordinator.journal import Step
from tenure.errors import UnknownTask
from tenure.protocol.client_messages import Done
from tenure.protocol.control_messages import Stop, StopReason
from tenure.protocol.states import TERMINAL_TASK_STATES, LeaseState, TaskState

if TYPE_CHECKING:
    from tenure.coordinator.live import LiveLease
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
        _deny_pending(turn, task_id, by)
        return _over(turn, task_id, watcher, state, "its lease was over already")
    if lease is None:
        return _over(turn, task_id, watcher, state, "it had not been offered to anyone")
    if lease.state is LeaseState.OFFERED and lease.start == "granted":
        leases.end(turn, lease, LeaseState.RELEASED, "cancelled")
        return _over(turn, task_id, watcher, state, "it was never granted to anyone")
    if state is not TaskState.CANCELLING:
        turn.store.run("task_state", (TaskState.CANCELLING, None, task_id, state))
    _stop(turn, lease)
    return TaskState.CANCELLING


def note_unoffered(turn: Turn, task_id: str, watcher: str, who: str) -> None:
    """Record and tell that a task was cancelled which was still in the queue; `who` says by whom and why."""
    proof = "it had not been offered to anyone"
    step = Step(TaskState.QUEUED, TaskState.CANCELLED)
    turn.record("cancelled", f"{who}: {proof}.", task_id=task_id, step=step)
    turn.tell(watcher, Done(task_id=task_id, state=TaskState.CANCELLED, detail=proof))


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


def _deny_pending(turn: Turn, task_id: str, by: str) -> None:
    row = turn.store.row("pending_directive_of_task", (task_id,))
    if row is not None:
        directives.deny(turn, row[0], by or "cancel", "the task was cancelled")
