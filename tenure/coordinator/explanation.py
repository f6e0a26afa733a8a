"""`tenure explain`: everything on record about one task, as a story in order, ending with what to do next.

Each line is `{"at_ms", "kind", "text"}`; `text` is a sentence that is shown as it is.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tenure.broker.keys import DEFAULT_SITE
from tenure.coordinator import campaigns, scheduler
from tenure.errors import UnknownTask
from tenure.protocol.artifact import Bundle
from tenure.protocol.envelope import CallWork, Envelope, open_envelope
from tenure.protocol.sizes import size_text
from tenure.protocol.states import TERMINAL_TASK_STATES, LeaseState, TaskState
from tenure.protocol.worker_messages import Failure

if TYPE_CHECKING:
    from tenure.coordinator.live import LiveLease
    from tenure.coordinator.store.database import Row
    from tenure.coordinator.turn import Turn

Line = dict[str, Any]

_MOST_NAMED: Final = 8

_ORDER: Final = (
    "submitted",
    "expired",
    "released",
    "lost",
    "failed_attempt",
    "directive",
    "offered",
    "from_checkpoint",
    "bound",
)
"""Which of two lines of the same millisecond comes first; kinds that are not listed come last."""


def explain(turn: Turn, task_id: str) -> list[Line]:
    """The story of a task. Raises `UnknownTask`."""
    task = turn.store.row("story_task", (task_id,))
    if task is None:
        raise UnknownTask(f"there is no task {task_id}", "See `tenure tasks list`")
    envelope = open_envelope(task[9])
    story = [_submitted(task, envelope)]
    story[0]["text"] += campaigns.story(turn, task_id)
    for lease in turn.store.rows("story_leases", (task_id,)):
        story.extend(_lease(lease))
    for directive in turn.store.rows("story_directives", (task_id,)):
        story.extend(_directive(directive))
    story.extend(_line(at_ms, kind, text) for at_ms, kind, text in turn.store.rows("story_events", (task_id,)))
    if task[15] is not None:
        story.append(_ended(task))
        story.extend(_line(task[15], "note", f"{note.rstrip('.')}.") for note in json.loads(task[17]))
    story.sort(
        key=lambda line: (int(line["at_ms"]), _ORDER.index(line["kind"]) if line["kind"] in _ORDER else len(_ORDER))
    )
    return [*story, _next(turn, task, envelope)]


def _line(at_ms: int, kind: str, text: str) -> Line:
    return {"at_ms": at_ms, "kind": kind, "text": text}


def _submitted(task: Row, envelope: Envelope) -> Line:
    work = envelope.work
    what = f"{'call' if isinstance(work, CallWork) else 'run'} {work.summary()}"
    who = f" by {task[4]}" if task[4] else ""
    retry = envelope.retry
    budget = f"{retry.lost} lost and {retry.failed} failed attempts may be repeated without asking"
    if not retry.lost and not retry.failed:
        budget = "nothing is repeated without asking"
    text = f"Submitted{who}: {what}; capability {task[2]}, run {task[3]}; {budget}."
    return _line(task[5], "submitted", text + _given(envelope))


def _given(envelope: Envelope) -> str:
    """What the task is given to work with, as a sentence; "" when that is nothing."""
    given = [f"{each.path} ({size_text(each.content.size)})" for each in envelope.inputs[:_MOST_NAMED]]
    if len(envelope.inputs) > _MOST_NAMED:
        given.append(f"{len(envelope.inputs) - _MOST_NAMED} more inputs")
    given += [f"the secret {name}" for name in envelope.secrets]
    return f" It is given {', '.join(given)}." if given else ""


def _lease(lease: Row) -> list[Line]:
    fence, attempt, state, worker_id, cause, offered_ms, bound_ms, ended_ms, directed_to, parent, site = lease
    where = f" to {directed_to}" if directed_to else "" if site == DEFAULT_SITE else f" to site {site}"
    lines = [_line(offered_ms, "offered", f"Attempt {attempt} was offered{where} under fence {fence}.")]
    if bound_ms is not None:
        who = worker_id or "A worker that was not heard"
        who = f"{who}, started for {parent}," if parent else who
        lines.append(_line(bound_ms, "bound", f"{who} got the lease on attempt {attempt} (fence {fence})."))
    if ended_ms is not None and state == LeaseState.RELEASED:
        lines.append(_line(ended_ms, "released", f"The lease under fence {fence} was released: {cause}."))
    if ended_ms is not None and state == LeaseState.EXPIRED:
        lines.append(_line(ended_ms, "expired", f"The lease under fence {fence} expired: {cause}."))
    return lines


def _directive(directive: Row) -> list[Line]:
    directive_id, next_attempt, action, _, detail, state, decided_by, note, created_ms, decided_ms = directive
    lines: list[Line] = []
    if action == "hold":
        text = f"Directive {directive_id}: attempt {next_attempt} is held for a person to decide, because {detail}."
        lines.append(_line(created_ms, "directive", text))
    if decided_ms is not None and action == "retry":
        text = (
            f"Directive {directive_id}: attempt {next_attempt} was {state} by {decided_by} ({note}), because {detail}."
        )
        lines.append(_line(decided_ms, "directive", text))
    return lines


def _ended(task: Row) -> Line:
    _, state, *_rest = task
    attempt, worker_id, _, failure, duration_ms, accepted_ms = task[10:16]
    text = f"The result of attempt {attempt} from {worker_id} was accepted after {duration_ms / 1000:.2f} s: {state}"
    if failure is not None:
        failed = Failure.model_validate_json(failure)
        text = f"{text} ({failed.kind}): {failed.message}"
    text += "."
    if task[16] is not None:
        bundle = Bundle.model_validate_json(task[16])
        text = f"{text} It left {bundle.files} {'file' if bundle.files == 1 else 'files'} ({size_text(bundle.size)})."
    return _line(accepted_ms, "accepted", text)


def _next(turn: Turn, task: Row, envelope: Envelope) -> Line:
    task_id, state = task[0], TaskState(task[1])
    text = f"It is {state} now."
    if state is TaskState.QUEUED:
        text = f"It is QUEUED: {why_waiting(turn, task, envelope)}."
    elif state is TaskState.LOST:
        text = f"It is LOST and waits for you: `tenure directives approve {task_id}` runs it again, `deny` ends it."
    elif state is TaskState.CANCELLING:
        text = "It is CANCELLING (unconfirmed): the worker has not proved its end, and the lease is not over yet."
        if turn.leases.get(task_id) is None:
            text = "It is CANCELLING (unconfirmed): its site was revoked, and may run it until the lease would be over."
    elif state in {TaskState.OFFERED, TaskState.RUNNING}:
        lease = turn.leases.get(task_id)
        far = f", {lease.progress}" if lease is not None and lease.progress is not None else ""
        text = f"It is {state}{far}{_who_has(lease)}."
        if turn.curator.knows(("result", task_id, *_executor(lease))):
            text = f"It is {state}: it has ended, and its files are being checked before its result is accepted."
    elif state in TERMINAL_TASK_STATES:
        text = f"It is {state}, which is final."
    return _line(turn.now_ms, "now", text)


def _who_has(lease: LiveLease | None) -> str:
    """Who has taken an offer that nobody is bound to yet, or has given up a lease; "" when that is nobody."""
    if lease is not None and lease.surrendered is not None:
        return f", but {lease.worker_id} was told to end and has given it up: {lease.parent} is asked why"
    if lease is None or lease.state is not LeaseState.OFFERED or not lease.holder:
        return ""
    if not lease.launched:
        return f": {lease.holder} has taken it, and has not claimed it yet"
    waits = "no executor has claimed it yet; what its launcher says stands in the log of that worker"
    return f": {lease.holder} has taken it to be launched, and {waits}"


def _executor(lease: LiveLease | None) -> tuple[int, str]:
    return (lease.fence, lease.nonce) if lease is not None else (0, "")


def why_waiting(turn: Turn, task: Row, envelope: Envelope) -> str:
    """Why a queued task has not been offered yet, in a few words."""
    not_before_ms = task[7]
    short = "" if envelope.requirements.directed else turn.fleet.lacks_time(envelope.capability, envelope.timeout_ms)
    if short:
        return short  # and it is looked at again and again, which is no delay that anybody has asked for
    if not_before_ms > turn.now_ms:
        return f"it may not start for another {(not_before_ms - turn.now_ms) / 1000:.1f} s"
    if envelope.requirements.directed:
        worker, reasons = scheduler.choose(turn, envelope)
        return reasons if worker is None else f"{worker.worker_id} can take it and will be given it next"
    if envelope.capability not in turn.fleet.capabilities():
        return f"no active worker offers capability {envelope.capability!r}"
    if not scheduler.rooms(turn, envelope.capability):
        return f"every slot for {envelope.capability!r} is taken"
    return "it is next in line"
