"""The logs of attempts as a porter reads them from a Redis or Valkey server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from tenure.artifacts.lending import Lending
from tenure.broker import redis_logs
from tenure.broker.base import EntryId
from tenure.broker.redis_connection import RedisConnection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tenure.broker.base import LogChunk, LogKey
    from tenure.broker.keys import ContentKeys
    from tenure.broker.url import BrokerUrl

_LAST_MS: Final = 15 * 60_000


@final
class BrokerLogs:
    """See `tenure.artifacts.log_keeping.Logs`. Safe to use from several threads.

    Args:
        broker: where the broker is.
        keys: the namespace.
    """

    def __init__(self, broker: BrokerUrl, keys: ContentKeys) -> None:
        self._keys = keys
        self._connections: Lending[RedisConnection] = Lending(lambda: RedisConnection(broker), RedisConnection.close)

    def chunks(self, log: LogKey) -> Iterator[LogChunk]:
        """See `Logs.chunks`."""
        key, after = self._keys.log(log), EntryId(0, 0)
        with self._connections.lent() as connection:
            while found := redis_logs.read(connection, key, after, 0):
                after = found[-1][0]
                yield from (chunk for _, chunk in found)

    def expire(self, log: LogKey) -> None:
        """See `Logs.expire`."""
        with self._connections.lent() as connection:
            connection.call("PEXPIRE", self._keys.log(log), _LAST_MS)

    def close(self) -> None:
        """Let go of connections."""
        self._connections.close()
