"""What workers report, one event at a time. Who speaks is decided by the inbox that a report arrived on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from tenure.broker.base import WorkerAddress
from tenure.broker.keys import DEFAULT_SITE
from tenure.coordinator import acceptance, checkpoints, directives, executors, leases, registry, surrenders
from tenure.coordinator.journal import Step
from tenure.coordinator.live import Progress
from tenure.protocol.control_messages import Granted, Reason, Refused, Registered, SayHello, Stop, StopReason, Verdict
from tenure.protocol.states import LeaseState
from tenure.protocol.worker_messages import (
    Cause,
    Checkpointed,
    Claimed,
    ExecutorGone,
    Finished,
    Hello,
    Leaving,
    Progressed,
    Released,
    Report,
)

if TYPE_CHECKING:
    from tenure.coordinator.fleet import WorkerView
    from tenure.coordinator.live import LiveLease
    from tenure.coordinator.turn import Turn
    from tenure.protocol.worker_messages import Binding, WorkerEvent

_REFUSED_WAIT_MS: Final = 1_000
"""A refused assignment waits this long, so that a worker that refuses everything cannot spin the loop. So does whatever
a site gives back that has a credential of its own: what it says of the reason is worth nothing."""


def take(turn: Turn, site: str, report: Report) -> None:
    """Apply a report's events in order."""
    known = turn.memory.sites.get(site)
    for event in report.events:
        worker = turn.fleet.get(report.worker_id)
        if worker is None and not _may_be_new(turn, site, report.worker_id, event):
            return
        refusal = _stranger(turn, site, report, worker, event) if known is not None else Reason.SITE_REVOKED
        if refusal is not None:
            _refuse_stranger(turn, site, report, event, refusal)
        elif isinstance(event, Hello) and known is not None:
            registry.hello(turn, known, report, event)
        elif worker is not None:
            _apply(turn, worker, event)
    worker = turn.fleet.get(report.worker_id)
    if worker is not None and worker.site == site and worker.generation == report.generation:
        grown = report.window > worker.window
        worker.window = report.window
        if grown:
            registry.wake(turn, worker)


def _may_be_new(turn: Turn, site: str, worker_id: str, event: WorkerEvent) -> bool:
    """Whether a worker that is not registered gets an answer: a site may not make up names without end."""
    quotas, present = turn.memory.quotas, turn.fleet.count_at(site)
    is_executor = isinstance(event, Hello) and event.executor_of is not None
    if quotas.may_name(site, worker_id, present, turn.elapsed_ms, is_executor=is_executor):
        return True
    if quotas.is_first(site, "workers"):
        text = f"Site {site} tells of more new workers than its quota allows: some are not answered."
        turn.record("refused", text, step=Step(reason="names"))
    return False


def _stranger(turn: Turn, site: str, report: Report, worker: WorkerView | None, event: WorkerEvent) -> Reason | None:
    """Why this report is not taken as that worker's word; None when it is."""
    known_site, generation = _known(turn, site, report.worker_id)
    if known_site != site or (worker is None and turn.memory.sites.home_of(report.worker_id) != site):
        return Reason.WRONG_SITE
    if report.generation < generation:
        return Reason.OLD_GENERATION
    if not isinstance(event, Hello) and (worker is None or report.generation > generation):
        return Reason.UNREGISTERED_WORKER
    return None


def _known(turn: Turn, site: str, worker_id: str) -> tuple[str, int]:
    """Site and generation of a worker, also of one that is OFFLINE, or what makes a new one welcome."""
    worker = turn.fleet.get(worker_id)
    if worker is not None:
        return worker.site, worker.generation
    row = turn.store.row("worker", (worker_id,))
    return (row[1], row[2]) if row is not None else (site, 0)


def _refuse_stranger(turn: Turn, site: str, report: Report, event: WorkerEvent, reason: Reason) -> None:
    if reason is Reason.UNREGISTERED_WORKER:
        address = WorkerAddress(site, report.worker_id)
        if address not in turn.out.orders:
            turn.out.order(address, SayHello())
        return  # it says hello and repeats what it was not answered
    if reason is Reason.OLD_GENERATION:
        # It has not heard of the newer agent, or that order was lost: it must end, and may not wait for verdicts.
        _, generation = _known(turn, site, report.worker_id)
        turn.out.order(WorkerAddress(site, report.worker_id), Registered(generation=generation))
    if isinstance(event, Finished):
        acceptance.quarantine(turn, site, report.worker_id, event, reason)
        return
    if not turn.memory.is_first_refusal(report.worker_id, reason):
        return
    text = f"A {event.kind} from {report.worker_id} on the inbox of {site} was refused: {reason}."
    turn.record("refused", text, worker_id=report.worker_id, step=Step(reason=reason))


