"""Executors: workers that another worker, their parent, has started through its launcher for one assignment each.

An executor claims, renews and reports for itself, under the rules for every worker. Only its beginning and its end are
told by its parent too. What a parent says of an end decides nothing by itself: a lease is released early only when the
parent says that the processes are proved gone *and* the executor is not heard any more. Otherwise it runs out like
every lease. What was told is kept in memory, and forgotten with a restart: the parent tells it until it is `Judged`,
and it is judged when it is decided, not before. That a second executor was started is kept for good.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tenure.coordinator import acceptance, directives, leases
from tenure.coordinator.journal import Step
from tenure.coordinator.live import Gone
from tenure.protocol.control_messages import Reason, Verdict
from tenure.protocol.states import LeaseState
from tenure.protocol.timing import beat_interval_ms, grace_ms, margin_ms
from tenure.protocol.worker_messages import BEFORE_THE_START, NEVER_LAUNCHED, Cause

if TYPE_CHECKING:
    from tenure.coordinator.fleet import WorkerView
    from tenure.coordinator.live import LiveLease
    from tenure.coordinator.turn import Turn
    from tenure.protocol.worker_messages import Binding, ExecutorGone

_FIRST_WAIT_MS: Final = 1_000
"""An assignment whose executor never came to be waits this long: a launcher that starts none cannot spin the loop."""
_LONGEST_WAIT_MS: Final = 60_000
"""Executors that end before they claim use up no attempt, so each is waited for twice as long as the one before."""


def quiet_ms(ttl_ms: int) -> int:
    """How long an executor that is said to be gone must not be heard before its lease is released.

    A runner needs the grace to end its tree after its agent's death, and an agent that lives beats within its interval.
    """
    return max(grace_ms(ttl_ms), beat_interval_ms(ttl_ms)) + margin_ms(ttl_ms)


def gone(turn: Turn, worker: WorkerView, event: ExecutorGone) -> None:
    """A parent says that an executor is over, or never came to be."""
    binding = event.binding
    lease = turn.leases.get(binding.task_id)
    if lease is None or not _is_named(lease, binding):
        _answer(turn, worker, event)
    elif lease.state is LeaseState.OFFERED and acceptance.is_offered_to(turn, lease, worker, binding):
        _never_came(turn, lease, worker, event)
    elif lease.state is LeaseState.ACTIVE and lease.parent == worker.worker_id:
        _note(lease, event)
    else:
        _refuse(turn, worker, binding, Reason.WRONG_WORKER)


def settle(turn: Turn) -> None:
    """After a look at the heartbeats: release what is proved and quiet, and keep what is heard."""
    for lease in turn.leases:
        if lease.gone is None or lease.state is not LeaseState.ACTIVE:
            continue
        executor = turn.fleet.get(lease.worker_id)
        if lease.gone.since_ms < 0:
            lease.gone = replace(lease.gone, since_ms=turn.elapsed_ms)
        elif executor is not None and executor.heard_ms > lease.gone.since_ms:
            _disprove(turn, lease, lease.gone.told)
        elif _is_proved(turn, lease, lease.gone):
            _release(turn, lease, lease.gone.told)


def story(lease: LiveLease, told: ExecutorGone) -> str:
    """What a parent says of the end of a lease's executor, for people."""
    because = f": {told.detail}" if told.detail else ""
    return f"{lease.parent} says that {lease.worker_id} is gone ({told.cause}{because})"


def judge_ended(turn: Turn, lease: LiveLease) -> None:
    """The lease of an executor that was said to be gone is over: the parent is told that this is settled."""
    parent = turn.fleet.get(lease.parent)
    if parent is not None and lease.gone is not None:
        acceptance.judge(turn, parent, lease.gone.told.binding, Verdict.ACCEPTED)


def note_second(turn: Turn, worker: WorkerView, binding: Binding) -> None:
    """An executor was started for a lease that another one has: on record, for it says something about the launcher.

    What its parent proves from now on may be the end of this one, so it proves nothing about the other.
    """
    lease = turn.leases.get(binding.task_id)
    if lease is not None and lease.fence == binding.fence and worker.executor_of and not lease.seconded:
        lease.seconded = True
        turn.store.run("second_lease", (lease.task_id, lease.fence))
    if turn.memory.is_first_refusal(worker.worker_id, Reason.SECOND_EXECUTOR):
        text = (
            f"{worker.worker_id} was started too for attempt {binding.attempt} (fence {binding.fence}), and was "
            "refused: another executor of it has the lease."
        )
        step = Step(reason=Reason.SECOND_EXECUTOR)
        turn.record("second_executor", text, task_id=binding.task_id, worker_id=worker.worker_id, step=step)


def _is_named(lease: LiveLease, binding: Binding) -> bool:
    return (lease.fence, lease.digest, lease.attempt) == (binding.fence, binding.digest, binding.attempt)


