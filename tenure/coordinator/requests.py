"""What clients ask: each request is answered by exactly one reply, an error of ours included.

A client repeats what was not answered in time. A step that would do something else the second time, such as approving
the *next* directive of a task, is not taken again: the repeated request gets the reply to the first. Replies are not
kept over a restart: a decision that may be repeated after one is told from the records (`directives`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tenure.broker.base import Stream
from tenure.coordinator import (
    admission,
    adoption,
    campaigns,
    cancellation,
    collection,
    directives,
    event_pages,
    heartbeats,
    inquiries,
    leases,
    mass_cancellation,
    principals,
    registry,
    rights,
    sweeper,
)
from tenure.coordinator.addresses import word_for
from tenure.coordinator.explanation import explain
from tenure.coordinator.journal import Step, person_actor
from tenure.errors import NotAllowed, NotEligible, UnknownTask, UsageError
from tenure.protocol.artifact import Bundle
from tenure.protocol.audit_messages import ReadEvents
from tenure.protocol.campaign_messages import CloseCampaign, CreateCampaign
from tenure.protocol.cancellation_messages import CancelMany
from tenure.protocol.client_messages import (
    Adopt,
    Assign,
    BeatWorker,
    Cancel,
    CollectArtifacts,
    Decide,
    Done,
    DrainWorker,
    Drop,
    Explain,
    Query,
    Refusal,
    RegisterWorker,
    Reply,
    Submit,
    Sweep,
    Watch,
)
from tenure.protocol.envelope import open_envelope
from tenure.protocol.principal_messages import (
    AddCredential,
    ChangeRole,
    GrantSite,
    IssuePerson,
    IssueSite,
    RetireCredentials,
    Revoke,
)
from tenure.protocol.states import TERMINAL_TASK_STATES, TaskState
from tenure.protocol.worker_messages import Failure

if TYPE_CHECKING:
    from tenure.coordinator.turn import Turn
    from tenure.protocol.client_messages import Ask, Request

Rows = list[dict[str, Any]]
_ONCE: Final = (Adopt, Assign, CollectArtifacts, Decide, Drop, RegisterWorker, IssueSite, IssuePerson, Revoke)

_WATCH_BYTES: Final = 8 * 1024 * 1024
"""How much one answer to a watch may carry: thousands of large values would fill the broker."""


def take(turn: Turn, person: str, request: Request) -> None:
    """Do what a request asks and answer it. A request is refused whole, before it has changed anything.

    `person` is whose stream the request came on: from here on, who asks and which client is answered follow from it.
    """
    client, principal = word_for(person, request.client_id), rights.principal_of(person, request)
    request = request.model_copy(update={"client_id": client, "principal": principal})
    turn.actor = person_actor(person, principal)
    asked = (client, request.request_id)
    reply = turn.out.answered.get(asked) or turn.memory.answered.get(asked)
    if reply is None:
        reply = _reply(turn, person, request)
        if isinstance(request.ask, _ONCE):
            turn.out.answered[asked] = reply
    turn.out.reply(client, reply)


def _reply(turn: Turn, person: str, request: Request) -> Reply:
    recorded = len(turn.events)
    try:
        rights.require(turn, person, request.ask)
        if isinstance(request.ask, Cancel):
            rights.require_own(turn, person, _principals(turn, request.ask))
        return _answer(turn, request)
    except UsageError as error:
        del turn.events[recorded:]  # none of it has come about
        _note_refusal(turn, request.ask, error)
        refusal = Refusal(code=error.code, message=error.message, remedy=error.remedy)
        return Reply(request_id=request.request_id, refusal=refusal)


def _note_refusal(turn: Turn, ask: Ask, error: UsageError) -> None:
    """Steps that are refused are on record, once each; of what is merely read, only what is not for everyone."""
    if isinstance(ask, rights.READS) and not isinstance(error, NotAllowed):
        return
    if turn.memory.is_first_refusal(turn.actor.principal, f"{ask.kind} {error.message}"):
        text = f"A request to {ask.kind.replace('_', ' ')} was refused: {error.message}."
        turn.record("request_refused", text, step=Step(reason=error.code))


def _answer(turn: Turn, request: Request) -> Reply:
    match request.ask:
        case Submit() as ask:
            return admission.admit(turn, request, ask)
        case Query() as ask:
            rows, warnings = inquiries.answer(turn, ask)
            return Reply(request_id=request.request_id, rows=rows, warnings=warnings)
        case ask:
            rows, warnings = inquiries.fit(_rows(turn, request, ask))
            return Reply(request_id=request.request_id, rows=rows, warnings=warnings)


def _rows(turn: Turn, request: Request, ask: object) -> Rows:
    match ask:
        case Watch() | Cancel() | CancelMany() | Decide() | Explain():
            return _tasks(turn, request, ask)
        case Adopt() | Drop() | CollectArtifacts():
            return _files(turn, request.principal, ask)
        case (
            IssueSite() | IssuePerson() | GrantSite() | ChangeRole() | AddCredential() | RetireCredentials() | Revoke()
        ):
            return principals.take(turn, ask, request.principal)
        case ReadEvents():
            return event_pages.read(turn, ask)
        case CreateCampaign() | CloseCampaign():
            return campaigns.take(turn, ask, request.principal)
        case _:
            return _fleet(turn, ask)


def _tasks(turn: Turn, request: Request, ask: Watch | Cancel | CancelMany | Decide | Explain) -> Rows:
    match ask:
        case Watch():
            return _watch(turn, request.client_id, ask.task_ids)
        case Cancel():
            return _cancel(turn, request.principal, ask)
        case CancelMany():
            return mass_cancellation.begin(turn, request, ask)
        case Decide():
            return _decide(turn, request.principal, ask)
        case Explain():
            return explain(turn, ask.task_id)


def _files(turn: Turn, principal: str, ask: Adopt | Drop | CollectArtifacts) -> Rows:
    match ask:
        case Adopt():
            return adoption.adopt(turn, ask, principal)
        case Drop():
            return adoption.drop(turn, ask, principal)
        case CollectArtifacts():
            return collection.ask(turn, ask, principal)


def _fleet(turn: Turn, ask: object) -> Rows:
    match ask:
        case Assign():
            return _assign(turn, ask)
        case Sweep():
            return [{"expired": sweeper.sweep(turn)}]
        case RegisterWorker():
            registry.register_by_hand(turn, ask)
        case BeatWorker():
            heartbeats.renew_by_hand(turn, registry.require(turn, ask.worker_id))
        case DrainWorker():
            registry.drain(turn, ask.worker_id)
        case _:
            return []
    worker = turn.fleet.get(ask.worker_id)
    return [{"worker_id": ask.worker_id, "state": str(worker.state) if worker else "OFFLINE"}]


def _watch(turn: Turn, client_id: str, task_ids: tuple[str, ...]) -> Rows:
    """Tell what is over, up to a size; a client asks again for those that it is not told of."""
    told_bytes = 0
    for task_id in task_ids:
        row = turn.store.row("task_end", (task_id,))
        if row is None:
            raise UnknownTask(f"there is no task {task_id}", "See `tenure tasks list`")
        state = TaskState(row[1])
        over = state in TERMINAL_TASK_STATES or state is TaskState.LOST
        if over and told_bytes < _WATCH_BYTES:
            told_bytes += len(row[4] or "") + len(row[5] or "")
            failure = Failure.model_validate_json(row[5]) if row[5] is not None else None
            done = Done(
                task_id=task_id,
                state=state,
                attempt=row[2],
                fence=row[3],
                value=row[4],
                failure=failure,
                outputs=Bundle.model_validate_json(row[6]) if row[6] is not None else None,
                detail=row[7] or "",
            )
            turn.out.done.setdefault(client_id, []).append(done)
        if state not in TERMINAL_TASK_STATES:
            turn.memory.watchers.add(task_id, client_id)
    return []


def _principals(turn: Turn, ask: Cancel) -> set[str]:
    """Whose tasks would be cancelled."""
    rows = (turn.store.row("principal_of_task", (task_id,)) for task_id in ask.task_ids)
    return {str(row[0]) for row in rows if row is not None}


def _cancel(turn: Turn, principal: str, ask: Cancel) -> Rows:
    unknown = [task_id for task_id in ask.task_ids if turn.store.row("task", (task_id,)) is None]
    if unknown:
        raise UnknownTask(f"there is no task {unknown[0]}", "Nothing was cancelled; see `tenure tasks list`")
    return [
        {"task_id": task_id, "state": str(cancellation.cancel(turn, task_id, principal, ask.reason))}
        for task_id in ask.task_ids
    ]


def _decide(turn: Turn, principal: str, ask: Decide) -> Rows:
    rows: Rows = []
    for wanted in ask.directives:
        try:
            decided = directives.decide(turn, wanted, approve=ask.approve, by=principal or "somebody", note=ask.note)
            rows.append({"directive_id": decided, "state": "APPROVED" if ask.approve else "DENIED"})
        except UsageError as error:
            if len(ask.directives) == 1:
                raise
            rows.append({"directive_id": wanted, "state": "REFUSED", "error": str(error)})
    return rows


def _assign(turn: Turn, ask: Assign) -> Rows:
    worker = registry.require(turn, ask.worker_id)
    task = turn.store.row("task", (ask.task_id,))
    if task is None:
        raise UnknownTask(f"there is no task {ask.task_id}", "See `tenure tasks list`")
    if task[1] != TaskState.QUEUED:
        raise NotEligible(f"task {ask.task_id} is {task[1]}, not QUEUED", "See `tenure explain`")
    if mass_cancellation.is_covered(turn, ask.task_id):
        raise NotEligible(f"task {ask.task_id} is about to be cancelled", "See `tenure explain`")
    envelope = open_envelope(task[3])
    reason = worker.why_not(envelope.capability, envelope.requirements, envelope.timeout_ms)
    if not reason and worker.site in turn.memory.sites.full(turn.leases.of_sites):
        reason = f"site {worker.site} holds as many leases as it may"
    if reason:
        raise NotEligible(f"task {ask.task_id} cannot be given to {ask.worker_id}: {reason}", "Choose another worker")
    leases.offer(
        turn, [((task[0], task[2], task[3], task[6], task[5]), envelope, Stream(worker.site, "", worker.worker_id))]
    )
    lease = turn.leases.get(ask.task_id)
    if lease is None:
        raise NotEligible(f"task {ask.task_id} waits for its newest checkpoint to be stored", "Ask again in a moment")
    return [{"task_id": ask.task_id, "worker_id": ask.worker_id, "attempt": lease.attempt, "fence": lease.fence}]
