"""Leases: who has the right to run one attempt, since when, and until when.

**Authority.** A lease is a row in the store, bound to exactly (task, digest, worker, attempt, fence, nonce). Nothing
else gives the right to run: not an entry in a stream, not a heartbeat, not what a worker says. The partial unique index
`lease_one_live` allows one OFFERED or ACTIVE lease per task; triggers allow only the steps of the state table, only a
growing fence, only one binding, and a second attempt only after an approved directive.

**Identity of a term.** The fence names the assignment; the nonce, drawn by the executor at its claim, names one
executor of it. A second executor of the same assignment (a copy of the entry, a second pod) carries another nonce and
is refused. Fences come from one counter per database, so they also grow across restarts.

**Trust window.** The worker may run until `ttl` after its last taken renewal, counted from *before* that renewal was
sent. The coordinator expires the lease `ttl + grace + margin` after it last *saw* a sign of life, which is later. Each
side uses its own clock that only grows; the two are never compared. While the broker cannot be read, or after it has
lost data, or when this process itself was stopped, nothing expires: every live lease is given a full term first.

**Failure handling.** An expired lease is an infrastructure event: the task becomes LOST and a directive says what
follows. A lease that provably never started (given back unstarted, or withdrawn before anyone was given it) is
RELEASED and the same attempt is offered again under a new fence. A result that arrives under any lease that is not
ACTIVE is rejected and kept as evidence.

Sources: Gray and Cheriton, "Leases" (SOSP 1989); fencing tokens as in Burrows, "The Chubby lock service" (OSDI 2006).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.broker.base import EntryId, Publication, Stream
from tenure.coordinator import logs, promotion
from tenure.coordinator.journal import Step
from tenure.coordinator.live import LiveLease, LiveLeases, Surrender
from tenure.protocol.assignment import Assignment, Ticket
from tenure.protocol.envelope import open_envelope
from tenure.protocol.states import LeaseState, TaskState
from tenure.protocol.worker_messages import Binding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.coordinator.store.database import Database, Row
    from tenure.coordinator.turn import Turn
    from tenure.protocol.envelope import Envelope

Candidate = tuple["Row", "Envelope", Stream]
"""A ready task's row (id, digest, envelope bytes, next attempt, run), its envelope, and the stream that it goes to."""


def offer(turn: Turn, candidates: Sequence[Candidate]) -> None:
    """Write an OFFERED lease for each candidate under a new fence, and publish its assignment after the commit.

    A further attempt whose checkpoint is still on its way into the store is offered a moment later.
    """
    candidates = [each for each in candidates if not promotion.must_wait(turn, each[0][0], each[0][3])]
    if not candidates:
        return
    counters = turn.store.row("take_fences", (len(candidates), len(candidates)))
    if counters is None:
        return
    first_fence, first_outbox = counters[0] - len(candidates) + 1, counters[1] - len(candidates) + 1
    rows: list[tuple[object, ...]] = []
    for index, ((task_id, digest, raw, attempt, run), envelope, stream) in enumerate(candidates):
        lease = LiveLease(
            task_id=task_id,
            fence=first_fence + index,
            attempt=attempt,
            digest=digest,
            run=run,
            state=LeaseState.OFFERED,
            start=envelope.start,
            ttl_ms=envelope.lease_ttl_ms,
            site=stream.site,
            capability=envelope.capability,
            directed_to=stream.worker_id,
            entry_id=EntryId(turn.out.epoch, first_outbox + index),
            renewed_ms=turn.elapsed_ms,
            needs=envelope.requirements if envelope.requirements.directed else None,
        )
        rows.append(_row(lease, turn.now_ms))
        _note_offer(turn, lease)
        turn.leases.add(lease)
        _reserve(turn, lease, 1)
        _say_where_it_starts(turn, lease)
        turn.out.publications.append(_publication(turn, lease, raw, exclusive=envelope.exclusive))
    turn.store.run_many("insert_lease", rows)
    turn.store.run_many("task_offered", [(row[0],) for row in rows])


