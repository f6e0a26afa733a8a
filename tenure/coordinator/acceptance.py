"""The one door to results.

A result is accepted by one guarded write that matches task, digest, worker, attempt, fence, nonce, world and run under
an ACTIVE lease; everything else is a rejection with a reason, recorded with the result as evidence. A result that was
accepted before is answered `duplicate` and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.clock import sortable_id
from tenure.coordinator import directives, leases
from tenure.protocol.client_messages import Done
from tenure.protocol.control_messages import Judged, Reason, Verdict
from tenure.protocol.envelope import open_envelope
from tenure.protocol.states import LeaseState, TaskState
from tenure.protocol.worker_messages import NEVER_RETRIED, Binding, Failure, Finished

if TYPE_CHECKING:
    from tenure.coordinator.fleet import WorkerView
    from tenure.coordinator.live import LiveLease
    from tenure.coordinator.store.database import Row
    from tenure.coordinator.turn import Turn


def finish(turn: Turn, worker: WorkerView, report: Finished) -> None:
    """Judge one result, apply it if it is accepted, and tell the worker its verdict."""
    binding = report.binding
    lease = turn.leases.get(binding.task_id)
    if lease is not None and lease.start == "claimed" and may_bind(lease, worker, binding):
        leases.bind(turn, lease, binding, worker.worker_id, after_beat=worker.beat)
    if lease is None or lease.fence != binding.fence or not _complete(turn, worker, report):
        _refuse(turn, worker, report)
        return
    leases.forget(turn, lease)
    _conclude(turn, lease, worker, report)
    judge(turn, worker, binding, Verdict.ACCEPTED)


def judge(turn: Turn, worker: WorkerView, binding: Binding, verdict: Verdict, reason: Reason | None = None) -> None:
    """Tell a worker the verdict on what it reported about an attempt."""
    turn.out.order(
        worker.worker_id,
        Judged(task_id=binding.task_id, fence=binding.fence, nonce=binding.nonce, verdict=verdict, reason=reason),
    )


def why_not(turn: Turn, worker_id: str, binding: Binding, scope: tuple[str, str] | None = None) -> Reason | None:
    """Why something under this binding is refused; None when it was accepted before from this very executor.

    Checks in a fixed order, so that one fault always gives one reason.
    """
    task = turn.store.row("task", (binding.task_id,))
    if task is None:
        return Reason.UNKNOWN_TASK
    lease = turn.store.row("lease", (binding.task_id, binding.fence))
    if lease is None:
        return Reason.UNKNOWN_FENCE
    identity = _wrong_identity(turn, task, lease, binding, scope)
    if identity is not None:
        return identity
    return _wrong_holder(lease, worker_id, binding) or _wrong_state(turn, task, lease, binding)


def _wrong_identity(
    turn: Turn, task: Row, lease: Row, binding: Binding, scope: tuple[str, str] | None
) -> Reason | None:
    if lease[1] != binding.digest:
        return Reason.DIGEST_MISMATCH
    if lease[0] != binding.attempt:
        return Reason.WRONG_ATTEMPT
    if scope is not None and scope[0] != turn.world:
        return Reason.WORLD_MISMATCH
    if scope is not None and scope[1] != task[5]:
        return Reason.RUN_MISMATCH
    return None


def _wrong_holder(lease: Row, worker_id: str, binding: Binding) -> Reason | None:
    if lease[4] and lease[4] != worker_id:
        return Reason.WRONG_WORKER
    if lease[5] and lease[5] != binding.nonce:
        return Reason.SECOND_EXECUTOR
    return None


def _wrong_state(turn: Turn, task: Row, lease: Row, binding: Binding) -> Reason | None:
    state = LeaseState(lease[2])
    if state is LeaseState.COMPLETED:
        return None
    newest = turn.store.row("newest_fence", (binding.task_id,))
    if newest is not None and newest[0] is not None and newest[0] > binding.fence:
        return Reason.STALE_FENCE
    if state is LeaseState.RELEASED and task[1] == TaskState.CANCELLED:
        return Reason.CANCELLED
    by_state = {
        LeaseState.EXPIRED: Reason.LEASE_EXPIRED,
        LeaseState.RELEASED: Reason.LEASE_RELEASED,
        LeaseState.OFFERED: Reason.NOT_GRANTED,
        LeaseState.ACTIVE: Reason.TASK_OVER,
    }
    return by_state[state]


def may_bind(lease: LiveLease, worker: WorkerView, binding: Binding) -> bool:
    """Whether this offer is open to this worker under this binding."""
    return (
        lease.state is LeaseState.OFFERED
        and lease.fence == binding.fence
        and lease.digest == binding.digest
        and lease.attempt == binding.attempt
        and lease.directed_to in {"", worker.worker_id}
        and lease.capability in worker.capabilities
    )


def _complete(turn: Turn, worker: WorkerView, report: Finished) -> bool:
    binding = report.binding
    changed = turn.store.run(
        "complete_lease",
        {
            "now_ms": turn.now_ms,
            "task_id": binding.task_id,
            "fence": binding.fence,
            "attempt": binding.attempt,
            "digest": binding.digest,
            "worker_id": worker.worker_id,
            "nonce": binding.nonce,
            "world": report.scope.world,
            "run": report.scope.run,
        },
    )
    return changed == 1


def _conclude(turn: Turn, lease: LiveLease, worker: WorkerView, report: Finished) -> None:
    failure = report.outcome.failure
    task = turn.store.row("task", (lease.task_id,))
    if task is None:
        return
    watcher = task[9]
    if failure is not None and task[1] != TaskState.CANCELLING and failure.kind not in NEVER_RETRIED:
        retry = open_envelope(task[3]).retry
        if task[8] < retry.failed:
            _failed_attempt(turn, lease, failure, report.duration_ms)
            directives.after_failure(turn, lease, failure.kind, retry, task[8])
            return
    state = _end_task(turn, lease, task[1], failure)
    turn.store.run(
        "insert_result",
        (
            lease.task_id,
            lease.fence,
            lease.attempt,
            worker.worker_id,
            report.binding.nonce,
            report.outcome.value if failure is None else None,
            None if failure is None else failure.model_dump_json(),
            report.duration_ms,
            turn.now_ms,
        ),
    )
    turn.tell(
        watcher,
        Done(
            task_id=lease.task_id,
            state=state,
            attempt=lease.attempt,
            fence=lease.fence,
            value=report.outcome.value,
            failure=failure,
        ),
    )


def _end_task(turn: Turn, lease: LiveLease, before: str, failure: Failure | None) -> TaskState:
    if failure is None:
        turn.store.run("task_succeeded", (turn.now_ms, lease.task_id))
        return TaskState.SUCCEEDED
    turn.store.run("task_state", (TaskState.FAILED, turn.now_ms, lease.task_id, before))
    return TaskState.FAILED


def _failed_attempt(turn: Turn, lease: LiveLease, failure: Failure, duration_ms: int) -> None:
    turn.store.run(
        "insert_failed_attempt",
        (lease.task_id, lease.fence, lease.attempt, failure.model_dump_json(), duration_ms, turn.now_ms),
    )
    text = f"Attempt {lease.attempt} failed ({failure.kind}): {failure.message}"
    turn.record("failed_attempt", text, task_id=lease.task_id)


def _refuse(turn: Turn, worker: WorkerView, report: Finished) -> None:
    binding = report.binding
    reason = why_not(turn, worker.worker_id, binding, (report.scope.world, report.scope.run))
    if reason is None:
        judge(turn, worker, binding, Verdict.DUPLICATE)
        return
    judge(turn, worker, binding, Verdict.REJECTED, reason)
    quarantine(turn, worker.site, worker.worker_id, report, reason)


def quarantine(turn: Turn, site: str, worker_id: str, report: Finished, reason: Reason) -> None:
    """Keep a rejected result as evidence; the same one a second time adds nothing."""
    binding = report.binding
    added = turn.store.run(
        "quarantine_report",
        (
            sortable_id(turn.now_ms, turn.entropy),
            binding.task_id,
            binding.fence,
            binding.attempt,
            site,
            worker_id,
            binding.nonce,
            reason,
            report.model_dump_json(),
            turn.now_ms,
        ),
    )
    if added:
        text = (
            f"A result of attempt {binding.attempt} (fence {binding.fence}) from {worker_id} was rejected: "
            f"{reason}. It is kept in quarantine and changes nothing."
        )
        turn.record("rejected", text, task_id=binding.task_id, worker_id=worker_id)
