"""Admission: envelopes become tasks, once per idempotency key, all of a submission or none."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from tenure.clock import sortable_id
from tenure.coordinator import charges
from tenure.coordinator.directives import ready
from tenure.coordinator.fleet import lacks_labels
from tenure.coordinator.journal import Step
from tenure.errors import KeyConflict, UsageError
from tenure.protocol.client_messages import Admitted, Reply
from tenure.protocol.envelope import Envelope, digest, open_envelope
from tenure.protocol.states import TERMINAL_TASK_STATES, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tenure.coordinator.turn import Turn
    from tenure.protocol.client_messages import Request, Submit

Opened = tuple[Envelope, bytes]
_MOST_NEEDS: Final = 16
_SUBMITTED: Final = Step(after=TaskState.QUEUED)


def admit(turn: Turn, request: Request, ask: Submit) -> Reply:
    """Store every item of a submission, or answer with the task that its key named before.

    Raises:
        MalformedMessage, PayloadTooLarge: an envelope cannot be read.
        KeyConflict: a key was used before with other bytes.
        UsageError: an envelope is for another world.
        OutsideCampaign, OverBudget: the campaign does not allow it; see `charges`.
    """
    opened = [_open(turn, item.envelope) for item in ask.items]
    admitted: list[Admitted] = []
    rows: list[tuple[object, ...]] = []
    fresh_keys: dict[str, tuple[str, str]] = {}
    fresh: list[charges.Fresh] = []
    for item, (envelope, raw) in zip(ask.items, opened, strict=True):
        sha = digest(raw)
        known = turn.store.row("task_by_key", (item.key,)) or _within(fresh_keys, item.key)
        if known is not None:
            admitted.append(_known(turn, request, ask, item.key, sha, known))
            continue
        task_id = sortable_id(turn.now_ms, turn.entropy)
        fresh_keys[item.key] = (task_id, sha)
        fresh.append((task_id, envelope))
        rows.append(_row(turn, request, ask, (task_id, item.key, sha), envelope, raw))
        admitted.append(Admitted(task_id=task_id, state=TaskState.QUEUED, fresh=True))
        ready(turn, envelope.capability, turn.now_ms + envelope.delay_ms)
    reserved = charges.of_submission(turn, ask, request.principal, fresh)
    turn.store.run_many("insert_task", rows)
    if reserved:
        turn.store.run_many("insert_charge", reserved)
    for task_id, sha in fresh_keys.values():
        turn.record("submitted", f"It was submitted; digest {sha}.", task_id=task_id, step=_SUBMITTED)
    capabilities = sorted({envelope.capability for envelope, _ in opened})
    notes = warnings(turn, capabilities) + _lacking(turn, (envelope for envelope, _ in opened))
    return Reply(request_id=request.request_id, admitted=tuple(admitted), warnings=notes)


def warnings(turn: Turn, capabilities: list[str]) -> tuple[str, ...]:
    """One line per capability that no ACTIVE worker offers: the tasks are stored and wait."""
    offered = turn.fleet.capabilities()
    return tuple(
        f"no active worker offers capability {name!r}; its tasks are stored and wait until one does"
        for name in capabilities
        if name not in offered
    )


def _lacking(turn: Turn, envelopes: Iterable[Envelope]) -> tuple[str, ...]:
    """One line per capability and labels that no ACTIVE worker has together; of very many, the first are looked at."""
    asked = dict.fromkeys((each.capability, each.requirements) for each in envelopes if each.requirements.labels)
    found = [
        f"no active worker that offers capability {capability!r} has {missing}; "
        "its tasks are stored and wait until one does"
        for capability, needs in islice(asked, _MOST_NEEDS)
        if (missing := lacks_labels(turn.fleet, capability, needs))
    ]
    return tuple(dict.fromkeys(found))


def _open(turn: Turn, text: str) -> Opened:
    raw = text.encode()
    envelope = open_envelope(raw)
    if envelope.scope.world != turn.world:
        raise UsageError(f"the task is for world {envelope.scope.world}, this is {turn.world}", "Check the namespace")
    return envelope, raw


def _within(fresh: dict[str, tuple[str, str]], key: str) -> tuple[str, str, str] | None:
    return (*fresh[key], TaskState.QUEUED) if key in fresh else None


def _known(turn: Turn, request: Request, ask: Submit, key: str, sha: str, known: tuple[str, str, str]) -> Admitted:
    task_id, stored, state = known
    if stored != sha:
        raise KeyConflict(f"key {key!r} was used before for another envelope (task {task_id})", "Use another key")
    if ask.watch and state not in TERMINAL_TASK_STATES:
        turn.memory.watchers.add(task_id, request.client_id)
    return Admitted(task_id=task_id, state=TaskState(state), fresh=False)


def _row(
    turn: Turn, request: Request, ask: Submit, identity: tuple[str, str, str], envelope: Envelope, raw: bytes
) -> tuple[object, ...]:
    not_before_ms = turn.now_ms + envelope.delay_ms if envelope.delay_ms else 0
    return (
        *identity,
        raw,
        envelope.capability,
        int(envelope.requirements.directed),
        envelope.scope.run,
        envelope.priority,
        not_before_ms,
        request.client_id if ask.watch else "",
        request.principal,
        turn.now_ms,
    )
