"""What a coordinator does at its start, and whenever the broker may not be what it was.

Rules: every live lease gets a full term. Offers that wait for a grant are published again under their fence when the
broker has lost data, for only the bind gives the right to run. Offers that start on claim may have been started by a
worker that is not heard now, so they are put in doubt and looked into by the sweep.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tenure.broker.base import BrokerState, EntryId
from tenure.broker.incarnation import Incarnation, compare
from tenure.broker.keys import DEFAULT_SITE
from tenure.coordinator import journal, leases
from tenure.coordinator.journal import Step
from tenure.errors import BrokerFull, NamespaceTaken
from tenure.protocol.states import LeaseState

if TYPE_CHECKING:
    from tenure.broker.base import CoordinatorBroker, Stream, StreamEntry
    from tenure.coordinator.live import LiveLease
    from tenure.coordinator.store.database import Database
    from tenure.coordinator.turn import Memory, Turn
    from tenure.coordinator.wire import Wire


def open_world(store: Database, namespace: str, now_ms: int) -> str:
    """Make the world at its first start, and begin an epoch; answers its name."""
    store.run("create_world", (namespace, now_ms))
    store.run("add_site", (DEFAULT_SITE, "compute", now_ms))
    store.begin_epoch()
    journal.begin(store, now_ms)
    return str(store.records("world")[0]["world"])


def full_term(memory: Memory, elapsed_ms: int) -> None:
    """Let every lease, every doubt about one and every worker begin a new term now."""
    for lease in memory.leases:
        lease.renewed_ms = elapsed_ms
        if lease.doubted_ms >= 0:
            lease.doubted_ms = elapsed_ms
        if lease.gone is not None:
            lease.gone = replace(lease.gone, since_ms=-1)
        if lease.surrendered is not None:
            lease.surrendered = replace(lease.surrendered, at_ms=elapsed_ms)
    for worker in memory.fleet:
        worker.seen_ms = elapsed_ms


def count_holdings(memory: Memory) -> None:
    """Count what each worker holds, after both were loaded from the store."""
    for lease in memory.leases:
        for worker in map(memory.fleet.get, lease.charged):
            if worker is not None:
                worker.bound += 1
        directed = memory.fleet.get(lease.directed_to)
        if directed is not None and lease.needs is not None:
            directed.reserve(lease.needs, 1)


def take_stock(turn: Turn, broker: CoordinatorBroker, wire: Wire, found: BrokerState) -> BrokerState:
    """Compare broker and store, make the streams, and see that every offer is or will be published.

    The address of the artifacts goes with the marker, never alone: a marker that is set again on a broker that has just
    lost its data would hide the loss. So another address begins another incarnation.

    The new marker is set only after the commit: a crash in between shows as lost data once more, which is safe, and so
    does a broker that is too full to take the marker. Answers what the broker should show from here on.

    Raises:
        NamespaceTaken: the marker is another database's.
    """
    world = turn.store.records("world")[0]
    own = f"{world['created_at_ms']:x}-"
    if found.marker and not found.marker.startswith(own):
        raise NamespaceTaken(
            f"namespace {turn.world!r} on this broker belongs to another database than {turn.store.path}",
            "Choose another --namespace, or that database; if it is gone for good, delete its key `incarnation` there",
        )
    known = BrokerState(world["broker_run_id"], world["broker_marker"], "", "")
    address = turn.curator.address
    incarnation = compare(known, found)
    streams = all_streams(turn.memory)
    wire.ensure(streams, turn.memory.sites.readers())
    if incarnation is Incarnation.SAME and address == world["store_address"]:
        _publish_missing(turn, broker, wire.unpublished())
    else:
        wire.drop_unpublished()
        marker = own + turn.entropy.token(16)
        what = "The broker restarted or lost data"
        if incarnation is Incarnation.SAME:
            what = "Another store of artifacts was announced"
        _start_over(turn, broker, (found.run_id, marker, address), what if world["broker_marker"] else "")
        known = replace(known, run_id=found.run_id, marker=marker)
        with suppress(BrokerFull):
            broker.mark(marker, address)
    wire.add(turn.out.publications, turn.out.withdrawals)
    live = {lease.entry for lease in turn.leases}
    wire.clear_leftovers(live, streams)
    return known


def all_streams(memory: Memory) -> set[Stream]:
    """Every assignment stream that should exist; nothing is made for a site that was revoked."""
    streams = {lease.stream for lease in memory.leases if memory.sites.get(lease.site) is not None}
    for worker in memory.fleet:
        streams.update(worker.streams())
    return streams


def _start_over(turn: Turn, broker: CoordinatorBroker, identity: tuple[str, str, str], what: str) -> None:
    """`what` has happened is recorded, unless it is ""."""
    offers = [lease for lease in turn.leases if lease.state is LeaseState.OFFERED]
    granted = [lease for lease in offers if lease.start == "granted"]
    if granted:
        broker.withdraw([lease.entry for lease in granted])
    with turn.transaction():
        turn.store.run("set_broker", identity)
        for lease in granted:
            _again(turn, lease)
        for lease in offers:
            if lease.start == "claimed":
                lease.doubted_ms = turn.elapsed_ms
                turn.store.run("doubt_lease", (lease.task_id, lease.fence))
        if what:
            text = f"{what}: {len(offers)} offers are looked into, expiry waits a full term."
            turn.record("new_incarnation", text, step=Step(reason=what))


def _publish_missing(turn: Turn, broker: CoordinatorBroker, queued: set[StreamEntry]) -> None:
    """Offers whose id is above the stream's last id were committed and never sent.

    They go out under the id that they had, so that a copy which is still on its way is refused. Those that are `queued`
    are sent anyway, and those in doubt are the sweep's: a broker that has lost data shows a last id that is too low.
    """
    last: dict[Stream, EntryId] = {}
    missing: list[LiveLease] = []
    for lease in turn.leases:
        stream = lease.stream
        in_doubt = lease.doubted_ms >= 0
        if lease.state is not LeaseState.OFFERED or in_doubt or lease.entry in queued:
            continue
        if stream not in last:
            last[stream] = broker.published(stream)
        if lease.entry_id <= last[stream]:
            continue
        if lease.start == "claimed" and last[stream] == EntryId(0, 0):
            lease.doubted_ms = turn.elapsed_ms  # the stream is new: never published, or deleted after somebody took it
        else:
            missing.append(lease)
    for lease in sorted(missing, key=lambda each: each.entry_id):
        task = turn.store.row("task", (lease.task_id,))
        if task is not None:
            leases.publish(turn, lease, task[3])


def _again(turn: Turn, lease: LiveLease) -> None:
    task = turn.store.row("task", (lease.task_id,))
    if task is not None:
        leases.publish_again(turn, lease, task[3])
