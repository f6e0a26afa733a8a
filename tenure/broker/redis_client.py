"""What a client may do, over a Redis or Valkey server: ask, and read and clear its own reply stream."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast, final

from tenure.broker import redis_logs
from tenure.broker.base import ClientAddress, EntryId
from tenure.broker.keys import DEFAULT_PERSON, ContentKeys
from tenure.broker.redis_entries import MESSAGE, deliveries
from tenure.errors import BrokerError, StreamMissing

if TYPE_CHECKING:
    from tenure.broker.base import Delivery, LogChunk, LogKey
    from tenure.broker.keys import Keys
    from tenure.broker.redis_connection import Command, RedisConnection

_ANSWERS_AT_ONCE: Final = 1_000
_GOODBYE_TIMEOUT_MS: Final = 1_000


@final
class RedisClient:
    """A client's face.

    Args:
        connection: used by one thread at a time, and closed by `close`.
        keys: the namespace.
        client_id: names the reply stream.
        person: whose requests these are.
    """

    def __init__(
        self, connection: RedisConnection, keys: Keys, *, client_id: str, person: str = DEFAULT_PERSON
    ) -> None:
        self._connection = connection
        self._keys = keys
        self._contents = ContentKeys(keys.namespace)
        self._requests = keys.rpc(person)
        self._replies = keys.reply(ClientAddress(person, client_id))

    def ask(self, raw: bytes) -> None:
        """See `ClientBroker.ask`."""
        if self._connection.call("XADD", self._requests, "NOMKSTREAM", "*", MESSAGE, raw) is None:
            message = f"No coordinator has opened this namespace at the broker at {self._connection.address}"
            raise StreamMissing(message, "Start the coordinator, or check the namespace and the user")

    def answers(self, *, after: EntryId, block_ms: int) -> list[Delivery]:
        """See `ClientBroker.answers`."""
        wait = ("BLOCK", block_ms) if block_ms else ()
        commands: list[Command] = [("XREAD", "COUNT", _ANSWERS_AT_ONCE, *wait, "STREAMS", self._replies, str(after))]
        if after > EntryId(0, 0):
            commands.insert(0, ("XTRIM", self._replies, "MINID", "=", f"{after.major}-{after.minor + 1}"))
        answers = self._connection.call_all(commands, block_ms=block_ms)
        return deliveries([self._connection.checked(answer) for answer in answers][-1])[0]

    def printed(self, log: LogKey, *, after: EntryId, block_ms: int) -> list[tuple[EntryId, LogChunk]]:
        """See `ClientBroker.printed`."""
        return redis_logs.read(self._connection, self._contents.log(log), after, block_ms)

    def store_address(self) -> str:
        """See `ClientBroker.store_address`."""
        return self._text(self._contents.store())

    def marker(self) -> str:
        """See `ClientBroker.marker`."""
        return self._text(self._keys.incarnation())

    def close(self) -> None:
        """See `ClientBroker.close`."""
        self._connection.close()
        # By a connection of its own, because a reader may be blocked on the other one; what stays behind expires.
        goodbye = self._connection.sibling(timeout_ms=_GOODBYE_TIMEOUT_MS)
        with suppress(BrokerError):
            goodbye.call("DEL", self._replies)
        goodbye.close()

    def _text(self, key: str) -> str:
        return cast("bytes", self._connection.call("GET", key) or b"").decode(errors="replace")
