"""Sites come and go: taken up from the store, and thrown out with all that they hold.

The memory of them (`membership`) is rebuilt from the store at start and after every failed transaction.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from tenure.broker.base import WorkerAddress
from tenure.coordinator import directives, leases, registry
from tenure.coordinator.journal import Step
from tenure.coordinator.membership import Site, Sites
from tenure.protocol.control_messages import Drain, Stop, StopReason
from tenure.protocol.states import HolderState, LeaseState
from tenure.protocol.timing import expiry_ms
from tenure.protocol.worker_messages import Cause

if TYPE_CHECKING:
    from tenure.coordinator.live import LiveLease
    from tenure.coordinator.store.database import Database
    from tenure.coordinator.turn import Turn

_LEAVING_MS: Final = 2_000
"""So long a site that was revoked is still answered, so that its workers hear that they are to stop."""


def load(store: Database) -> Sites:
    """The sites and people as the store has them. What sites that were revoked have left is looked at once more."""
    sites = Sites()
    refresh(sites, store)
    for (name,) in store.rows("revoked_sites"):
        sites.revoke(name, 0)
    return sites


def refresh(sites: Sites, store: Database) -> None:
    """Take up what has come since: sites and people."""
    for name, capabilities, most_leases in store.rows("active_sites"):
        sites.put(Site(name, frozenset(json.loads(capabilities)), most_leases))
    sites.put_people(str(row[0]) for row in store.rows("active_people"))


def reload(turn: Turn) -> None:
    """Take up what has changed on record in this turn, except for revoked sites."""
    refresh(turn.memory.sites, turn.store)


def remains(store: Database, name: str) -> tuple[list[str], list[str]]:
    """The workers and capabilities that a site may have had streams and keys of."""
    rows = store.rows("workers_of_site", (name,))
    granted = store.row("site_on_record", (name,))
    capabilities = {word for _, text in rows for word in json.loads(text)}
    capabilities.update(json.loads(granted[2]) if granted is not None else ())
    return [str(worker_id) for worker_id, _ in rows], sorted(capabilities)


def revoke(turn: Turn, name: str, by: str, reason: str) -> int:
    """Throw a site out for good; how many of its leases are over by this.

    Nothing that it says is taken any more. What it may be running is lost, and its next attempt waits until a worker
    that hears of nothing has stopped it; what is being cancelled there is over when its lease is, for nothing else
    proves its end. Asked again, only what the site has left at the broker is looked at again.
    """
    sites = turn.memory.sites
    until_ms = turn.elapsed_ms + _LEAVING_MS
    if turn.store.run("revoke_site", (turn.now_ms, name)) != 1:
        sites.revoke(name, until_ms)
        return 0
    because = f" ({reason})" if reason else ""
    step = Step(HolderState.ACTIVE, HolderState.REVOKED, reason=reason, site=name)
    turn.record("site_revoked", f"{by} revoked site {name}{because}.", step=step)
    held = [lease for lease in turn.leases if lease.site == name]
    ended = sum(_take_away(turn, lease) for lease in held)
    sites.revoke(name, until_ms)
    bound = {lease.worker_id for lease in turn.leases if lease.site == name}
    for worker in [each for each in turn.fleet if each.site == name]:
        turn.out.order(worker.address, Drain())
        registry.dismiss(turn, worker, holds=worker.worker_id in bound)
    return ended


def _take_away(turn: Turn, lease: LiveLease) -> bool:
    if lease.state is LeaseState.OFFERED and lease.start == "granted":
        directives.give_back(turn, lease, cause=Cause.SITE_REVOKED)
        return True
    for worker_id in {lease.worker_id or lease.holder or lease.directed_to, lease.parent} - {""}:
        stop = Stop(task_id=lease.task_id, fence=lease.fence, reason=StopReason.SUPERSEDED)
        turn.out.order(WorkerAddress(lease.site, worker_id), stop)
    if lease.state is LeaseState.OFFERED:
        leases.presume_bound(turn, lease)
    if lease.stopping:
        return False
    leases.end(turn, lease, LeaseState.RELEASED, Cause.SITE_REVOKED)
    loss = directives.Loss(Cause.SITE_REVOKED, f"its site {lease.site} was revoked", expiry_ms(lease.ttl_ms))
    directives.after_loss(turn, lease, loss)
    return True
