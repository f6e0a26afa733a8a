"""What a person may do with a rejected result: adopt it after all, or drop it. Evidence itself is never changed.

A result is adopted only if it was rejected for no other reason than that its lease was over, and while nobody else runs
the task or has completed it since. Its files are read again first; then one transaction gives it a fence of its own, as
if it had been the last attempt. Whoever wants it is on record, by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from tenure.artifacts.jobs import StagingPlace
from tenure.broker.base import WorkerAddress
from tenure.clock import sortable_id
from tenure.coordinator import acceptance, directives, promotion
from tenure.coordinator.errands import AdoptionCheck, Artifact, place_of
from tenure.coordinator.journal import COORDINATOR, RETENTION_POLICY, Actor, Step
from tenure.errors import NotAdoptable
from tenure.protocol.artifact import Bundle
from tenure.protocol.client_messages import Done
from tenure.protocol.control_messages import Reason
from tenure.protocol.states import LeaseState, TaskState
from tenure.protocol.worker_messages import Finished

if TYPE_CHECKING:
    from tenure.artifacts.jobs import Ended
    from tenure.coordinator.store.database import Row
    from tenure.coordinator.turn import Turn
    from tenure.protocol.client_messages import Adopt, Drop

Rows = list[dict[str, Any]]

_RETENTION: Final = "policy: the retention time of quarantined files"
_PORTION: Final = 100
_SEE: Final = "See `tenure quarantine list`"
_TOO_LATE: Final = frozenset({Reason.LEASE_EXPIRED, Reason.LEASE_RELEASED, Reason.STALE_FENCE})
_NEVER: Final = frozenset({Reason.WRONG_SITE, Reason.SITE_REVOKED})
"""Whoever speaks for another site, or was thrown out, is not believed later either."""
_DECIDED: Final = {"adopt": "adopted", "drop": "dropped", "expire": "kept for its time and then discarded"}


@final
@dataclass(frozen=True, slots=True)
class Evidence:
    """One rejected result."""

    quarantine_id: str
    site: str
    worker_id: str
    reason: str
    report: Finished

    @property
    def place(self) -> StagingPlace:
        """Where its files lie."""
        binding = self.report.binding
        return place_of(self.site, binding)


def adopt(turn: Turn, ask: Adopt, by: str) -> Rows:
    """Adopt a result at once when it has no files; else have them read first, and answer that this is under way.

    Raises:
        NotAdoptable: it cannot be adopted, with the reason.
    """
    if not by:
        raise NotAdoptable("an adoption is recorded with the name of who decides it", "Say who you are")
    evidence = _undecided(turn, ask.quarantine_id)
    _require_adoptable(turn, evidence)
    bundle = evidence.report.outputs
    if bundle is None:
        return [_adopt(turn, evidence, by, ask.note)]
    if not turn.curator.ready:
        raise NotAdoptable("its files cannot be read: the coordinator has no store", "Start it with --artifacts")
    who = turn.actor.principal
    turn.ask_porter(AdoptionCheck(evidence.quarantine_id, evidence.place, bundle, by, ask.note, who))
    return [{"quarantine_id": evidence.quarantine_id, "state": "VERIFYING", "files": bundle.files, "size": bundle.size}]


def checked(turn: Turn, errand: AdoptionCheck, end: Ended) -> None:
    """The porter has read the files of a result that is to be adopted, or could not; whoever wanted it decides now."""
    turn.actor = Actor(errand.principal)
    _conclude(turn, errand, end)
    turn.actor = COORDINATOR


def _conclude(turn: Turn, errand: AdoptionCheck, end: Ended) -> None:
    try:
        evidence = _undecided(turn, errand.quarantine_id)
        _require_readable(end)
        _require_adoptable(turn, evidence)
    except NotAdoptable as refusal:
        _decide(turn, (errand.quarantine_id, errand.place.task_id), "refuse", errand.by, refusal.message)
        text = f"{errand.by} wanted to adopt result {errand.quarantine_id} from quarantine: {refusal.message}."
        turn.record("adoption_refused", text, task_id=errand.place.task_id, step=Step(reason=refusal.code))
        return
    _adopt(turn, evidence, errand.by, errand.note)


def drop(turn: Turn, ask: Drop, by: str) -> Rows:
    """Record that a result is not wanted, and discard its files. Raises `NotAdoptable` when it was decided before."""
    evidence = _undecided(turn, ask.quarantine_id)
    binding, by = evidence.report.binding, by or "somebody"
    _decide(turn, (evidence.quarantine_id, binding.task_id), "drop", by, ask.note)
    because = f" ({ask.note})" if ask.note else ""
    text = f"{by} dropped result {evidence.quarantine_id} of attempt {binding.attempt}{because}."
    step = Step("UNDECIDED", "DROPPED", reason=ask.note, site=evidence.site)
    turn.record("quarantine_dropped", text, task_id=binding.task_id, step=step)
    if evidence.report.outputs is not None:
        promotion.discard(turn, evidence.place)
    return [{"quarantine_id": evidence.quarantine_id, "state": "DROPPED"}]


def expire(turn: Turn, retention_ms: int) -> None:
    """Discard the files of results that nobody has decided about for the retention time; the records stay."""
    for quarantine_id, site, task_id, fence, nonce in turn.store.rows(
        "quarantine_past_retention", (turn.now_ms - retention_ms, _PORTION)
    ):
        if turn.curator.knows(("adoption", quarantine_id)):
            continue
        _decide(turn, (quarantine_id, task_id), "expire", _RETENTION, "")
        text = f"The files of result {quarantine_id} in quarantine were kept for their time and are discarded."
        step = Step("UNDECIDED", "EXPIRED", principal=RETENTION_POLICY)
        turn.record("quarantine_expired", text, task_id=task_id, step=step)
        promotion.discard(turn, StagingPlace(site=site, task_id=task_id, fence=fence, nonce=nonce))


def _undecided(turn: Turn, quarantine_id: str) -> Evidence:
    row = turn.store.row("quarantined", (quarantine_id,))
    if row is None:
        raise NotAdoptable(f"there is no result {quarantine_id} in quarantine", _SEE)
    if row[10] is not None:
        raise NotAdoptable(f"result {quarantine_id} was {_DECIDED[row[10]]} already, by {row[11]}", _SEE)
    return Evidence(row[0], row[4], row[5], row[7], Finished.model_validate_json(row[8]))


def _require_readable(end: Ended) -> None:
    if end.problem is not None:
        raise NotAdoptable(f"its files could not be read: {end.problem.message}", _SEE)


def _require_adoptable(turn: Turn, evidence: Evidence) -> None:
    """Raise `NotAdoptable` unless its lease was over and nothing newer is live or completed."""
    report = evidence.report
    binding = report.binding
    if report.outcome.failure is not None:
        raise NotAdoptable(f"it is a failure ({report.outcome.failure.kind}), not a result", "Drop it")
    who = WorkerAddress(evidence.site, evidence.worker_id)
    reason = acceptance.why_not(turn, who, binding, (report.scope.world, report.scope.run))
    if reason not in _TOO_LATE or evidence.reason in _NEVER:
        why = evidence.reason if evidence.reason in _NEVER else (reason or "an accepted report of its lease")
        raise NotAdoptable(f"it is not merely late: {why}", "Drop it")
    task = turn.store.row("task", (binding.task_id,))
    if task is None:
        raise NotAdoptable(f"there is no task {binding.task_id}", "Drop it")
    lease = turn.leases.get(binding.task_id)
    if lease is not None:
        text = f"attempt {lease.attempt} is {lease.state} under fence {lease.fence}"
        raise NotAdoptable(text, "Wait for its end, or cancel it and let the task be")
    _require_waiting(turn, task, binding.attempt)
    _require_newest(turn, binding.task_id, binding.fence)


def _require_waiting(turn: Turn, task: Row, attempt: int) -> None:
    state = TaskState(task[1])
    if state is TaskState.LOST or (state is TaskState.QUEUED and task[6] > attempt):
        return
    done = turn.store.row("adoption_of_task", (task[0],))
    if done is not None:
        raise NotAdoptable(f"another result of the task was adopted by {done[2]} ({done[0]})", "Drop it")
    raise NotAdoptable(f"the task is {state}", "Only while it is LOST, or waits for its next attempt")


def _require_newest(turn: Turn, task_id: str, fence: int) -> None:
    for lease in turn.store.rows("story_leases", (task_id,)):
        if lease[2] == LeaseState.COMPLETED and lease[0] >= fence:
            raise NotAdoptable(f"attempt {lease[1]} under fence {lease[0]} was completed after it", "Drop it")


def _adopt(turn: Turn, evidence: Evidence, by: str, note: str) -> dict[str, Any]:
    """One transaction's worth: the question is answered, a new fence, the decision, the end of the task, the result."""
    report, binding = evidence.report, evidence.report.binding
    task_id = binding.task_id
    directives.deny(turn, task_id, by, f"result {evidence.quarantine_id} is adopted instead")
    counters = turn.store.row("take_fences", (1, 0))
    fence = int(counters[0]) if counters is not None else 0
    _decide(turn, (evidence.quarantine_id, task_id), "adopt", by, note, fence)
    turn.store.run("task_adopted", (turn.now_ms, task_id))
    acceptance.insert_result(turn, report, evidence.worker_id, fence, report.outputs)
    if report.outputs is not None:
        _promote(turn, evidence, fence, report.outputs)
    because = f" ({note})" if note else ""
    text = (
        f"{by} adopted the result of attempt {binding.attempt} (fence {binding.fence}) from quarantine, "
        f"under the new fence {fence}{because}."
    )
    step = Step("UNDECIDED", "ADOPTED", reason=note, site=evidence.site)
    turn.record("adopted", text, task_id=task_id, worker_id=evidence.worker_id, step=step)
    done = Done(
        task_id=task_id,
        state=TaskState.SUCCEEDED,
        attempt=binding.attempt,
        fence=fence,
        value=report.outcome.value,
        outputs=report.outputs,
    )
    task = turn.store.row("task", (task_id,))
    turn.tell(task[9] if task is not None else "", done)
    return {"quarantine_id": evidence.quarantine_id, "state": "ADOPTED", "task_id": task_id, "fence": fence}


def _promote(turn: Turn, evidence: Evidence, fence: int, bundle: Bundle) -> None:
    binding = evidence.report.binding
    artifact = Artifact(
        task_id=binding.task_id,
        fence=fence,
        attempt=binding.attempt,
        kind="outputs",
        ordinal=0,
        name="",
        bundle=bundle,
        place=evidence.place,
    )
    promotion.record(turn, artifact)


def _decide(turn: Turn, about: tuple[str, str], action: str, by: str, note: str, fence: int | None = None) -> None:
    decision_id = sortable_id(turn.now_ms, turn.entropy)
    turn.store.run("decide_quarantine", (decision_id, *about, action, fence, by, note, turn.now_ms))
