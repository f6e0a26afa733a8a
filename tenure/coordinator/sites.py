"""Sites come and go: taken up from the store, and thrown out with all that they hold.

The memory of them (`membership`) is rebuilt from the store at start and after every failed transaction. What a revoked
site has left at the broker goes in portions, one per turn, and it is on record when all of it is gone: a site may have
had any number of workers, and no start looks for the leftovers of one that has none.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from tenure.broker.base import WorkerAddress
from tenure.coordinator import directives, leases, registry
from tenure.coordinator.journal import Step
from tenure.coordinator.membership import Site, Sites, site_of
from tenure.protocol.control_messages import Drain, SayHello, Stop, StopReason
from tenure.protocol.states import HolderState, LeaseState
from tenure.protocol.timing import expiry_ms
from tenure.protocol.worker_messages import Cause

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tenure.broker.base import SiteKeys
    from tenure.coordinator.live import LiveLease
    from tenure.coordinator.store.database import Database
    from tenure.coordinator.turn import Turn

_LEAVING_MS: Final = 2_000
"""So long a site that was revoked is still answered, so that its workers hear that they are to stop."""

_PORTION: Final = 1_000
"""Of so many workers a turn deletes what they have left: each has a handful of keys."""


def load(store: Database, live: Iterable[LiveLease]) -> Sites:
    """The sites and people as the store has them. What is not known to be gone of revoked sites is deleted.

    Of these live leases, offers that may run already may still be taken up: nothing else takes a grant away from them.
    """
    sites = Sites()
    refresh(sites, store)
    sites.kept.update((lease.task_id, lease.fence) for lease in live if _may_run_ungranted(sites, lease))
    for name, cleared_at_ms in store.rows("revoked_sites"):
        if cleared_at_ms is None:
            sites.revoke(name, 0)
        else:
            sites.keep_name(name)
    return sites


def _may_run_ungranted(sites: Sites, lease: LiveLease) -> bool:
    site = sites.get(lease.site)
    begun = lease.state is LeaseState.OFFERED and lease.start == "claimed"
    return begun and site is not None and not site.granted([lease.capability])


def refresh(sites: Sites, store: Database) -> None:
    """Take up what has come since: sites and people."""
    for row in store.rows("active_sites"):
        sites.put(site_of(row))
    sites.put_people(str(row[0]) for row in store.rows("active_people"))


def reload(turn: Turn) -> None:
    """Take up what has changed on record in this turn, except for revoked sites."""
    refresh(turn.memory.sites, turn.store)


def regrant(turn: Turn, name: str) -> None:
    """Hold the workers of a site to what it is granted now. What they hold goes on; nothing else is offered to them.

    They are asked to say hello again, because only they know what they could offer besides.
    """
    reload(turn)
    site = turn.memory.sites.get(name)
    if site is None:
        return
    _withdraw(turn, site)
    for worker in [each for each in turn.fleet if each.site == name]:
        worker.capabilities = site.granted(worker.capabilities)
        worker.labels = site.labels(worker.labels)
        written = (json.dumps(sorted(worker.capabilities)), json.dumps(sorted(worker.labels)), worker.worker_id)
        turn.store.run("worker_offers", written)
        if worker.takes:
            turn.out.order(worker.address, SayHello())
            registry.wake(turn, worker)


def _withdraw(turn: Turn, site: Site) -> None:
    """Take back the offers of work that a site is not granted any more, but for those that may run already."""
    kept = turn.memory.sites.kept
    kept.intersection_update({(lease.task_id, lease.fence) for lease in turn.leases})
    offered = [lease for lease in turn.leases if lease.site == site.name and lease.state is LeaseState.OFFERED]
    for lease in offered:
        if site.granted([lease.capability]):
            kept.discard((lease.task_id, lease.fence))
        elif lease.start == "granted":
            directives.give_back(turn, lease)
        else:
            kept.add((lease.task_id, lease.fence))


def clear(store: Database, keys: SiteKeys, sites: Sites, moment: tuple[int, int]) -> None:
    """Delete a portion of what each revoked site has left whose time is over. `moment`: now and elapsed time."""
    now_ms, elapsed_ms = moment
    for name, after in sites.to_clear(elapsed_ms):
        rows = store.rows("workers_of_site", (name, after, _PORTION))
        granted = store.row("site_on_record", (name,))
        capabilities = {word for _, text in rows for word in json.loads(text)}
        capabilities.update(json.loads(granted[2]) if granted is not None else ())
        keys.forget_site(name, [str(worker_id) for worker_id, _ in rows], sorted(capabilities))
        if len(rows) == _PORTION:
            sites.cleared(name, rows[-1][0])
            continue
        with store.transaction():
            store.run("site_cleared", (now_ms, name))
        sites.cleared(name, None)


def revoke(turn: Turn, name: str, by: str, reason: str) -> int:
    """Throw a site out for good; how many of its leases are over by this.

    Nothing that it says is taken any more. What it may be running is lost, and its next attempt waits until a worker
    that hears of nothing has stopped it; what is being cancelled there is over when its lease is, for nothing else
    proves its end. Asked again, only what the site has left at the broker is looked at again.
    """
    sites = turn.memory.sites
    until_ms = turn.elapsed_ms + _LEAVING_MS
    if turn.store.run("revoke_site", (turn.now_ms, name)) != 1:
        turn.store.run("clear_site_again", (name,))
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
    turn.memory.remnants.note(lease.task_id, turn.elapsed_ms + expiry_ms(lease.ttl_ms))
    loss = directives.Loss(Cause.SITE_REVOKED, f"its site {lease.site} was revoked", expiry_ms(lease.ttl_ms))
    directives.after_loss(turn, lease, loss)
    return True
