"""Cancel many tasks on one request: kept in the database, and carried out a portion per turn.

**What it covers** is what was submitted before it and fits its conditions. From the turn in which it is taken on,
none of that is offered to anyone (`spared` stands before every offer), so a task leaves the queue only by being
cancelled.

**Why one pass is enough.** The stages follow the way that a task goes: OFFERED, RUNNING, LOST, QUEUED. What is covered
can move on to a later stage while an earlier one is gone through, and it can never come back: only an offer leads out
of the queue, and what is CANCELLING never returns to it. So when the queue has been gone through, everything that is
covered has ended or is told to stop, and the request is DONE. Where it has come to is committed with what was done, so
the next coordinator goes on from there.

What runs is stopped as by `cancellation.cancel`: CANCELLED is said when the end is proved.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, final

from tenure.coordinator import campaigns, cancellation, rights
from tenure.coordinator.addresses import address_of
from tenure.coordinator.journal import Actor, Step
from tenure.protocol.principal_messages import Role
from tenure.protocol.states import CancellationState, TaskState

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from tenure.coordinator.leases import Candidate
    from tenure.coordinator.store.database import Database
    from tenure.coordinator.turn import Turn
    from tenure.protocol.cancellation_messages import CancelMany
    from tenure.protocol.client_messages import Request

STAGES: Final = (TaskState.OFFERED, TaskState.RUNNING, TaskState.LOST, TaskState.QUEUED)

_LIVE_SHARE: Final = 5
"""By how much the portion is smaller where each task has a lease or a directive to end."""

_MOST_STEPS: Final = 100
"""How many capabilities without any such task one turn steps over."""


@final
@dataclass(slots=True)
class MassCancellation:
    """One request that is under way. A condition that is None was not made."""

    cancellation_id: int
    run: str | None
    campaign: str | None
    capability: str | None
    principal: str | None
    """Only tasks of this person: the one who asks, unless that is an operator."""
    last_position: int
    stage: TaskState
    at_capability: str
    """Up to where the stage has been gone through; "" before the first capability."""
    at_position: int
    asked_by: str
    actor: str
    reason: str

    @property
    def because(self) -> str:
        """The reason in brackets, when there is one."""
        return f" ({self.reason})" if self.reason else ""

    def portion(self, until: int) -> dict[str, Any]:
        """What the statements that pick out a portion want to know."""
        return asdict(self) | {"after": self.at_position, "until": until}


def begin(turn: Turn, request: Request, ask: CancelMany) -> list[dict[str, Any]]:
    """Take a request on; answers the record of it. The same request again is the same record.

    Raises:
        UnknownCampaign: there is none of the name. Runs and capabilities are on no record, so that any word may be one.
    """
    if ask.campaign is not None:
        campaigns.require(turn, ask.campaign)
    person = address_of(request.client_id).person
    only_of = None if rights.role_of(turn, person) is Role.OPERATOR else person
    name = f"{request.client_id} {request.request_id}"
    given = {
        "request": name,
        "run": ask.run,
        "campaign": ask.campaign,
        "capability": ask.capability,
        "principal": only_of,
        "stage": STAGES[0],
        "asked_by": request.principal,
        "actor": turn.actor.principal,
        "reason": ask.reason,
        "now_ms": turn.now_ms,
    }
    is_new = turn.store.run("add_cancellation", given) == 1
    ((cancellation_id,),) = turn.store.rows("cancellation_of_request", (name,))
    if is_new:
        turn.memory.cancellations = load(turn.store)
        text = f"{request.principal or 'Somebody'} asked to cancel {_words(ask, only_of)}."
        turn.record("cancel_many_asked", text, step=Step(after=CancellationState.OPEN, reason=ask.reason))
    return turn.store.records(
        "list_cancellations", {"cancellation_id": str(cancellation_id), "state": None, "limit": 1}
    )


def load(store: Database) -> list[MassCancellation]:
    """The requests that are under way, in order."""
    return [_read(row) for row in store.records("open_cancellations")]


def go_on(turn: Turn, portion: int) -> None:
    """Carry out one portion, of that many queued tasks at most, of the oldest request that is under way."""
    if not turn.memory.cancellations:
        return
    order = turn.memory.cancellations[0]
    cancelled = stopping = 0
    with _acting_for(turn, order):
        for _ in range(_MOST_STEPS):
            until = _portion_end(turn, order, portion)
            if until is not None:
                cancelled, stopping = _cancel_portion(turn, order, until)
                order.at_position = until
                break
            if not _step(turn, order):
                _write_down(turn, order, 0, 0)
                _end(turn, order)
                return
    _write_down(turn, order, cancelled, stopping)


def spared(turn: Turn, candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates for an offer that nobody wants cancelled; the others are cancelled here and now."""
    if not turn.memory.cancellations:
        return list(candidates)
    free: list[Candidate] = []
    for candidate in candidates:
        task_id = candidate[0][0]
        order = _covering(turn, task_id)
        if order is None:
            free.append(candidate)
            continue
        with _acting_for(turn, order):
            state = cancellation.cancel(turn, task_id, order.asked_by, order.reason)
        _write_down(turn, order, *_counts([state]))
    return free


