"""A broker in memory, for tests and simulations: the same three faces, no server, no threads, no waiting.

A reader never blocks: `block_ms` is ignored, and what is not there yet is not waited for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias, cast, final

from tenure.broker.base import (
    BrokerState,
    ClientAddress,
    Delivery,
    EntryId,
    Handout,
    PendingEntry,
    PublishOutcome,
    Stream,
    WithdrawOutcome,
    WorkerAddress,
)
from tenure.broker.keys import DEFAULT_PERSON, ContentKeys
from tenure.broker.memory_sites import MemorySites, cut
from tenure.broker.memory_store import START, MemoryStore, MemoryStream
from tenure.errors import BrokerFull, BrokerUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tenure.broker.base import LogChunk, LogKey, Mailing, Publication, Readers, SiteKeys, StreamEntry
    from tenure.broker.keys import Keys
    from tenure.protocol.assignment import Assignment

_Found: TypeAlias = "tuple[str, EntryId, object]"
_Read: TypeAlias = "Callable[[MemoryStore, list[str], str, int], list[_Found]]"

CONSUMER: Final = "coordinator"


@final
@dataclass(frozen=True, slots=True)
class MemoryBroker:
    """One server and one namespace, from which each part takes its face."""

    store: MemoryStore
    keys: Keys

    def coordinator(self) -> MemoryCoordinator:
        """The coordinator's face."""
        return MemoryCoordinator(self.store, self.keys)

    def worker(self, *, site: str, worker_id: str) -> MemoryWorker:
        """A worker's face."""
        return MemoryWorker(self.store, self.keys, WorkerAddress(site, worker_id))

    def client(self, *, client_id: str, person: str = DEFAULT_PERSON) -> MemoryClient:
        """A client's face."""
        return MemoryClient(self.store, self.keys, ClientAddress(person, client_id))


@final
@dataclass(slots=True)
class MemoryCoordinator:
    """The coordinator's face; see `CoordinatorBroker`."""

    store: MemoryStore
    keys: Keys
    sites: SiteKeys = field(init=False)

    def __post_init__(self) -> None:
        self.sites = MemorySites(self.store, self.keys)

    def state(self) -> BrokerState:
        """See `CoordinatorBroker.state`."""
        marker = _text(self.store.get(self.keys.incarnation()))
        return BrokerState(f"run-{self.store.starts}", marker, "memory", self.store.eviction_policy)

    def mark(self, marker: str, store_address: str = "") -> None:
        """See `CoordinatorBroker.mark`."""
        self.store.put(ContentKeys(self.keys.namespace).store(), store_address.encode())
        self.store.put(self.keys.incarnation(), marker.encode())

    def ensure_streams(self, *, readers: Readers, assignments: Sequence[Stream] = ()) -> None:
        """See `CoordinatorBroker.ensure_streams`."""
        for key in (*self._origins(readers), *map(self.keys.assignments, assignments)):
            self.store.make_stream(key)

    def receive(self, *, readers: Readers, limit: int, block_ms: int) -> list[Delivery]:  # noqa: ARG002
        """See `CoordinatorBroker.receive`."""
        return self._read(readers, limit, _hand_out)

    def unsettled(self, *, readers: Readers, limit: int) -> list[Delivery]:
        """See `CoordinatorBroker.unsettled`."""
        return self._read(readers, limit, _held)

    def settle(
        self,
        deliveries: Sequence[Delivery],
        ended: Sequence[StreamEntry] = (),
        departed: Sequence[WorkerAddress] = (),
    ) -> None:
        """See `CoordinatorBroker.settle`."""
        for key in (key for each in departed for key in self.keys.of_departed(each)):
            self.store.remove(key)
        self.withdraw(ended)
        for each in deliveries:
            self._remove(self.keys.inbox(each.site) if each.site else self.keys.rpc(each.person), each.entry_id)

    def publish(self, publications: Sequence[Publication]) -> list[PublishOutcome]:
        """See `CoordinatorBroker.publish`."""
        if self.store.full:
            raise BrokerFull("The in-memory broker is full and refuses writes", "Make room in it")
        return [self._publish(each) for each in publications]

    def withdraw(self, entries: Sequence[StreamEntry]) -> list[WithdrawOutcome]:
        """See `CoordinatorBroker.withdraw`."""
        return [self._remove(self.keys.assignments(each.stream), each.entry_id) for each in entries]

    def published(self, stream: Stream) -> EntryId:
        """See `CoordinatorBroker.published`."""
        found = self.store.stream(self.keys.assignments(stream))
        return found.last_id if found else START

    def pending(self, stream: Stream) -> list[PendingEntry]:
        """See `CoordinatorBroker.pending`."""
        found = self.store.stream(self.keys.assignments(stream)) or MemoryStream()
        return [PendingEntry(at, worker) for at, worker in sorted(found.pending.items())]

    def post(self, mailings: Sequence[Mailing], echoes: Mapping[WorkerAddress, str], echo_ttl_ms: int) -> None:
        """See `CoordinatorBroker.post`."""
        for each in mailings:
            key = self.keys.control(each.to) if isinstance(each.to, WorkerAddress) else self.keys.reply(each.to)
            _append(self.store, key, each.raw, each.kept)
        for worker, echo in echoes.items():
            self.store.put(self.keys.echo(worker), echo.encode(), echo_ttl_ms)

    def _origins(self, readers: Readers) -> dict[str, tuple[str, str]]:
        inboxes = {self.keys.inbox(site): (site, "") for site in readers.sites}
        return inboxes | {self.keys.rpc(person): ("", person) for person in readers.people}

    def _read(self, readers: Readers, limit: int, read: _Read) -> list[Delivery]:
        origins = self._origins(readers)
        found = read(self.store, list(origins), CONSUMER, limit)
        raws = ((key, at, cast("bytes", entry)) for key, at, entry in found)
        return [Delivery(at, raw, *origins[key], len(raw)) for key, at, raw in raws]

    def _publish(self, publication: Publication) -> PublishOutcome:
        key = self.keys.assignments(publication.stream)
        stream = self.store.stream(key)
        if stream is None:
            return PublishOutcome.MISSING
        if publication.entry_id <= stream.last_id:
            newer = stream.last_id.major > publication.entry_id.major
            return PublishOutcome.SUPERSEDED if newer else PublishOutcome.REPEATED
        self.store.add(key, publication.assignment, publication.entry_id)
        return PublishOutcome.PUBLISHED

    def _remove(self, key: str, at: EntryId) -> WithdrawOutcome:
        if self.store.stream(key) is None:
            return WithdrawOutcome.GONE
        stream = self.store.change(key)
        acked = stream.pending.pop(at, None) is not None
        deleted = stream.entries.pop(at, None) is not None
        if acked or (deleted and at <= stream.position):
            return WithdrawOutcome.DELIVERED
        return WithdrawOutcome.UNDELIVERED if deleted else WithdrawOutcome.GONE