def _never_came(turn: Turn, lease: LiveLease, worker: WorkerView, event: ExecutorGone) -> None:
    because = f": {event.detail}" if event.detail else ""
    # The detail does not count: a process number in it would make each one news.
    if turn.memory.is_first_refusal(f"{worker.worker_id} {lease.task_id}", event.cause):
        text = f"{worker.worker_id} could not start an executor for it ({event.cause}{because}); it is offered again."
        step = Step(reason=event.cause)
        turn.record("not_launched", text, task_id=lease.task_id, worker_id=worker.worker_id, step=step)
    directives.give_back(turn, lease, cause=event.cause, wait_ms=_wait_ms(turn, lease))
    acceptance.judge(turn, worker, event.binding, Verdict.ACCEPTED)


def _wait_ms(turn: Turn, lease: LiveLease) -> int:
    in_vain = turn.store.row("starts_in_vain", (lease.task_id, lease.attempt))
    return min(_FIRST_WAIT_MS << min(in_vain[0] if in_vain else 0, 16), _LONGEST_WAIT_MS)


def _note(lease: LiveLease, event: ExecutorGone) -> None:
    """Keep what was told; a proof is not taken back by less, and telling it again does not begin anew.

    A parent that says of an executor which was bound that it never was has forgotten it, and knows nothing of its end.
    """
    knows = event.cause not in BEFORE_THE_START
    if not knows or event.cause in NEVER_LAUNCHED:
        event = event.model_copy(update={"cause": Cause.EXECUTOR_DIED, "proved": event.proved and knows})
    before = lease.gone
    if before is None or (event.proved and not before.told.proved):
        lease.gone = Gone(event)
    elif before.told.proved or not knows:
        told = before.told.model_copy(update={"binding": event.binding})
        lease.gone = replace(before, told=told)  # the parent has begun anew, and is answered under its newest word
    else:
        lease.gone = replace(before, told=event)


def _disprove(turn: Turn, lease: LiveLease, told: ExecutorGone) -> None:
    """Not judged: the parent goes on telling it, and is believed as soon as it is true."""
    if turn.memory.is_first_refusal(lease.worker_id, "said to be gone"):
        text = f"{story(lease, told)}, but it was heard since: it keeps its lease."
        step = Step(reason=told.cause, site=lease.site)
        turn.record("not_gone", text, task_id=lease.task_id, worker_id=lease.parent, step=step)
    lease.gone = None


def _is_proved(turn: Turn, lease: LiveLease, what: Gone) -> bool:
    """An executor that could not end its tree itself, or whose files are being checked, is not judged by its end.

    Nor is one of two: the word may be about the other.
    """
    if not what.told.proved or lease.unproved or lease.seconded:
        return False
    if turn.curator.knows(("result", lease.task_id, lease.fence, lease.nonce)):
        return False
    return turn.memory.heard_until_ms - what.since_ms > quiet_ms(lease.ttl_ms)


def _release(turn: Turn, lease: LiveLease, told: ExecutorGone) -> None:
    leases.end(turn, lease, LeaseState.RELEASED, told.cause)
    directives.after_loss(turn, lease, directives.Loss(told.cause, story(lease, told)))
    parent = turn.fleet.get(lease.parent)
    if parent is not None:
        acceptance.judge(turn, parent, told.binding, Verdict.ACCEPTED)


def _answer(turn: Turn, worker: WorkerView, event: ExecutorGone) -> None:
    """About a lease that is over already, or never was: true or not, nothing follows."""
    binding = event.binding
    if turn.store.row("task", (binding.task_id,)) is None:
        _refuse(turn, worker, binding, Reason.UNKNOWN_TASK)
        return
    lease = turn.store.row("lease", (binding.task_id, binding.fence))
    if lease is None:
        _refuse(turn, worker, binding, Reason.UNKNOWN_FENCE)
        return
    attempt, digest, _, _, worker_id, _, _, _, parent, directed_to, site = lease
    if (attempt, digest) != (binding.attempt, binding.digest):
        _refuse(turn, worker, binding, Reason.DIGEST_MISMATCH if digest != binding.digest else Reason.WRONG_ATTEMPT)
    elif site != worker.site:
        _refuse(turn, worker, binding, Reason.WRONG_SITE)
    elif parent != worker.worker_id if worker_id else directed_to not in {"", worker.worker_id}:
        _refuse(turn, worker, binding, Reason.WRONG_WORKER)
    else:
        acceptance.judge(turn, worker, binding, Verdict.DUPLICATE)


def _refuse(turn: Turn, worker: WorkerView, binding: Binding, reason: Reason) -> None:
    if turn.memory.is_first_refusal(worker.worker_id, f"executor_gone {reason}"):
        text = f"What {worker.worker_id} said of the end of an executor was refused: {reason}."
        turn.record("refused", text, task_id=binding.task_id, worker_id=worker.worker_id, step=Step(reason=reason))
    acceptance.judge(turn, worker, binding, Verdict.REJECTED, reason)