def _note_offer(turn: Turn, lease: LiveLease) -> None:
    text = f"Attempt {lease.attempt} was offered under fence {lease.fence}."
    step = Step(TaskState.QUEUED, TaskState.OFFERED, site=lease.site)
    turn.record("offered", text, task_id=lease.task_id, worker_id=lease.directed_to or None, step=step)


def publish_again(turn: Turn, lease: LiveLease, raw: bytes) -> None:
    """Publish an offer once more under its fence, as a new entry; the bind makes a second copy harmless."""
    counter = turn.store.row("take_outbox", (1,))
    if counter is None:
        return
    lease.entry_id, lease.holder = EntryId(turn.out.epoch, counter[0]), ""
    turn.store.run("republished_lease", (turn.out.epoch, counter[0], lease.task_id, lease.fence))
    publish(turn, lease, raw)


def publish(turn: Turn, lease: LiveLease, raw: bytes) -> None:
    """Publish an offer under the entry id that it has; the broker refuses it if it is there already."""
    turn.out.publications.append(_publication(turn, lease, raw, exclusive=open_envelope(raw).exclusive))


def bind(turn: Turn, lease: LiveLease, binding: Binding, worker_id: str, *, after_beat: int | None = None) -> bool:
    """OFFERED to ACTIVE for this worker and nonce; False when the store would not have it.

    Heartbeats after `after_beat` must list it; only a claim says which that is.
    """
    worker = turn.fleet.get(worker_id)
    generation = worker.generation if worker else 0
    changed = turn.store.run(
        "bind_lease",
        (
            worker_id,
            worker.executor_of if worker else "",
            generation,
            binding.nonce,
            after_beat,
            turn.now_ms,
            binding.task_id,
            binding.fence,
            binding.attempt,
            binding.digest,
            worker.site if worker else lease.site,
        ),
    )
    if changed != 1:
        return False
    turn.store.run("task_running", (binding.task_id,))
    text = f"The lease on attempt {binding.attempt} (fence {binding.fence}) was bound to nonce {binding.nonce}."
    step = Step(TaskState.OFFERED, TaskState.RUNNING, site=lease.site)
    turn.record("bound", text, task_id=binding.task_id, worker_id=worker_id or None, step=step)
    note_bound(turn, lease, worker_id, binding.nonce, after_beat)
    return True


def presume_bound(turn: Turn, lease: LiveLease) -> bool:
    """OFFERED to ACTIVE for whoever may be running it unheard, under no nonce, so that nobody can complete it.

    When it is not even known who that is, it is bound to the worker "", which is nobody's id.
    """
    binding = Binding.model_construct(
        task_id=lease.task_id, attempt=lease.attempt, fence=lease.fence, digest=lease.digest, nonce=""
    )
    return bind(turn, lease, binding, lease.holder or lease.directed_to, after_beat=0)


def note_bound(turn: Turn, lease: LiveLease, worker_id: str, nonce: str, after_beat: int | None) -> None:
    """Keep in memory that a lease has been bound; the bind itself is a renewal."""
    worker = turn.fleet.get(worker_id)
    turn.leases.bound(lease, worker_id)
    lease.nonce, lease.after_beat = nonce, after_beat
    lease.generation = worker.generation if worker else 0
    lease.parent = worker.executor_of if worker else ""
    lease.renewed_ms, lease.doubted_ms, lease.holder = turn.elapsed_ms, -1, ""
    lease.bound_ms = turn.elapsed_ms
    for each in map(turn.fleet.get, lease.charged - {lease.directed_to}):
        if each is not None:
            each.bound += 1


