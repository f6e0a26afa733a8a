"""A broker in memory, for tests and simulations: the same three faces, no server, no threads, no waiting.

A reader never blocks: `block_ms` is ignored, and what is not there yet is not waited for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias, cast, final

from tenure.broker.base import (
    BrokerState,
    Delivery,
    EntryId,
    Handout,
    PendingEntry,
    PublishOutcome,
    WithdrawOutcome,
)
from tenure.broker.keys import ContentKeys
from tenure.broker.memory_store import START, MemoryStore, MemoryStream
from tenure.errors import BrokerFull, BrokerUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tenure.broker.base import LogChunk, LogKey, Mailing, Publication, StreamEntry
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
        return MemoryWorker(self.store, self.keys, site, worker_id)

    def client(self, *, client_id: str) -> MemoryClient:
        """A client's face."""
        return MemoryClient(self.store, self.keys, client_id)


@final
@dataclass(frozen=True, slots=True)
class MemoryCoordinator:
    """The coordinator's face; see `CoordinatorBroker`."""

    store: MemoryStore
    keys: Keys

    def state(self) -> BrokerState:
        """See `CoordinatorBroker.state`."""
        marker = _text(self.store.get(self.keys.incarnation()))
        return BrokerState(f"run-{self.store.starts}", marker, "memory", self.store.eviction_policy)

    def mark(self, marker: str, store_address: str = "") -> None:
        """See `CoordinatorBroker.mark`."""
        self.store.put(ContentKeys(self.keys.namespace).store(), store_address.encode())
        self.store.put(self.keys.incarnation(), marker.encode())

    def ensure_streams(self, *, capabilities: Sequence[str], workers: Sequence[str], sites: Sequence[str]) -> None:
        """See `CoordinatorBroker.ensure_streams`."""
        self.store.make_stream(self.keys.rpc())
        for name, key_of in ((sites, self.keys.inbox), (capabilities, self.keys.capability), (workers, self.keys.own)):
            for each in name:
                self.store.make_stream(key_of(each))

    def receive(self, *, sites: Sequence[str], limit: int, block_ms: int) -> list[Delivery]:  # noqa: ARG002
        """See `CoordinatorBroker.receive`."""
        return self._read(sites, limit, _hand_out)

    def unsettled(self, *, sites: Sequence[str], limit: int) -> list[Delivery]:
        """See `CoordinatorBroker.unsettled`."""
        return self._read(sites, limit, _held)

    def settle(
        self,
        deliveries: Sequence[Delivery],
        ended: Sequence[StreamEntry] = (),
        departed: Sequence[tuple[str, str]] = (),
    ) -> None:
        """See `CoordinatorBroker.settle`."""
        for site, worker_id in departed:
            for key in self.keys.of_departed(site, worker_id):
                self.store.remove(key)
        self.withdraw(ended)
        for each in deliveries:
            self._remove(self.keys.inbox(each.source) if each.source else self.keys.rpc(), each.entry_id)

    def publish(self, publications: Sequence[Publication]) -> list[PublishOutcome]:
        """See `CoordinatorBroker.publish`."""
        if self.store.full:
            raise BrokerFull("The in-memory broker is full and refuses writes", "Make room in it")
        return [self._publish(each) for each in publications]

    def withdraw(self, entries: Sequence[StreamEntry]) -> list[WithdrawOutcome]:
        """See `CoordinatorBroker.withdraw`."""
        return [self._remove(self.keys.assignments(name, worker), at) for name, worker, at in entries]

    def published(self, *, capability: str = "", worker_id: str = "") -> EntryId:
        """See `CoordinatorBroker.published`."""
        stream = self.store.stream(self.keys.assignments(capability, worker_id))
        return stream.last_id if stream else START

    def pending(self, *, capability: str = "", worker_id: str = "") -> list[PendingEntry]:
        """See `CoordinatorBroker.pending`."""
        stream = self.store.stream(self.keys.assignments(capability, worker_id)) or MemoryStream()
        return [PendingEntry(at, worker) for at, worker in sorted(stream.pending.items())]

    def heartbeats(self, workers: Sequence[tuple[str, str]]) -> list[bytes | None]:
        """See `CoordinatorBroker.heartbeats`."""
        return [self.store.get(self.keys.heartbeat(site, worker_id)) for site, worker_id in workers]

    def post(self, mailings: Sequence[Mailing], echoes: Mapping[str, str], echo_ttl_ms: int) -> None:
        """See `CoordinatorBroker.post`."""
        for each in mailings:
            key = self.keys.control(each.worker_id) if each.worker_id else self.keys.reply(each.client_id)
            _append(self.store, key, each.raw, each.kept)
        for worker_id, echo in echoes.items():
            self.store.put(self.keys.echo(worker_id), echo.encode(), echo_ttl_ms)

    def _read(self, sites: Sequence[str], limit: int, read: _Read) -> list[Delivery]:
        sources = {self.keys.inbox(site): site for site in sites} | {self.keys.rpc(): ""}
        found = read(self.store, list(sources), CONSUMER, limit)
        return [Delivery(sources[key], at, cast("bytes", entry)) for key, at, entry in found]

    def _publish(self, publication: Publication) -> PublishOutcome:
        key = self.keys.assignments(publication.capability, publication.worker_id)
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
    site: str
    worker_id: str
    closed: bool = field(default=False, init=False)

    def take(self, *, capabilities: Sequence[str], limit: int, block_ms: int) -> list[Handout]:  # noqa: ARG002
        """See `WorkerBroker.take`."""
        return self._read(capabilities, limit, _hand_out)

    def retake(self, *, capabilities: Sequence[str], limit: int) -> list[Handout]:
        """See `WorkerBroker.retake`."""
        return self._read(capabilities, limit, _held)

    def look(self, *, capability: str = "", worker_id: str = "", entry_id: EntryId) -> Handout | None:
        """See `WorkerBroker.look`."""
        _check_open(closed=self.closed)
        stream = self.store.stream(self.keys.assignments(capability, worker_id)) or MemoryStream()
        entry = stream.entries.get(entry_id)
        return None if entry is None else Handout(entry_id, cast("Assignment", entry))

    def orders(self, *, after: EntryId, block_ms: int) -> list[Delivery]:  # noqa: ARG002
        """See `WorkerBroker.orders`."""
        _check_open(closed=self.closed)
        return _later(self.store.stream(self.keys.control(self.worker_id)), after, "ctl")

    def report(self, reports: Sequence[bytes]) -> None:
        """See `WorkerBroker.report`."""
        _check_open(closed=self.closed)
        for report in reports:
            self.store.add(self.keys.inbox(self.site), report)

    def beat(self, heartbeat: bytes, ttl_ms: int) -> str:
        """See `WorkerBroker.beat`."""
        _check_open(closed=self.closed)
        self.store.put(self.keys.heartbeat(self.site, self.worker_id), heartbeat, ttl_ms)
        return _text(self.store.get(self.keys.echo(self.worker_id)))

    def print(self, log: LogKey, chunks: Sequence[LogChunk], keep: int) -> None:
        """See `WorkerBroker.print`."""
        _check_open(closed=self.closed)
        for chunk in chunks:
            _append(self.store, _log(self.keys, log), chunk, keep)

    def store_address(self) -> str:
        """See `WorkerBroker.store_address`."""
        _check_open(closed=self.closed)
        return _text(self.store.get(ContentKeys(self.keys.namespace).store()))

    def farewell(self) -> None:
        """See `WorkerBroker.farewell`."""
        _check_open(closed=self.closed)
        self.store.remove(self.keys.heartbeat(self.site, self.worker_id))

    def marker(self) -> str:
        """See `WorkerBroker.marker`."""
        _check_open(closed=self.closed)
        return _text(self.store.get(self.keys.incarnation()))

    def close(self) -> None:
        """See `WorkerBroker.close`."""
        self.closed = True

    def _read(self, capabilities: Sequence[str], limit: int, read: _Read) -> list[Handout]:
        _check_open(closed=self.closed)
        keys = [*map(self.keys.capability, capabilities), self.keys.own(self.worker_id)]
        found = read(self.store, keys, self.worker_id, limit)
        own = self.keys.own(self.worker_id)
        return [Handout(at, cast("Assignment", entry), is_directed=key == own) for key, at, entry in found]