def _apply(turn: Turn, worker: WorkerView, event: WorkerEvent) -> None:
    surrenders.close(turn, worker, event)
    match event:
        case Finished():
            acceptance.finish(turn, worker, event)
        case Claimed():
            _claim(turn, worker, event)
        case Released() | ExecutorGone():
            _over(turn, worker, event)
        case Leaving():
            _leave(turn, worker, event)
        case Progressed():
            _progress(turn, worker, event)
        case Checkpointed():
            checkpoints.take(turn, worker, event)
        case Hello():
            pass
        case _:
            assert_never(event)


def _over(turn: Turn, worker: WorkerView, event: Released | ExecutorGone) -> None:
    if isinstance(event, Released):
        _release(turn, worker, event)
    else:
        executors.gone(turn, worker, event)


def _leave(turn: Turn, worker: WorkerView, event: Leaving) -> None:
    if event.gone:
        turn.leases.taken_by_none_of(worker)
    registry.leave(turn, worker, gone=event.gone)


def _claim(turn: Turn, worker: WorkerView, event: Claimed) -> None:
    binding = event.binding
    lease = turn.leases.get(binding.task_id)
    if lease is not None and acceptance.may_bind(turn, lease, worker, binding):
        leases.bind(turn, lease, binding, worker.worker_id, after_beat=event.after_beat)
    if lease is not None and acceptance.holds(lease, worker, binding):
        _answer_claim(turn, worker, lease, binding)
        return
    reason = acceptance.why_not(turn, worker.address, binding) or Reason.TASK_OVER
    if reason is Reason.SECOND_EXECUTOR:
        executors.note_second(turn, worker, binding)
    refused = Refused(task_id=binding.task_id, fence=binding.fence, nonce=binding.nonce, reason=reason)
    turn.out.order(worker.address, refused)


def _answer_claim(turn: Turn, worker: WorkerView, lease: LiveLease, binding: Binding) -> None:
    if lease.stopping:
        stop = Stop(task_id=binding.task_id, fence=binding.fence, reason=StopReason.CANCELLED)
        turn.out.order(worker.address, stop)
        return
    turn.out.order(
        worker.address,
        Granted(task_id=binding.task_id, fence=binding.fence, nonce=binding.nonce),
    )


def _release(turn: Turn, worker: WorkerView, event: Released) -> None:
    binding = event.binding
    lease = turn.leases.get(binding.task_id)
    if lease is not None and event.started and acceptance.may_bind(turn, lease, worker, binding):
        leases.bind(turn, lease, binding, worker.worker_id)  # what ran is never just re-offered
    if lease is None or not (
        acceptance.holds(lease, worker, binding) or acceptance.is_offered_to(turn, lease, worker, binding)
    ):
        reason = acceptance.why_not(turn, worker.address, binding)
        verdict = Verdict.DUPLICATE if reason in {None, Reason.LEASE_RELEASED} else Verdict.REJECTED
        acceptance.judge(turn, worker, binding, verdict, reason if verdict is Verdict.REJECTED else None)
        return
    if event.started and not event.tree_gone:
        _not_ended(turn, worker, lease, event.detail)
        return
    if not event.started:
        _note_refusal(turn, worker, event)
        must_wait = event.cause is Cause.REFUSED or worker.site != DEFAULT_SITE
        directives.give_back(turn, lease, wait_ms=_REFUSED_WAIT_MS if must_wait else 0)
    elif lease.state is LeaseState.ACTIVE:
        surrenders.take(turn, lease, event)
    acceptance.judge(turn, worker, binding, Verdict.ACCEPTED)


def _note_refusal(turn: Turn, worker: WorkerView, event: Released) -> None:
    """A worker that cannot run a task says why, and nothing else would: the next one is asked in a second."""
    task_id = event.binding.task_id
    if event.cause is Cause.REFUSED and turn.memory.is_first_refusal(f"{worker.worker_id} {task_id}", event.detail):
        text = f"{worker.worker_id} cannot run it and gave it back: {event.detail or 'it did not say why'}."
        step = Step(reason=event.cause)
        turn.record("given_back", text, task_id=task_id, worker_id=worker.worker_id, step=step)


def _not_ended(turn: Turn, worker: WorkerView, lease: LiveLease, detail: str) -> None:
    """There is no proof of the end, so the lease runs out by itself, even when heartbeats stop listing it."""
    if not lease.unproved:
        because = f": {detail}" if detail else ""
        text = f"{worker.worker_id} could not end attempt {lease.attempt}{because}."
        turn.record("not_ended", text, task_id=lease.task_id, worker_id=worker.worker_id)
        turn.store.run("unproved_lease", (lease.task_id, lease.fence))
    lease.unproved = True


def _progress(turn: Turn, worker: WorkerView, event: Progressed) -> None:
    lease = turn.leases.get(event.binding.task_id)
    if lease is None or not acceptance.holds(lease, worker, event.binding):
        return
    if lease.progress is None or event.cursor > lease.progress.cursor:
        lease.progress = Progress(event.cursor, event.fraction_ppm, event.message, event.metrics)
