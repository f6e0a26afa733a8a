"""What the coordinator may do, over a Redis or Valkey server.

Everything that comes in is read by one consumer, so what was received and not settled is found again by `unsettled`,
whoever ran before. All writes of a call travel at once.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast, final

from tenure.broker import redis_publishing
from tenure.broker.base import BrokerState, PendingEntry, Readers, WorkerAddress
from tenure.broker.keys import GROUP, ContentKeys
from tenure.broker.redis_entries import MESSAGE, deliveries, parse_id
from tenure.broker.redis_errors import first_word
from tenure.broker.redis_sites import RedisSites
from tenure.protocol.message import MAX_ENTRY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tenure.broker.base import (
        Delivery,
        EntryId,
        Mailing,
        Publication,
        PublishOutcome,
        SiteKeys,
        Stream,
        StreamEntry,
        WithdrawOutcome,
    )
    from tenure.broker.keys import Keys
    from tenure.broker.redis_connection import Command, RedisConnection, Reply

CONSUMER: Final = "coordinator"

_READ: Final = ("XREADGROUP", "GROUP", GROUP, CONSUMER)
_CONTROL_LIFE_S: Final = 24 * 3_600
_REPLY_LIFE_S: Final = 3_600
_PENDING_PAGE: Final = 1_000
_ROOM_BYTES: Final = MAX_ENTRY_BYTES + 1_024
"""Of each entry no more is kept: its message with its frame, and a little of what is over, so that it is refused."""


@final
@dataclass(slots=True)
class RedisCoordinator:
    """The coordinator's face. One thread uses it; whoever made the connection closes it, from any thread."""

    connection: RedisConnection
    keys: Keys
    sites: SiteKeys = field(init=False)

    def __post_init__(self) -> None:
        self.sites = RedisSites(self.connection, self.keys)

    def state(self) -> BrokerState:
        """See `CoordinatorBroker.state`."""
        replies = self._all([("INFO", "server"), ("INFO", "memory"), ("GET", self.keys.incarnation())])
        info = _info(replies[0]) | _info(replies[1])
        return BrokerState(
            run_id=info.get("run_id", ""),
            marker=cast("bytes", replies[2] or b"").decode(errors="replace"),
            version=_version(info),
            eviction_policy=info.get("maxmemory_policy", ""),
        )

    def mark(self, marker: str, store_address: str = "") -> None:
        """See `CoordinatorBroker.mark`."""
        store = ContentKeys(self.keys.namespace).store()
        self.connection.call("MSET", store, store_address, self.keys.incarnation(), marker)

    def ensure_streams(self, *, readers: Readers, assignments: Sequence[Stream] = ()) -> None:
        """See `CoordinatorBroker.ensure_streams`."""
        keys = [*self._origins(readers), *map(self.keys.assignments, assignments)]
        commands = [("XGROUP", "CREATE", key, GROUP, "0", "MKSTREAM") for key in keys]
        for answer in self.connection.call_all(commands):
            if not isinstance(answer, Exception) or first_word(answer) != "BUSYGROUP":
                self.connection.checked(answer)

    def receive(self, *, readers: Readers, limit: int, block_ms: int) -> list[Delivery]:
        """See `CoordinatorBroker.receive`."""
        wait = ("BLOCK", block_ms) if block_ms else ()
        return self._read(readers, ("COUNT", limit, *wait), ">", block_ms)[0]

    def unsettled(self, *, readers: Readers, limit: int) -> list[Delivery]:
        """See `CoordinatorBroker.unsettled`."""
        found, some_were_gone = self._read(readers, ("COUNT", limit), "0", 0)
        while some_were_gone:  # in the place of others, which were not read for that
            found, some_were_gone = self._read(readers, ("COUNT", limit), "0", 0)
        return found

    def settle(
        self,
        deliveries: Sequence[Delivery],
        ended: Sequence[StreamEntry] = (),
        departed: Sequence[WorkerAddress] = (),
    ) -> None:
        """See `CoordinatorBroker.settle`."""
        if departed:
            self.connection.call("DEL", *(key for each in departed for key in self.keys.of_departed(each)))
        received = [(self._source_key(each), str(each.entry_id)) for each in deliveries]
        self._remove(received + [(self.keys.assignments(each.stream), str(each.entry_id)) for each in ended])

    def publish(self, publications: Sequence[Publication]) -> list[PublishOutcome]:
        """See `CoordinatorBroker.publish`."""
        return redis_publishing.publish(self.connection, self.keys, publications)

    def withdraw(self, entries: Sequence[StreamEntry]) -> list[WithdrawOutcome]:
        """See `CoordinatorBroker.withdraw`."""
        return redis_publishing.withdraw(self.connection, self.keys, entries)

    def published(self, stream: Stream) -> EntryId:
        """See `CoordinatorBroker.published`."""
        return redis_publishing.last_id(self.connection, self.keys.assignments(stream))

    def pending(self, stream: Stream) -> list[PendingEntry]:
        """See `CoordinatorBroker.pending`."""
        key = self.keys.assignments(stream)
        found: list[PendingEntry] = []
        start = "-"
        while True:
            answer = self.connection.call_all([("XPENDING", key, GROUP, start, "+", _PENDING_PAGE)])[0]
            if isinstance(answer, Exception) and first_word(answer) == "NOGROUP":
                return found
            page = cast("list[tuple[bytes, bytes, int, int]]", self.connection.checked(answer))
            found.extend(PendingEntry(parse_id(at), worker.decode(errors="replace")) for at, worker, *_ in page)
            if len(page) < _PENDING_PAGE:
                return found
            start = f"({found[-1].entry_id}"

    def post(self, mailings: Sequence[Mailing], echoes: Mapping[WorkerAddress, str], echo_ttl_ms: int) -> None:
        """See `CoordinatorBroker.post`."""
        commands: list[Command] = []
        lives: dict[str, int] = {}
        for mailing in mailings:
            if isinstance(mailing.to, WorkerAddress):
                key, life = self.keys.control(mailing.to), _CONTROL_LIFE_S
            else:
                key, life = self.keys.reply(mailing.to), _REPLY_LIFE_S
            lives[key] = life
            commands.append(("XADD", key, "MAXLEN", "~", mailing.kept, "*", MESSAGE, mailing.raw))
        commands.extend(("EXPIRE", key, life) for key, life in lives.items())
        commands.extend(("SET", self.keys.echo(to), echo, "PX", echo_ttl_ms) for to, echo in echoes.items())
        self._all(commands)

    def _read(
        self, readers: Readers, options: tuple[str | int, ...], after: str, block_ms: int
    ) -> tuple[list[Delivery], bool]:
        """What was read, and whether the contents of some entries were gone, which are then taken away."""
        origins = {key.encode(): origin for key, origin in self._origins(readers).items()}
        if not origins:
            return [], False
        command: Command = (*_READ, *options, "STREAMS", *origins, *[after] * len(origins))
        reply = self.connection.call_bounded(*command, room=_ROOM_BYTES, block_ms=block_ms)
        found, gone = deliveries(reply, origins)
        if gone:
            self._remove((key.decode(), at.decode()) for key, at in gone)
        return found, bool(gone)

    def _remove(self, found: Iterable[tuple[str, str]]) -> None:
        by_key: defaultdict[str, list[str]] = defaultdict(list)
        for key, at in found:
            by_key[key].append(at)
        commands: list[Command] = []
        for key, ids in by_key.items():
            commands.extend((("XACK", key, GROUP, *ids), ("XDEL", key, *ids)))
        self._all(commands)

    def _origins(self, readers: Readers) -> dict[str, tuple[str, str]]:
        inboxes = {self.keys.inbox(site): (site, "") for site in readers.sites}
        return inboxes | {self.keys.rpc(person): ("", person) for person in readers.people}

    def _source_key(self, delivery: Delivery) -> str:
        return self.keys.inbox(delivery.site) if delivery.site else self.keys.rpc(delivery.person)

    def _all(self, commands: Sequence[Command]) -> list[Reply]:
        if not commands:
            return []
        return [self.connection.checked(answer) for answer in self.connection.call_all(commands)]


def _info(reply: Reply) -> dict[str, str]:
    lines = cast("bytes", reply).decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _version(info: Mapping[str, str]) -> str:
    if "valkey_version" in info:
        return f"valkey {info['valkey_version']}"
    return f"redis {info.get('redis_version', '')}".strip()