@final
@dataclass(slots=True)
class MemoryClient:
    """A client's face; see `ClientBroker`."""

    store: MemoryStore
    keys: Keys
    client_id: str
    closed: bool = field(default=False, init=False)

    def ask(self, raw: bytes) -> None:
        """See `ClientBroker.ask`."""
        _check_open(closed=self.closed)
        self.store.add(self.keys.rpc(), raw)

    def answers(self, *, after: EntryId, block_ms: int) -> list[Delivery]:  # noqa: ARG002
        """See `ClientBroker.answers`."""
        _check_open(closed=self.closed)
        key = self.keys.reply(self.client_id)
        found = _later(self.store.stream(key), after, "reply")
        _forget(self.store, key, after)
        return found

    def printed(self, log: LogKey, *, after: EntryId, block_ms: int) -> list[tuple[EntryId, LogChunk]]:  # noqa: ARG002
        """See `ClientBroker.printed`."""
        _check_open(closed=self.closed)
        stream = self.store.stream(_log(self.keys, log)) or MemoryStream()
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
            self.store.remove(self.keys.reply(self.client_id))
        self.closed = True


def _hand_out(store: MemoryStore, keys: list[str], consumer: str, limit: int) -> list[_Found]:
    # One missing stream refuses the whole read, before anything is handed out.
    streams = [(key, store.stream(key) or store.change(key)) for key in keys]
    fresh = [key for key, stream in streams if stream.undelivered]
    return [(key, *each) for key in fresh for each in store.change(key).hand_out(consumer, limit)]


def _held(store: MemoryStore, keys: list[str], consumer: str, limit: int) -> list[_Found]:
    streams = [(key, store.stream(key) or store.change(key)) for key in keys]
    return [(key, *each) for key, stream in streams for each in stream.held(consumer, limit)]


def _later(stream: MemoryStream | None, after: EntryId, source: str) -> list[Delivery]:
    return [Delivery(source, at, cast("bytes", entry)) for at, entry in stream.later(after)] if stream else []


def _forget(store: MemoryStore, key: str, up_to: EntryId) -> None:
    stream = store.stream(key)
    if stream and stream.entries and next(iter(stream.entries)) <= up_to:
        changed = store.change(key)
        changed.entries = dict(changed.later(up_to))


def _log(keys: Keys, log: LogKey) -> str:
    return ContentKeys(keys.namespace).log(log.site, log.task_id, log.fence)


def _append(store: MemoryStore, key: str, entry: object, kept: int) -> None:
    store.make_stream(key)
    store.add(key, entry)
    stream = store.change(key)
    stream.undelivered.clear()
    while len(stream.entries) > kept:
        del stream.entries[next(iter(stream.entries))]


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode(errors="replace")


def _check_open(*, closed: bool) -> None:
    if closed:
        raise BrokerUnreachable("The connection to the in-memory broker was closed by this process")
