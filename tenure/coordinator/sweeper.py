"""The sweep: silent workers, leases that ran out, and offers that nobody claims.

It starts from the leases, never from the broker: TTL keys and pending entries can only extend a lease's life. Silence
is judged as of the moment before the heartbeats were last read: while the broker cannot be read nothing expires, and
when this process is stopped between the reading and the judging, nobody is blamed for that time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from tenure.broker.base import WithdrawOutcome
from tenure.coordinator import directives, executors, leases, registry, scheduler, surrenders
from tenure.protocol.envelope import open_envelope
from tenure.protocol.states import LeaseState, WorkerState
from tenure.protocol.timing import expiry_ms, grace_ms, margin_ms

if TYPE_CHECKING:
    from tenure.broker.base import CoordinatorBroker, Stream
    from tenure.coordinator.fleet import WorkerView
    from tenure.coordinator.live import LiveLease
    from tenure.coordinator.turn import Turn
    from tenure.protocol.envelope import Envelope

_FORGET_MS: Final = 3_600_000


def sweep(turn: Turn) -> int:
    """Mark silent workers STALE and expire leases without a sign of life; how many leases were expired."""
    for worker in turn.fleet:
        silent_ms = turn.memory.heard_until_ms - worker.seen_ms
        if worker.state is WorkerState.ACTIVE and silent_ms > worker.ttl_ms:
            registry.change_state(turn, worker, WorkerState.STALE)
        elif silent_ms > _patience_ms(worker) and worker.bound == 0:
            registry.leave(turn, worker, gone=True)
    surrenders.settle(turn)
    executors.settle(turn)
    _note_holds(turn)
    expired = [lease for lease in turn.leases if _is_over(turn, lease)]
    for lease in expired:
        expire(turn, lease)
    return len(expired)


def _note_holds(turn: Turn) -> None:
    idle = turn.memory.sites.idle
    for lease in turn.leases if idle else ():
        if lease.state is LeaseState.ACTIVE:
            idle.note_hold(lease.site, lease.bound_ms, turn.elapsed_ms)


def _patience_ms(worker: WorkerView) -> int:
    """How long a worker that holds nothing may be silent before it counts as gone; it is welcome back at any time."""
    soon = worker.state is WorkerState.DRAINING or worker.executor_of
    return expiry_ms(worker.ttl_ms) if soon else expiry_ms(worker.ttl_ms) + _FORGET_MS


def expire(turn: Turn, lease: LiveLease) -> None:
    """An ACTIVE lease to EXPIRED: an infrastructure event, never a task failure."""
    silent_ms = turn.memory.heard_until_ms - lease.renewed_ms
    holder = lease.worker_id or lease.holder or "an unknown worker"
    detail = f"{holder} was not heard for {silent_ms / 1000:.1f} s (ttl {lease.ttl_ms / 1000:g} s)"
    cause = "lease_expired"
    if lease.unproved:
        detail = f"{holder} could not prove its end"
    if lease.gone is not None:
        cause, detail = lease.gone.told.cause, f"{detail}, and {executors.story(lease, lease.gone.told)}"
        executors.judge_ended(turn, lease)
    leases.end(turn, lease, LeaseState.EXPIRED, cause)
    directives.after_loss(turn, lease, directives.Loss(cause, detail))


def _is_over(turn: Turn, lease: LiveLease) -> bool:
    return lease.state is LeaseState.ACTIVE and turn.memory.heard_until_ms - lease.renewed_ms > expiry_ms(lease.ttl_ms)


def _has_other_site(turn: Turn, lease: LiveLease, envelope: Envelope) -> bool:
    """Whether what this site lets lie could be given to another one now."""
    if lease.directed_to:
        worker, _ = scheduler.choose(turn, envelope)
        return worker is not None and worker.site != lease.site
    return any(site != lease.site for site in scheduler.rooms(turn, lease.capability))


@final
class UnclaimedOffers:
    """Looks into offers that nobody has claimed for a while.

    It asks the broker, so it is used between transactions: `examine` first, then `settle` inside one.
    """

    def __init__(self, broker: CoordinatorBroker, unclaimed_ms: int) -> None:
        self._broker = broker
        self._unclaimed_ms = unclaimed_ms
        self._pending: dict[Stream, dict[str, str]] = {}
        self._gone: dict[tuple[str, int], WithdrawOutcome] = {}

    def examine(self, offers: list[LiveLease], elapsed_ms: int) -> list[LiveLease]:
        """The offers that need a decision, after asking the broker what became of their entries."""
        due = [
            lease
            for lease in offers
            if lease.state is LeaseState.OFFERED and elapsed_ms - max(lease.renewed_ms, 0) > self._wait_ms(lease)
        ]
        self._pending = {}
        for stream in {lease.stream for lease in due}:
            entries = self._broker.pending(stream)
            self._pending[stream] = {str(entry.entry_id): entry.worker_id for entry in entries}
        self._gone = {}
        asked = [lease for lease in due if lease.start == "granted" or self._taker(lease) == ""]
        outcomes = self._broker.withdraw([lease.entry for lease in asked]) if asked else []
        for lease, outcome in zip(asked, outcomes, strict=True):
            self._gone[lease.task_id, lease.fence] = outcome
        return due

    def settle(self, turn: Turn, due: list[LiveLease]) -> None:
        """Publish again what nobody can have started, wait for what somebody may have, and give up what is lost."""
        for lease in due:
            if turn.leases.get(lease.task_id) is not lease or lease.state is not LeaseState.OFFERED:
                continue
            turn.memory.sites.idle.add(lease.site, turn.elapsed_ms)
            if lease.start == "granted":
                self._offer_again(turn, lease)
            else:
                self._settle_claimed(turn, lease)

    def _settle_claimed(self, turn: Turn, lease: LiveLease) -> None:
        if lease.doubted_ms < 0:
            # Only a broker that has lost nothing since the offer can be believed that nobody was given it.
            if self._gone.get((lease.task_id, lease.fence)) is WithdrawOutcome.UNDELIVERED:
                directives.give_back(turn, lease)
                return
            lease.doubted_ms = turn.elapsed_ms
            lease.holder = self._taker(lease) or lease.holder
        if lease.takers is None:
            lease.takers = self._could_take(turn, lease)
        if self._heard_since(turn, lease):
            directives.give_back(turn, lease)
        elif turn.memory.heard_until_ms - lease.doubted_ms > expiry_ms(lease.ttl_ms):
            self._presume_started(turn, lease)

    def _heard_since(self, turn: Turn, lease: LiveLease) -> bool:
        """Whether a heartbeat of everyone who could have taken it has been read since, and none lists it.

        "Since" is when an older delivery could not be started without a grant any more: half a ttl after the doubt
        began, and a grace and margin for the way that the heartbeat took. The word of an agent that is younger than the
        offer is worth nothing: an earlier one of that id may have started it, and taken what it knew to its grave.
        """
        safe_ms = lease.doubted_ms + lease.ttl_ms // 2 + grace_ms(lease.ttl_ms) + margin_ms(lease.ttl_ms)
        if turn.memory.heard_until_ms <= safe_ms or lease.takers is None:
            return False
        workers = [turn.fleet.get(worker_id) for worker_id in lease.takers]
        return all(
            worker is not None and worker.heard_ms > safe_ms and worker.first_fence < lease.fence for worker in workers
        )

    def _could_take(self, turn: Turn, lease: LiveLease) -> set[str]:
        """The workers that may have been given it; a nameless one when none is known, which is never heard."""
        only = lease.holder or lease.directed_to
        takers = {
            w.worker_id for w in turn.fleet if w.site == lease.site and lease.capability in w.capabilities and w.takes
        }
        # That a worker is there no more says as little as its last agent could have said.
        takers.update(
            str(row[0]) for row in turn.store.rows("younger_agents", (lease.fence, lease.site, lease.capability))
        )
        return {only} if only else takers or {""}

    def _presume_started(self, turn: Turn, lease: LiveLease) -> None:
        """Somebody may be running it and is not heard: bound to nobody's nonce, expired, and a directive decides."""
        doubted_ms = lease.doubted_ms
        if leases.presume_bound(turn, lease):
            lease.renewed_ms = doubted_ms
            expire(turn, lease)

    def _offer_again(self, turn: Turn, lease: LiveLease) -> None:
        """Under its fence, or under a new one when it may go elsewhere, or an executor was launched for it.

        It may where the worker that was chosen is away, and where another site has room for what this one lets lie.
        Of two launches under one fence the second would occupy its place on the substrate only to be refused.
        """
        chosen = turn.fleet.get(lease.directed_to)
        is_away = bool(lease.directed_to) and (chosen is None or chosen.state is not WorkerState.ACTIVE)
        task = turn.store.row("task", (lease.task_id,))
        if task is None:
            return
        if is_away or lease.launched or _has_other_site(turn, lease, open_envelope(task[3])):
            directives.give_back(turn, lease)
            return
        lease.renewed_ms = turn.elapsed_ms
        leases.publish_again(turn, lease, task[3])

    def _taker(self, lease: LiveLease) -> str:
        return self._pending.get(lease.stream, {}).get(str(lease.entry_id), "")

    def _wait_ms(self, lease: LiveLease) -> int:
        """An offer that some heartbeat lists is renewed by it and so is never due while that goes on."""
        return self._unclaimed_ms if lease.doubted_ms < 0 else 0