def is_covered(turn: Turn, task_id: str) -> bool:
    """Whether a request under way is about to cancel a task."""
    return bool(turn.memory.cancellations) and _covering(turn, task_id) is not None


def _read(row: dict[str, Any]) -> MassCancellation:
    stage = TaskState(row.pop("stage"))
    return MassCancellation(stage=stage, **row)


def _covering(turn: Turn, task_id: str) -> MassCancellation | None:
    row = turn.store.row("covering_cancellation", (task_id,))
    found = (each for each in turn.memory.cancellations if row is not None and each.cancellation_id == row[0])
    return next(found, None)


def _portion_end(turn: Turn, order: MassCancellation, portion: int) -> int | None:
    """The last position of the next portion; None when this stage and capability are gone through."""
    limit = portion if order.stage is TaskState.QUEUED else max(1, portion // _LIVE_SHARE)
    key = (order.stage, order.at_capability, order.at_position, order.last_position, limit)
    row = turn.store.row("end_of_portion", key)
    return row[0] if row is not None else None


def _step(turn: Turn, order: MassCancellation) -> bool:
    """To the next capability, or to the next stage; False when there is none."""
    order.at_position = 0
    if order.capability is None:
        row = turn.store.row("next_open_capability", (order.stage, order.at_capability))
        following = row[0] if row is not None else None
    else:
        following = order.capability if order.at_capability < order.capability else None
    if following is not None:
        order.at_capability = following
        return True
    if order.stage is STAGES[-1]:
        return False
    order.stage, order.at_capability = STAGES[STAGES.index(order.stage) + 1], ""
    return True


def _cancel_portion(turn: Turn, order: MassCancellation, until: int) -> tuple[int, int]:
    """How many were cancelled, and how many are being stopped."""
    if order.stage is TaskState.QUEUED:
        return _cancel_queued(turn, order, until)
    return _counts(_cancel_each(turn, order, until))


def _cancel_each(turn: Turn, order: MassCancellation, until: int) -> list[TaskState]:
    return [
        cancellation.cancel(turn, task_id, order.asked_by, order.reason)
        for (task_id,) in turn.store.rows("covered_portion", order.portion(until))
    ]


def _counts(ends: Sequence[TaskState]) -> tuple[int, int]:
    return ends.count(TaskState.CANCELLED), ends.count(TaskState.CANCELLING)


def _cancel_queued(turn: Turn, order: MassCancellation, until: int) -> tuple[int, int]:
    """In one statement all but those that a revoked site may still be running, which are looked at one by one."""
    rows = turn.store.rows("cancel_queued", order.portion(until) | {"now_ms": turn.now_ms})
    who = f"{order.asked_by or 'Somebody'} cancelled it{order.because}"
    turn.memory.directed_ready, turn.memory.directed_passed = True, 0  # places in that queue have changed
    for task_id, watcher, attempt, newest in rows:
        proof = cancellation.proof_of_rest(attempt, newest)
        cancellation.note_unoffered(turn, task_id, watcher, who, proof)
    cancelled, stopping = _counts(_cancel_each(turn, order, until))
    return len(rows) + cancelled, stopping


def _write_down(turn: Turn, order: MassCancellation, cancelled: int, stopping: int) -> None:
    place = (order.stage, order.at_capability, order.at_position)
    turn.store.run("cancellation_went_on", (*place, cancelled, stopping, order.cancellation_id))


def _end(turn: Turn, order: MassCancellation) -> None:
    turn.store.run("cancellation_done", (turn.now_ms, order.cancellation_id))
    turn.memory.cancellations.remove(order)
    counts = turn.store.records(
        "list_cancellations", {"cancellation_id": str(order.cancellation_id), "state": None, "limit": 1}
    )[0]
    cancelled, stopping = counts["cancelled"], counts["stopping"]
    text = (
        f"What {order.asked_by or 'somebody'} asked to cancel was gone through: "
        f"{'1 task was' if cancelled == 1 else f'{cancelled} tasks were'} cancelled, "
        f"{stopping} {'is' if stopping == 1 else 'are'} told to stop."
    )
    step = Step(CancellationState.OPEN, CancellationState.DONE, order.reason)
    with _acting_for(turn, order):
        turn.record("cancel_many_done", text, step=step)


@contextmanager
def _acting_for(turn: Turn, order: MassCancellation) -> Generator[None]:
    """What is recorded meanwhile was decided by who has asked, however long ago."""
    before, turn.actor = turn.actor, Actor(order.actor)
    yield
    turn.actor = before


def _words(ask: CancelMany, principal: str | None) -> str:
    said = (("run", ask.run), ("campaign", ask.campaign), ("capability", ask.capability))
    named = [f"{name} {value}" for name, value in said if value is not None]
    whose = f" of {principal}" if principal else ""
    return f"all tasks{whose}" + (f" of {' and '.join(named)}" if named else "")
