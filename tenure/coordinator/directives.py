"""Directives: the recorded decision about what follows a lost or failed attempt.

Nothing runs again without one. The submitter's retry budgets are the only policy that approves by itself; everything
else is held for a person. Lost and failed attempts have separate budgets: a lost lease is never a failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from tenure.clock import sortable_id
from tenure.coordinator import charges, leases
from tenure.coordinator.journal import RETRY_POLICY, Step
from tenure.errors import DirectiveDecided, UnknownDirective
from tenure.protocol.client_messages import Done
from tenure.protocol.envelope import Retry, open_envelope
from tenure.protocol.states import DirectiveState, LeaseState, TaskState
from tenure.protocol.timing import expiry_ms
from tenure.protocol.worker_messages import Cause

if TYPE_CHECKING:
    from tenure.coordinator.live import LiveLease
    from tenure.coordinator.store.database import Row
    from tenure.coordinator.turn import Turn

POLICY: Final = "policy: the submitter's retry budget"
_DECIDED: Final = {True: DirectiveState.APPROVED, False: DirectiveState.DENIED}


@final
@dataclass(frozen=True, slots=True)
class Loss:
    """What happened to an attempt: a short `reason` (a word of the vocabulary) and a sentence of `detail`."""

    reason: str
    detail: str
    wait_ms: int = 0
    """How long the next attempt waits at least, because what was lost may still run."""


def after_loss(turn: Turn, lease: LiveLease, loss: Loss) -> None:
    """RUNNING to LOST, with a directive: approved by policy while the budget lasts, else held for a person."""
    task = turn.store.row("task", (lease.task_id,))
    if task is None:
        return
    _, state, _, raw, capability, _, _, lost_count, _, watcher = task
    if state == TaskState.CANCELLING:
        cancelled(turn, lease.task_id, watcher, f"its lease is over ({loss.detail})")
        return
    _note_undone(turn, lease)
    turn.store.run("task_state", (TaskState.LOST, None, lease.task_id, TaskState.RUNNING))
    retry = open_envelope(raw).retry
    allowed = lost_count < retry.lost
    wait_ms = max(loss.wait_ms, backoff_ms(retry, lost_count)) if allowed else 0
    directive_id = _record(turn, lease, loss, backoff_ms=wait_ms, held=not allowed)
    far = f"; it was {lease.progress}" if lease.progress is not None else ""
    text = f"Attempt {lease.attempt} (fence {lease.fence}) was lost: {loss.detail}{far}."
    step = Step(TaskState.RUNNING, TaskState.LOST, reason=loss.reason, site=lease.site)
    turn.record("lost", text, task_id=lease.task_id, worker_id=lease.worker_id or None, step=step)
    if allowed:
        _allow(turn, lease, directive_id, f"lost attempt {lost_count + 1} of {retry.lost} that may be repeated")
        again(turn, lease, capability, (1, 0), wait_ms)
        return
    turn.tell(
        watcher,
        Done(task_id=lease.task_id, state=TaskState.LOST, attempt=lease.attempt, fence=lease.fence, detail=loss.detail),
    )


def after_failure(turn: Turn, lease: LiveLease, kind: str, retry: Retry, failed_count: int) -> None:
    """Approve the next attempt after an accepted failure that the budget covers; the task is queued again."""
    wait_ms = backoff_ms(retry, failed_count)
    loss = Loss(f"failed_{kind}", f"it failed ({kind})")
    directive_id = _record(turn, lease, loss, backoff_ms=wait_ms, held=False)
    _allow(turn, lease, directive_id, f"failed attempt {failed_count + 1} of {retry.failed} that may be repeated")
    again(turn, lease, lease.capability, (0, 1), wait_ms)


def decide(turn: Turn, wanted: str, *, approve: bool, by: str, note: str) -> str:
    """A person's decision about a pending directive, given by directive id or task id; answers the directive's id.

    By directive id it may be repeated. By task id it is about whatever attempt was lost by now, so that it is refused
    where it may be an old one.

    Raises:
        UnknownDirective: no such directive, and no pending one of such a task.
        DirectiveDecided: it was decided before, or may be a repeated decision about an attempt before.
        OverBudget: the task's campaign has no time left for another attempt.
    """
    row = turn.store.row("directive", (wanted,)) or turn.store.row("pending_directive_of_task", (wanted,))
    row = row or turn.store.row("newest_directive_of_task", (wanted,))
    if row is None:
        raise UnknownDirective(f"no directive or task {wanted} waits for a decision", "See `tenure directives list`")
    directive_id, task_id, next_attempt, state, reason, *decision = row
    if wanted == directive_id and [state, *decision] == [_DECIDED[approve], by, note]:
        return str(directive_id)  # asked again by who has not heard the answer
    if state != DirectiveState.PENDING:
        raise DirectiveDecided(f"directive {directive_id} is {state} already", "A decision is never changed")
    if wanted != directive_id and approve:
        _require_new(turn, row, note)
    if approve:
        charges.require_time_for_another(turn, task_id)
        _approve(turn, directive_id, by, note)
        _requeue_lost(turn, task_id, next_attempt, may_run=reason == Cause.SITE_REVOKED)
    else:
        _deny(turn, directive_id, by, note)
        _abandon(turn, task_id, directive_id, by)
    verb = "approved" if approve else "denied"
    step = Step(TaskState.LOST, TaskState.QUEUED if approve else TaskState.ABANDONED, reason=note)
    text = f"{by} {verb} directive {directive_id}{_because(note)}."
    turn.record(f"directive_{verb}", text, task_id=task_id, step=step)
    return str(directive_id)


def _require_new(turn: Turn, pending: Row, note: str) -> None:
    """Refuse what may be an earlier approval, repeated because the answer was lost with its coordinator."""
    directive_id, task_id, next_attempt, *_ = pending
    known = (task_id, turn.actor.principal, note, turn.store.epoch)
    if turn.store.row("approved_in_an_earlier_epoch", known) is not None:
        raise DirectiveDecided(
            f"you have approved an attempt of task {task_id} before this coordinator began; this may be that request",
            f"To allow attempt {next_attempt} as well, name its directive: {directive_id}",
        )


def deny(turn: Turn, task_id: str, by: str, note: str) -> None:
    """PENDING to DENIED, if there is a question about the task: another decision has answered it."""
    row = turn.store.row("pending_directive_of_task", (task_id,))
    if row is None:
        return
    _deny(turn, row[0], by, note)
    step = Step(DirectiveState.PENDING, DirectiveState.DENIED, reason=note)
    text = f"Directive {row[0]}: attempt {row[2]} is denied by {by} ({note})."
    turn.record("retry_denied", text, task_id=task_id, step=step)


def _deny(turn: Turn, directive_id: str, by: str, note: str) -> None:
    turn.store.run("decide_directive", (DirectiveState.DENIED, turn.now_ms, by, note, directive_id))


def give_back(turn: Turn, lease: LiveLease, *, cause: Cause = Cause.UNSTARTED, wait_ms: int = 0) -> None:
    """A provably unstarted assignment: RELEASED, and the same attempt is offered again under a new fence."""
    task = turn.store.row("task", (lease.task_id,))
    lease.printed = False
    leases.end(turn, lease, LeaseState.RELEASED, cause)
    if task is None:
        return
    if task[1] == TaskState.CANCELLING:
        cancelled(turn, lease.task_id, task[9], "it was given back before it started")
        return
    _note_undone(turn, lease)
    not_before_ms = turn.now_ms + wait_ms if wait_ms else 0
    turn.store.run("task_given_back", (not_before_ms, lease.task_id))
    ready(turn, lease.capability, not_before_ms)


def _note_undone(turn: Turn, lease: LiveLease) -> None:
    """Its site comes last for a while, and pays for the records of it, but for what a person has brought about."""
    if turn.actor.is_person:
        return
    turn.memory.sites.idle.add(lease.site, turn.elapsed_ms)
    turn.memory.quotas.note_undone(lease.site, turn.elapsed_ms)


def cancelled(turn: Turn, task_id: str, watcher: str, proof: str) -> None:
    """CANCELLING to CANCELLED: the end is proved."""
    turn.store.run("task_state", (TaskState.CANCELLED, turn.now_ms, task_id, TaskState.CANCELLING))
    step = Step(TaskState.CANCELLING, TaskState.CANCELLED, reason=proof)
    turn.record("cancelled", f"Cancelled: {proof}.", task_id=task_id, step=step)
    turn.tell(watcher, Done(task_id=task_id, state=TaskState.CANCELLED, detail=proof))


def again(turn: Turn, lease: LiveLease, capability: str, counts: tuple[int, int], wait_ms: int) -> None:
    """To QUEUED for the attempt after the lease's; `counts` are added to the lost and failed counts.

    Without a wait it is ready at once, also when the wall clock is set back now.
    """
    not_before_ms = turn.now_ms + wait_ms if wait_ms else 0
    turn.store.run("task_again", (lease.attempt + 1, *counts, not_before_ms, lease.task_id))
    ready(turn, capability, not_before_ms)


def ready(turn: Turn, capability: str, not_before_ms: int) -> None:
    """Let the scheduler look at a capability in this turn, or when the task's time comes."""
    turn.memory.ready.add(capability)
    turn.memory.directed_ready = True
    if not_before_ms > turn.now_ms:
        turn.memory.next_due_ms = 0


