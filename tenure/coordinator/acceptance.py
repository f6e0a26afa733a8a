"""The one door to results.

A result is accepted by one guarded write that matches task, digest, worker, attempt, fence, nonce, world and run under
an ACTIVE lease; everything else is a rejection with a reason, recorded with the result as evidence. A result that was
accepted before is answered `duplicate` and changes nothing. A result with files is settled only after the porter has
read them (`outputs`), by the same guarded write.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING

from tenure.clock import sortable_id
from tenure.coordinator import directives, leases, promotion
from tenure.coordinator.errands import Artifact, ResultCheck, place_of
from tenure.coordinator.journal import Step
from tenure.protocol.client_messages import Done
from tenure.protocol.control_messages import Judged, Reason, Verdict
from tenure.protocol.envelope import open_envelope
from tenure.protocol.states import LeaseState, TaskState
from tenure.protocol.worker_messages import NEVER_RETRIED, Binding, Failure, FailureKind, Finished, Outcome

if TYPE_CHECKING:
    from tenure.broker.base import WorkerAddress
    from tenure.coordinator.fleet import WorkerView
    from tenure.coordinator.live import LiveLease
    from tenure.coordinator.store.database import Row
    from tenure.coordinator.turn import Turn
    from tenure.protocol.artifact import Bundle


def finish(turn: Turn, worker: WorkerView, report: Finished) -> None:
    """Judge one result, apply it if it is accepted, and tell the worker its verdict.

    A result with files that would be accepted now is judged when they have been read; told again meanwhile, it starts
    nothing twice.
    """
    binding = report.binding
    lease = turn.leases.get(binding.task_id)
    if lease is not None and lease.start == "claimed" and may_bind(turn, lease, worker, binding):
        leases.bind(turn, lease, binding, worker.worker_id)
    if report.outputs is not None and report.outcome.failure is None and _may_complete(turn, worker, report):
        if turn.curator.ready:
            _check(turn, worker, report, report.outputs)
            return
        report = _without_store(report)
    settle(turn, worker, report)


def settle(turn: Turn, worker: WorkerView, report: Finished, *, verified: Bundle | None = None) -> None:
    """Accept a result or refuse it, and tell the worker; `verified` are the files that the porter has read."""
    binding = report.binding
    lease = turn.leases.get(binding.task_id)
    if lease is None or lease.fence != binding.fence or not _complete(turn, worker, report):
        _refuse(turn, worker, report)
        return
    lease.printed = report.printed
    turn.memory.sites.idle.discard(lease.site)
    leases.forget(turn, lease)
    _conclude(turn, lease, worker, report, verified)
    judge(turn, worker, binding, Verdict.ACCEPTED)


def holds(lease: LiveLease, worker: WorkerView, binding: Binding) -> bool:
    """Whether this lease is bound to this executor."""
    return (
        lease.state is LeaseState.ACTIVE
        and lease.worker_id == worker.worker_id
        and lease.nonce == binding.nonce
        and lease.fence == binding.fence
        and lease.digest == binding.digest
        and lease.attempt == binding.attempt
    )


def judge(turn: Turn, worker: WorkerView, binding: Binding, verdict: Verdict, reason: Reason | None = None) -> None:
    """Tell a worker the verdict on what it reported about an attempt."""
    turn.out.order(
        worker.address,
        Judged(task_id=binding.task_id, fence=binding.fence, nonce=binding.nonce, verdict=verdict, reason=reason),
    )


def why_not(turn: Turn, who: WorkerAddress, binding: Binding, scope: tuple[str, str] | None = None) -> Reason | None:
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
    return _wrong_holder(turn, lease, who, binding) or _wrong_state(turn, task, lease, binding)


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


def _wrong_holder(turn: Turn, lease: Row, who: WorkerAddress, binding: Binding) -> Reason | None:
    if lease[10] != who.site:
        return Reason.WRONG_SITE
    if lease[4] and lease[4] != who.worker_id:
        worker = turn.fleet.get(who.worker_id)
        is_sibling = worker is not None and worker.executor_of and worker.executor_of == lease[8]
        return Reason.SECOND_EXECUTOR if is_sibling else Reason.WRONG_WORKER
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


def is_for(turn: Turn, lease: LiveLease, worker: WorkerView) -> bool:
    """Whether an offer is for this worker: what is for a parent is for its executors, and for nobody's for none.

    Whatever it is, it is for workers of one site only.
    """
    if worker.site != lease.site:
        return False
    if not worker.executor_of:
        return lease.directed_to in {"", worker.worker_id}
    return turn.fleet.parent(worker) is not None and lease.directed_to in {"", worker.executor_of}


def may_take(turn: Turn, lease: LiveLease, worker: WorkerView) -> bool:
    """Whether this offer is for this worker, which offers such work, or did when it was made and may have begun."""
    kept = (lease.task_id, lease.fence) in turn.memory.sites.kept
    return is_for(turn, lease, worker) and (kept or lease.capability in worker.capabilities)


def may_bind(turn: Turn, lease: LiveLease, worker: WorkerView, binding: Binding) -> bool:
    """Whether this offer is open to this worker under this binding."""
    return (
        lease.state is LeaseState.OFFERED
        and lease.fence == binding.fence
        and lease.digest == binding.digest
        and lease.attempt == binding.attempt
        and may_take(turn, lease, worker)
    )


def is_offered_to(turn: Turn, lease: LiveLease, worker: WorkerView, binding: Binding) -> bool:
    """Whether the worker may have the offer in hand: nobody else's heartbeat lists it."""
    return may_bind(turn, lease, worker, binding) and lease.holder in {"", worker.worker_id, worker.executor_of}


