"""What a worker of one site may do, over a Redis or Valkey server. It never acknowledges anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast, final

from tenure.broker import redis_logs
from tenure.broker.base import Stream, WorkerAddress
from tenure.broker.keys import GROUP, ContentKeys
from tenure.broker.redis_entries import MESSAGE, deliveries, handouts
from tenure.errors import StreamMissing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.broker.base import Delivery, EntryId, Handout, LogChunk, LogKey, StreamEntry
    from tenure.broker.keys import Keys
    from tenure.broker.redis_connection import Command, RedisConnection, Reply

_ORDERS_AT_ONCE: Final = 1_000


@final
class RedisWorker:
    """A worker's face.

    Args:
        connection: used by one thread at a time, and closed by `close`.
        keys: the namespace.
        site: the site that this worker belongs to; it reads and writes nothing of another one's.
        worker_id: the worker, also the name of its consumer.
    """

    def __init__(self, connection: RedisConnection, keys: Keys, *, site: str, worker_id: str) -> None:
        self._connection = connection
        self._keys = keys
        self._contents = ContentKeys(keys.namespace)
        self._me = WorkerAddress(site, worker_id)
        self._inbox = keys.inbox(site)
        self._heartbeat = keys.heartbeat(self._me)

    def take(self, *, capabilities: Sequence[str], limit: int, block_ms: int) -> list[Handout]:
        """See `WorkerBroker.take`."""
        wait = ("BLOCK", block_ms) if block_ms else ()
        return self._read(capabilities, ("COUNT", limit, *wait), ">", block_ms)

    def retake(self, *, capabilities: Sequence[str], limit: int) -> list[Handout]:
        """See `WorkerBroker.retake`."""
        return self._read(capabilities, ("COUNT", limit), "0", 0)

    def look(self, entry: StreamEntry) -> Handout | None:
        """See `WorkerBroker.look`."""
        key, at = self._keys.assignments(entry.stream), str(entry.entry_id)
        found = handouts([[key.encode(), self._connection.call("XRANGE", key, at, at)]])
        return found[0] if found else None

    def orders(self, *, after: EntryId, block_ms: int) -> list[Delivery]:
        """See `WorkerBroker.orders`."""
        wait = ("BLOCK", block_ms) if block_ms else ()
        key = self._keys.control(self._me)
        reply = self._connection.call(
            *("XREAD", "COUNT", _ORDERS_AT_ONCE, *wait, "STREAMS", key, str(after)), block_ms=block_ms
        )
        return deliveries(reply)[0]

    def report(self, reports: Sequence[bytes]) -> None:
        """See `WorkerBroker.report`."""
        if not reports:
            return
        answers = self._connection.call_all(
            [("XADD", self._inbox, "NOMKSTREAM", "*", MESSAGE, report) for report in reports]
        )
        if None in [self._connection.checked(answer) for answer in answers]:
            raise StreamMissing(f"The inbox of this site is missing at the broker at {self._connection.address}")

    def beat(self, heartbeat: bytes, ttl_ms: int) -> str:
        """See `WorkerBroker.beat`."""
        commands = [("SET", self._heartbeat, heartbeat, "PX", ttl_ms), ("GET", self._keys.echo(self._me))]
        # A full server would still move the old heartbeat's end, but that renews nothing: its sequence stays the same.
        _, echo = [self._connection.checked(answer) for answer in self._connection.call_all(commands)]
        return _text(echo)

    def print(self, log: LogKey, chunks: Sequence[LogChunk], keep: int) -> None:
        """See `WorkerBroker.print`."""
        redis_logs.add(self._connection, self._contents.log(log), chunks, keep)

    def store_address(self) -> str:
        """See `WorkerBroker.store_address`."""
        return _text(self._connection.call("GET", self._contents.store()))

    def farewell(self) -> None:
        """See `WorkerBroker.farewell`."""
        self._connection.call("DEL", self._heartbeat)

    def marker(self) -> str:
        """See `WorkerBroker.marker`."""
        return _text(self._connection.call("GET", self._keys.incarnation()))

    def close(self) -> None:
        """See `WorkerBroker.close`."""
        self._connection.close()

    def _read(
        self, capabilities: Sequence[str], options: tuple[str | int, ...], after: str, block_ms: int
    ) -> list[Handout]:
        site, worker_id = self._me.site, self._me.worker_id
        streams = [*(Stream(site, capability=each) for each in capabilities), Stream(site, worker_id=worker_id)]
        keys = [self._keys.assignments(each) for each in streams]
        who = ("XREADGROUP", "GROUP", GROUP, worker_id)
        command: Command = (*who, *options, "STREAMS", *keys, *[after] * len(keys))
        return handouts(self._connection.call(*command, block_ms=block_ms), own=keys[-1].encode())


def _text(reply: Reply) -> str:
    return cast("bytes", reply or b"").decode(errors="replace")