def end(turn: Turn, lease: LiveLease, state: LeaseState, cause: str, ended_at_ms: int | None = None) -> None:
    """A live lease to EXPIRED or RELEASED, now or as of then, and its entry taken off the stream."""
    at_ms = turn.now_ms if ended_at_ms is None else ended_at_ms
    turn.store.run("end_lease", (state, cause, at_ms, lease.task_id, lease.fence, lease.state))
    text = f"The lease on attempt {lease.attempt} (fence {lease.fence}) is over."
    step = Step(lease.state, state, reason=cause, site=lease.site)
    turn.record("lease_over", text, task_id=lease.task_id, worker_id=lease.worker_id or None, step=step)
    forget(turn, lease)


def forget(turn: Turn, lease: LiveLease) -> None:
    """Drop an ended lease from memory, give back its room and resources, and withdraw its entry after the commit."""
    turn.leases.remove(lease)
    logs.note_end(turn, lease)
    for worker in map(turn.fleet.get, lease.charged):
        if worker is not None:
            worker.bound -= 1
            turn.memory.directed_ready = True  # its room may be what a directed task waits for, whoever had it
    _reserve(turn, lease, -1)
    turn.out.withdrawals.append(lease.entry)


def load(store: Database, elapsed_ms: int) -> LiveLeases:
    """The live leases as the store has them, each with a full term from now."""
    leases = LiveLeases()
    for row in store.rows("live_leases"):
        envelope = open_envelope(row[16])
        leases.add(
            LiveLease(
                task_id=row[0],
                fence=row[1],
                attempt=row[2],
                digest=row[3],
                state=LeaseState(row[4]),
                start=row[5],
                ttl_ms=row[6],
                capability=row[7],
                directed_to=row[8],
                entry_id=EntryId(row[9], row[10]),
                worker_id=row[11] or "",
                generation=row[12] or 0,
                nonce=row[13] or "",
                after_beat=row[14],
                run=row[15],
                renewed_ms=elapsed_ms,
                stopping=row[17] == TaskState.CANCELLING,
                doubted_ms=elapsed_ms if row[18] else -1,
                parent=row[19],
                site=row[20],
                seconded=bool(row[21]),
                unproved=bool(row[22]),
                surrendered=Surrender.kept(row[23], row[24], elapsed_ms),
                needs=envelope.requirements if envelope.requirements.directed else None,
            )
        )
    return leases


def _say_where_it_starts(turn: Turn, lease: LiveLease) -> None:
    checkpoint = promotion.starting_point(turn, lease.task_id, lease.attempt)
    if checkpoint is not None:
        text = f"Attempt {lease.attempt} starts from checkpoint {checkpoint.name} of attempt {checkpoint.attempt}."
        turn.record("from_checkpoint", text, task_id=lease.task_id, step=Step(site=lease.site))


def _row(lease: LiveLease, now_ms: int) -> tuple[object, ...]:
    return (
        lease.task_id,
        lease.fence,
        lease.attempt,
        lease.digest,
        lease.start,
        lease.ttl_ms,
        lease.capability,
        lease.directed_to,
        lease.entry_id.major,
        lease.entry_id.minor,
        now_ms,
        lease.site,
    )


def _reserve(turn: Turn, lease: LiveLease, sign: int) -> None:
    worker = turn.fleet.get(lease.directed_to)
    if worker is None:
        return
    if sign > 0:
        worker.bound += 1
    if lease.needs is not None:
        worker.reserve(lease.needs, sign)


def _publication(turn: Turn, lease: LiveLease, raw: bytes, *, exclusive: bool) -> Publication:
    ticket = Ticket(
        task_id=lease.task_id,
        attempt=lease.attempt,
        fence=lease.fence,
        digest=lease.digest,
        epoch=turn.out.epoch,
        start=lease.start,
        exclusive=exclusive,
        ttl_ms=lease.ttl_ms,
        checkpoint=promotion.starting_point(turn, lease.task_id, lease.attempt),
    )
    return Publication(entry_id=lease.entry_id, assignment=Assignment(ticket=ticket, envelope=raw), stream=lease.stream)