@final
@dataclass(slots=True)
class MemoryWorker:
    """A worker's face; see `WorkerBroker`."""

    store: MemoryStore
    keys: Keys
    me: WorkerAddress
    closed: bool = field(default=False, init=False)

    def take(self, *, capabilities: Sequence[str], limit: int, block_ms: int) -> list[Handout]:  # noqa: ARG002
        """See `WorkerBroker.take`."""
        return self._read(capabilities, limit, _hand_out)

    def retake(self, *, capabilities: Sequence[str], limit: int) -> list[Handout]:
        """See `WorkerBroker.retake`."""
        return self._read(capabilities, limit, _held)

    def look(self, entry: StreamEntry) -> Handout | None:
        """See `WorkerBroker.look`."""
        _check_open(closed=self.closed)
        stream = self.store.stream(self.keys.assignments(entry.stream)) or MemoryStream()
        found = stream.entries.get(entry.entry_id)
        return None if found is None else Handout(entry.entry_id, cast("Assignment", found))

    def orders(self, *, after: EntryId, block_ms: int) -> list[Delivery]:  # noqa: ARG002
        """See `WorkerBroker.orders`."""
        _check_open(closed=self.closed)
        return _later(self.store.stream(self.keys.control(self.me)), after)

    def report(self, reports: Sequence[bytes]) -> None:
        """See `WorkerBroker.report`."""
        _check_open(closed=self.closed)
        for report in reports:
            self.store.add(self.keys.inbox(self.me.site), report)

    def beat(self, heartbeat: bytes, ttl_ms: int) -> str:
        """See `WorkerBroker.beat`."""
        _check_open(closed=self.closed)
        self.store.put(self.keys.heartbeat(self.me), heartbeat, ttl_ms)
        return _text(self.store.get(self.keys.echo(self.me)))

    def print(self, log: LogKey, chunks: Sequence[LogChunk], keep: int) -> None:
        """See `WorkerBroker.print`."""
        _check_open(closed=self.closed)
        for chunk in chunks:
            _append(self.store, ContentKeys(self.keys.namespace).log(log), chunk, keep)

    def store_address(self) -> str:
        """See `WorkerBroker.store_address`."""
        _check_open(closed=self.closed)
        return _text(self.store.get(ContentKeys(self.keys.namespace).store()))

    def farewell(self) -> None:
        """See `WorkerBroker.farewell`."""
        _check_open(closed=self.closed)
        self.store.remove(self.keys.heartbeat(self.me))

    def marker(self) -> str:
        """See `WorkerBroker.marker`."""
        _check_open(closed=self.closed)
        return _text(self.store.get(self.keys.incarnation()))

    def close(self) -> None:
        """See `WorkerBroker.close`."""
        self.closed = True

    def _read(self, capabilities: Sequence[str], limit: int, read: _Read) -> list[Handout]:
        _check_open(closed=self.closed)
        own = self.keys.assignments(Stream(self.me.site, worker_id=self.me.worker_id))
        keys = [*(self.keys.assignments(Stream(self.me.site, each)) for each in capabilities), own]
        found = read(self.store, keys, self.me.worker_id, limit)
        return [Handout(at, cast("Assignment", entry), is_directed=key == own) for key, at, entry in found]