def _guard(worker: WorkerView, report: Finished) -> dict[str, object]:
    binding = report.binding
    return {
        "task_id": binding.task_id,
        "fence": binding.fence,
        "attempt": binding.attempt,
        "digest": binding.digest,
        "worker_id": worker.worker_id,
        "site": worker.site,
        "nonce": binding.nonce,
        "world": report.scope.world,
        "run": report.scope.run,
    }


def _may_complete(turn: Turn, worker: WorkerView, report: Finished) -> bool:
    return bool(turn.store.records("may_complete", _guard(worker, report)))


def _complete(turn: Turn, worker: WorkerView, report: Finished) -> bool:
    return turn.store.run("complete_lease", _guard(worker, report) | {"now_ms": turn.now_ms}) == 1


def _check(turn: Turn, worker: WorkerView, report: Finished, bundle: Bundle) -> None:
    errand = ResultCheck(worker.address, report, bundle)
    if not turn.curator.waits(errand.key, turn.elapsed_ms):
        turn.ask_porter(errand)


def _without_store(report: Finished) -> Finished:
    message = "it has outputs, and the coordinator was started without a store for them"
    failure = Failure(kind=FailureKind.OUTPUTS_NOT_STORED, message=message)
    return report.model_copy(update={"outcome": Outcome(failure=failure), "outputs": None})


def _conclude(turn: Turn, lease: LiveLease, worker: WorkerView, report: Finished, verified: Bundle | None) -> None:
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
    insert_result(turn, report, worker.worker_id, lease.fence, verified)
    _note_acceptance(turn, report, worker, (task[1], state))
    if verified is not None:
        _promote(turn, lease.site, report.binding, verified)
    elif report.outputs is not None:
        promotion.discard(turn, place_of(lease.site, report.binding))
    turn.tell(
        watcher,
        Done(
            task_id=lease.task_id,
            state=state,
            attempt=lease.attempt,
            fence=lease.fence,
            value=report.outcome.value,
            failure=failure,
            outputs=verified,
        ),
    )


def _note_acceptance(turn: Turn, report: Finished, worker: WorkerView, states: tuple[str, str]) -> None:
    binding, failure = report.binding, report.outcome.failure
    told = report.outcome.value if failure is None else failure.model_dump_json()
    text = (
        f"The result of attempt {binding.attempt} (fence {binding.fence}) was accepted; sha256 of what it says: "
        f"{sha256((told or '').encode()).hexdigest()}."
    )
    before, after = states
    if turn.take_back("bound", binding.task_id):
        before = TaskState.OFFERED  # one step: the result has brought its own claim
    step = Step(before, after, "" if failure is None else failure.kind, f"site:{worker.site}", worker.site)
    turn.record("accepted", text, task_id=binding.task_id, worker_id=worker.worker_id, step=step)


def insert_result(turn: Turn, report: Finished, worker_id: str, fence: int, outputs: Bundle | None) -> None:
    """Write down an accepted result; `outputs` are files that were read, and nothing that was only told."""
    outcome = report.outcome
    turn.store.run(
        "insert_result",
        (
            report.binding.task_id,
            fence,
            report.binding.attempt,
            worker_id,
            report.binding.nonce,
            outcome.value,
            None if outcome.failure is None else outcome.failure.model_dump_json(),
            report.duration_ms,
            turn.now_ms,
            None if outputs is None else outputs.model_dump_json(),
            json.dumps(report.notes) if report.notes else "[]",
        ),
    )


def _promote(turn: Turn, site: str, binding: Binding, bundle: Bundle) -> None:
    artifact = Artifact(
        task_id=binding.task_id,
        fence=binding.fence,
        attempt=binding.attempt,
        kind="outputs",
        ordinal=0,
        name="",
        bundle=bundle,
        place=place_of(site, binding),
    )
    promotion.record(turn, artifact)


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
    step = Step(TaskState.RUNNING, TaskState.QUEUED, reason=failure.kind, site=lease.site)
    turn.record("failed_attempt", text, task_id=lease.task_id, worker_id=lease.worker_id, step=step)


def _refuse(turn: Turn, worker: WorkerView, report: Finished) -> None:
    binding = report.binding
    reason = why_not(turn, worker.address, binding, (report.scope.world, report.scope.run))
    if reason is None:
        judge(turn, worker, binding, Verdict.DUPLICATE)
        return
    judge(turn, worker, binding, Verdict.REJECTED, reason)
    quarantine(turn, worker.site, worker.worker_id, report, reason)


def quarantine(turn: Turn, site: str, worker_id: str, report: Finished, reason: Reason) -> None:
    """Keep a rejected result as evidence; the same one a second time adds nothing."""
    binding = report.binding
    if turn.store.row("is_quarantined", (binding.task_id, binding.fence, site, worker_id, binding.nonce)):
        return
    outputs = report.outputs if report.outcome.failure is None else None
    told = report.model_dump_json()
    if not turn.memory.quotas.may_keep(site, len(told), turn.elapsed_ms):
        if turn.memory.quotas.is_first(site, "evidence"):
            text = f"Site {site} has used up its quota of rejected results: more are refused and not kept."
            turn.record("refused", text, worker_id=worker_id, step=Step(reason="evidence"))
        return
    turn.store.run(
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
            told,
            None if outputs is None else outputs.model_dump_json(),
            turn.now_ms,
        ),
    )
    turn.memory.quotas.note_kept(site, len(told), turn.elapsed_ms)
    text = (
        f"A result of attempt {binding.attempt} (fence {binding.fence}) from {worker_id} was rejected: "
        f"{reason}. It is kept in quarantine and changes nothing."
    )
    step = Step(after="QUARANTINED", reason=reason, site=site)
    turn.record("rejected", text, task_id=binding.task_id, worker_id=worker_id, step=step)
