"""What is published next: within credit, by priority and order of submission, directed tasks to an eligible worker.

Credit of a capability at a site = room that its ACTIVE workers there want filled, minus offers that nobody is bound to
yet, and no more than the site may hold; none when its quota of records is used up. An assignment goes to one site. The
backlog stays in the store, so its size never reaches the broker.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from tenure.broker.base import Stream
from tenure.coordinator.dealing import Deal
from tenure.coordinator.fleet import Rank
from tenure.coordinator.journal import Step
from tenure.coordinator.leases import offer
from tenure.coordinator.mass_cancellation import spared
from tenure.protocol.envelope import open_envelope

if TYPE_CHECKING:
    from tenure.coordinator.fleet import WorkerView
    from tenure.coordinator.leases import Candidate
    from tenure.coordinator.turn import Turn
    from tenure.protocol.envelope import Envelope

_DIRECTED_SCAN: Final = 500
"""How many directed tasks one turn looks at; the next turn looks at those behind them."""

_LARGEST_OFFER: Final = 512
"""How many assignments one turn publishes per capability, so that one commit stays short."""

_LOOK_PAST: Final = 200
"""How many tasks that no worker has the time for one turn looks past, where some worker has an end of its own."""

_LONGER_WORKER_WAIT_MS: Final = 15_000
"""How long a task that no worker has the time for waits before workers are looked at again."""

_FULL_SITE_WAIT_MS: Final = 1_000
"""How long a task waits that only sites without room have the time for, so that others are looked at meanwhile."""

_SMALLEST_JUMP_MS: Final = 1_000
"""What a clock that is merely kept right moves less than between two turns."""


def schedule(turn: Turn) -> None:
    """Offer what credit and eligibility allow."""
    _wake_delayed(turn)
    _heed_quotas(turn)
    for capability in sorted(turn.memory.ready):
        _fill(turn, capability)
    if turn.memory.directed_ready or turn.memory.directed_passed:
        _direct(turn)


def follow_clock(turn: Turn) -> None:
    """Move the delays along when the wall clock was set: a delay is a duration, and a jump is not a wait.

    Comes first in a turn: the delays that the turn itself begins count from the clock as it is now.
    """
    ahead_ms = turn.now_ms - turn.elapsed_ms
    jump_ms = ahead_ms - turn.memory.wall_ahead_ms
    turn.memory.wall_ahead_ms = ahead_ms
    if abs(jump_ms) > _SMALLEST_JUMP_MS:
        turn.store.run("delays_moved", (jump_ms,))
        turn.memory.next_due_ms = 0


def wanted(turn: Turn) -> bool:
    """Whether anything could be offered now, or waits to be cancelled; saves an empty transaction."""
    memory = turn.memory
    due = memory.next_due_ms == 0 or 0 < memory.next_due_ms <= turn.now_ms
    begun = due or memory.directed_ready or memory.directed_passed > 0 or bool(memory.cancellations)
    return begun or any(rooms(turn, name) for name in memory.ready)


def rooms(turn: Turn, capability: str) -> dict[str, int]:
    """The sites that have credit for a capability, and how much."""
    found: dict[str, int] = {}
    spent = turn.memory.quotas.without_records(turn.elapsed_ms)
    for site, free in turn.fleet.free(capability).items():
        known = turn.memory.sites.get(site)
        credit = free - turn.leases.offered(site, capability)
        if known is not None and known.most_leases:
            credit = min(credit, known.most_leases - turn.leases.of_sites[site])
        if known is not None and credit > 0 and site not in spent:
            found[site] = credit
    return found


def choose(turn: Turn, envelope: Envelope) -> tuple[WorkerView | None, str]:
    """Who is given a task that needs a worker picked for it, or None and why nobody is."""
    sites = turn.memory.sites
    closed = dict.fromkeys(sites.full(turn.leases.of_sites), "holds as many leases as it may")
    closed |= dict.fromkeys(turn.memory.quotas.without_records(turn.elapsed_ms), "has used up its quota of records")
    rank = Rank(closed, frozenset(sites.idle), turn.leases.of_sites)
    return turn.fleet.choose(envelope.capability, envelope.requirements, envelope.timeout_ms, sites=rank)


def _fill(turn: Turn, capability: str) -> None:
    deal = Deal(rooms(turn, capability), turn.leases.of_sites, turn.memory.sites.idle)
    credit = min(deal.room, _LARGEST_OFFER)
    if credit <= 0:
        return
    ends_early = turn.fleet.ends_early(capability)
    limit = credit + _LOOK_PAST if ends_early else credit
    rows = turn.store.rows("ready_tasks", (capability, turn.now_ms, limit))
    if len(rows) < limit:
        turn.memory.ready.discard(capability)
    candidates: list[Candidate] = []
    for row in rows:
        envelope = open_envelope(row[2])
        if ends_early and _must_wait(turn, row[0], envelope):
            continue
        if len(candidates) >= credit:
            turn.memory.ready.add(capability)
            break
        site = deal.next(partial(_has_time, turn, envelope) if ends_early else None)
        if site:
            candidates.append((row, envelope, Stream(site, capability)))
        else:
            _wait(turn, row[0], _FULL_SITE_WAIT_MS)
    offer(turn, spared(turn, candidates))


def _must_wait(turn: Turn, task_id: str, envelope: Envelope) -> bool:
    """A task that no worker has the time for waits, so that it is not handed to and fro."""
    if not turn.fleet.lacks_time(envelope.capability, envelope.timeout_ms):
        return False
    _wait(turn, task_id, _LONGER_WORKER_WAIT_MS)
    return True


def _wait(turn: Turn, task_id: str, wait_ms: int) -> None:
    turn.store.run("task_waits", (turn.now_ms + wait_ms, task_id))
    turn.memory.next_due_ms = 0


def _has_time(turn: Turn, envelope: Envelope, site: str) -> bool:
    return not turn.fleet.lacks_time(envelope.capability, envelope.timeout_ms, site)


def _direct(turn: Turn) -> None:
    memory = turn.memory
    if not memory.directed_passed:
        memory.directed_ready = False
    rows = turn.store.rows("ready_directed_tasks", (turn.now_ms, _DIRECTED_SCAN, memory.directed_passed))
    passed = 0
    for row in rows:
        envelope = open_envelope(row[2])
        worker, _ = choose(turn, envelope)
        if worker is None:
            passed += 1
        else:
            candidate: Candidate = (row, envelope, Stream(worker.site, "", worker.worker_id))
            offer(turn, spared(turn, [candidate]))
    if len(rows) < _DIRECTED_SCAN:
        memory.directed_passed = 0
    elif passed:
        memory.directed_passed += passed
    else:
        memory.directed_ready = True


def _heed_quotas(turn: Turn) -> None:
    """Say so when a site can be offered nothing more, and look again at what may have waited for one that can."""
    quotas = turn.memory.quotas
    spent, recovered = quotas.compare(turn.elapsed_ms)
    for site in spent:
        if quotas.is_first(site, "offers"):
            text = f"Site {site} has used up its quota of records: it is offered nothing until some have come back."
            turn.record("refused", text, step=Step(reason="records", site=site))
    if recovered:
        turn.memory.directed_ready = True


def _wake_delayed(turn: Turn) -> None:
    """Look again at everything when a delayed task's time has come, and note when the next one's will."""
    memory = turn.memory
    if memory.next_due_ms < 0 or memory.next_due_ms > turn.now_ms:
        return
    # Also when the next moment is not known: what was due may have come due in this very turn.
    memory.ready.update(str(row[0]) for row in turn.store.rows("queued_capabilities"))
    memory.directed_ready = True
    row = turn.store.row("next_due", (turn.now_ms,))
    memory.next_due_ms = row[0] if row is not None and row[0] is not None else -1