def backoff_ms(retry: Retry, repeats: int) -> int:
    """How long the next attempt waits after `repeats` earlier repeats."""
    return min(retry.backoff_max_ms, retry.backoff_ms << min(repeats, 40))


def _record(turn: Turn, lease: LiveLease, loss: Loss, *, backoff_ms: int, held: bool) -> str:
    directive_id = sortable_id(turn.now_ms, turn.entropy)
    turn.store.run(
        "insert_directive",
        (
            directive_id,
            lease.task_id,
            lease.fence,
            lease.attempt,
            lease.attempt + 1,
            "hold" if held else "retry",
            loss.reason,
            loss.detail,
            backoff_ms,
            turn.now_ms,
        ),
    )
    if held:
        text = f"Directive {directive_id}: attempt {lease.attempt + 1} is held for a person to decide."
        step = Step(after=DirectiveState.PENDING, reason=loss.reason, site=lease.site)
        turn.record("retry_held", text, task_id=lease.task_id, step=step)
    return directive_id


def _allow(turn: Turn, lease: LiveLease, directive_id: str, note: str) -> None:
    """The submitter's retry budget covers it; `explain` tells so from the directive."""
    _approve(turn, directive_id, POLICY, note)
    step = Step(DirectiveState.PENDING, DirectiveState.APPROVED, reason=note, principal=RETRY_POLICY, site=lease.site)
    text = f"Directive {directive_id}: attempt {lease.attempt + 1} is allowed."
    turn.record("retry_allowed", text, task_id=lease.task_id, step=step)