@final
@dataclass(slots=True)
class MemoryClient:
    """A client's face; see `ClientBroker`."""

    store: MemoryStore
    keys: Keys
    me: ClientAddress
    closed: bool = field(default=False, init=False)

    def ask(self, raw: bytes) -> None:
        """See `ClientBroker.ask`."""
        _check_open(closed=self.closed)
        self.store.add(self.keys.rpc(self.me.person), raw)

    def answers(self, *, after: EntryId, block_ms: int) -> list[Delivery]:  # noqa: ARG002
        """See `ClientBroker.answers`."""
        _check_open(closed=self.closed)
        key = self.keys.reply(self.me)
        found = _later(self.store.stream(key), after)
        _forget(self.store, key, after)
        return found

    def printed(self, log: LogKey, *, after: EntryId, block_ms: int) -> list[tuple[EntryId, LogChunk]]:  # noqa: ARG002
        """See `ClientBroker.printed`."""
        _check_open(closed=self.closed)
        stream = self.store.stream(ContentKeys(self.keys.namespace).log(log)) or MemoryStream()
        return [(at, cast("LogChunk", chunk)) for at, chunk in stream.later(after)]

    def store_address(self) -> str:
        """See `ClientBroker.store_address`."""
        _check_open(closed=self.closed)
        return _text(self.store.get(ContentKeys(self.keys.namespace).store()))

    def marker(self) -> str:
        """See `ClientBroker.marker`."""
        _check_open(closed=self.closed)
        return _text(self.store.get(self.keys.incarnation()))

    def close(self) -> None:
        """See `ClientBroker.close`."""
        if not self.closed and not self.store.down:
            self.store.remove(self.keys.reply(self.me))
        self.closed = True


def _hand_out(store: MemoryStore, keys: list[str], consumer: str, limit: int) -> list[_Found]:
    # One missing stream refuses the whole read, before anything is handed out.
    streams = [(key, store.stream(key) or store.change(key)) for key in keys]
    fresh = [key for key, stream in streams if stream.undelivered]
    return [(key, *each) for key in fresh for each in store.change(key).hand_out(consumer, limit)]


def _held(store: MemoryStore, keys: list[str], consumer: str, limit: int) -> list[_Found]:
    streams = [(key, store.stream(key) or store.change(key)) for key in keys]
    return [(key, *each) for key, stream in streams for each in stream.held(consumer, limit)]


def _later(stream: MemoryStream | None, after: EntryId) -> list[Delivery]:
    return [Delivery(at, cast("bytes", entry)) for at, entry in stream.later(after)] if stream else []


def _forget(store: MemoryStore, key: str, up_to: EntryId) -> None:
    stream = store.stream(key)
    if stream and stream.entries and next(iter(stream.entries)) <= up_to:
        changed = store.change(key)
        changed.entries = dict(changed.later(up_to))


def _append(store: MemoryStore, key: str, entry: object, kept: int) -> None:
    store.make_stream(key)
    store.add(key, entry)
    stream = store.change(key)
    stream.undelivered.clear()
    cut(stream, kept)


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode(errors="replace")


def _check_open(*, closed: bool) -> None:
    if closed:
        raise BrokerUnreachable("The connection to the in-memory broker was closed by this process")