def _approve(turn: Turn, directive_id: str, by: str, note: str) -> None:
    turn.store.run("decide_directive", (DirectiveState.APPROVED, turn.now_ms, by, note, directive_id))


def _requeue_lost(turn: Turn, task_id: str, next_attempt: int, *, may_run: bool) -> None:
    """To QUEUED; where what was lost `may_run` still, not before its worker has stopped it for want of renewals."""
    task: Row | None = turn.store.row("task", (task_id,))
    if task is None or task[1] != TaskState.LOST:
        raise DirectiveDecided(f"task {task_id} is not LOST any more", "See `tenure explain`")
    not_before_ms = turn.now_ms + expiry_ms(open_envelope(task[3]).lease_ttl_ms) if may_run else 0
    turn.store.run("task_again", (next_attempt, 0, 0, not_before_ms, task_id))
    ready(turn, task[4], not_before_ms)


def _abandon(turn: Turn, task_id: str, directive_id: str, by: str) -> None:
    task = turn.store.row("task", (task_id,))
    turn.store.run("task_state", (TaskState.ABANDONED, turn.now_ms, task_id, TaskState.LOST))
    if task is not None:
        detail = f"{by} denied directive {directive_id}"
        turn.tell(task[9], Done(task_id=task_id, state=TaskState.ABANDONED, detail=detail))


def _because(note: str) -> str:
    return f" ({note})" if note else ""
