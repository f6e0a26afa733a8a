"""One connection to a Redis or Valkey server: commands in, replies or `tenure.errors` out.

It is made on first use, and again after an error by the next call, each time with what the file of the address says
then; nothing is ever sent twice. One thread uses it at a
time, except for `close`, which any thread may call: a reader that is blocked then ends with `BrokerUnreachable`.

Built on redis-py's connection rather than on its client: no pool (a face has one connection), no hidden retries (the
driver's default repeats an XADD whose answer was late), no CLIENT SETINFO (users with few rights may not), and several
times less work per command.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast, final

import redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as DriverConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as DriverTimeoutError
from redis.retry import Retry

from tenure.broker.redis_errors import translate, translated
from tenure.broker.redis_replies import BoundedReplies
from tenure.broker.url import BrokerUrl
from tenure.errors import BrokerUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["Answer", "BrokerUrl", "Command", "RedisConnection", "Reply"]

Command: TypeAlias = "Sequence[str | bytes | int]"
Reply: TypeAlias = "bytes | int | list[Reply] | None"
Answer: TypeAlias = "Reply | ResponseError"

DEFAULT_TIMEOUT_MS: Final = 5_000
BLOCK_SLACK_MS: Final = 3_000
"""How much longer than asked a server may block before the connection counts as dead."""


class _Driver(Protocol):
    """What is used of redis-py's connection, with the types that it does not state."""

    def send_packed_command(self, command: object, check_health: bool = ...) -> None: ...  # noqa: FBT001
    def pack_commands(self, commands: Iterable[Command]) -> list[bytes]: ...
    def read_response(self, *, timeout: float = ...) -> Reply: ...
    def disconnect(self) -> None: ...
    @property
    def is_connected(self) -> bool: ...


@final
class RedisConnection:
    """A connection to the broker at `url`.

    Args:
        url: where the broker is; see `tenure.broker.url`.
        timeout_ms: how long connecting and any command that does not block may take.
    """

    def __init__(self, url: BrokerUrl, *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> None:
        self._url = url
        self._timeout_ms = timeout_ms
        self._driver = _driver(url, timeout_ms)
        self._closed = False
        self._in_use = Lock()

    def call(self, *command: str | bytes | int, block_ms: int = 0) -> Reply:
        """Send one command that the server may answer up to `block_ms` late; its reply. Raises `BrokerError`."""
        reply = self.call_all((command,), block_ms=block_ms)[0]
        return self.checked(reply)

    def call_bounded(self, *command: str | bytes | int, room: int, block_ms: int = 0) -> Reply:
        """As `call`, for reading what others have written: of each list in the reply at most `room` bytes are kept.

        Raises `BrokerError`: `ReplyBeyondMeasure` when the reply was that.
        """
        return self.checked(self._use(lambda: [self._exchange_bounded(command, room, block_ms)])[0])

    def call_all(self, commands: Sequence[Command], *, block_ms: int = 0) -> list[Answer]:
        """Send all commands at once; one reply each, in order, with the server's refusals among them.

        Raises:
            BrokerUnreachable: the connection was lost; any prefix of the commands may have been carried out.
            BrokerRefused: the broker let nobody in; nothing was carried out.
        """
        return self._use(lambda: self._exchange(commands, block_ms))

    def checked(self, answer: Answer) -> Reply:
        """The answer, unless it is a refusal. Raises `BrokerError`."""
        if isinstance(answer, ResponseError):
            raise translate(answer, self.address) from answer
        return answer

    def close(self) -> None:
        """Cut the connection for good, from any thread.

        While another thread uses it, it is only shut down, which wakes that thread, and that thread closes it: a closed
        socket's number is given to the next one at once, and a reader would go on reading from that.
        """
        self._closed = True
        if self._in_use.acquire(blocking=False):
            try:
                self._driver.disconnect()
            finally:
                self._in_use.release()
        else:
            _shut_down(self._driver)

    def sibling(self, *, timeout_ms: int) -> RedisConnection:
        """Another connection to the same broker."""
        return RedisConnection(self._url, timeout_ms=timeout_ms)

    @property
    def address(self) -> str:
        """Where the broker is, fit for messages."""
        return self._url.address

    def _use(self, exchange: Callable[[], list[Answer]]) -> list[Answer]:
        with self._in_use:
            try:
                self._check_open()
                with translated(self.address):
                    self._look_again()
                    return exchange()
            finally:
                if self._closed:
                    self._driver.disconnect()

    def _look_again(self) -> None:
        """Before a connection is made: whoever holds a credential may have been given another one."""
        if self._driver.is_connected:
            return
        latest = self._url.latest()
        if latest != self._url:
            self._driver = _driver(latest, self._timeout_ms)
            self._url = latest

    def _exchange(self, commands: Sequence[Command], block_ms: int) -> list[Answer]:
        self._send(commands)
        timeout = self._patience_s(block_ms)
        return [self._read(timeout) for _ in commands]

    def _send(self, commands: Sequence[Command]) -> None:
        self._driver.send_packed_command(self._driver.pack_commands(commands), check_health=False)
        # After sending, because sending connects: whoever closes from now on finds the socket.
        self._check_open()

    def _patience_s(self, block_ms: int) -> float:
        return (self._timeout_ms if not block_ms else block_ms + BLOCK_SLACK_MS) / 1000

    def _exchange_bounded(self, command: Command, room: int, block_ms: int) -> Answer:
        """Past the driver, which has read every reply before to its end, and would keep this one whole."""
        self._send((command,))
        wire = _socket(self._driver)
        if wire is None:
            raise DriverConnectionError("the connection has just ended")
        try:
            wire.settimeout(self._patience_s(block_ms))
            answer = BoundedReplies(wire.recv, room).read()
            wire.settimeout(self._timeout_ms / 1000)
        except BaseException as error:
            # What is left of the reply would be taken for the next one.
            self._driver.disconnect()
            if self._closed:
                raise self._ended() from None
            if isinstance(error, TimeoutError):
                raise DriverTimeoutError("no answer in time") from error
            raise
        return answer

    def _read(self, timeout: float) -> Answer:
        try:
            return self._driver.read_response(timeout=timeout)
        except ResponseError as error:
            return error
        except RedisError:
            if self._closed:
                raise self._ended() from None
            raise

    def _check_open(self) -> None:
        if self._closed:
            raise self._ended()

    def _ended(self) -> BrokerUnreachable:
        return BrokerUnreachable(f"The connection to the broker at {self.address} was closed by this process")


def _shut_down(driver: _Driver) -> None:
    found = _socket(driver)
    if found is not None:
        with suppress(OSError):
            found.shutdown(socket.SHUT_RDWR)


def _socket(driver: _Driver) -> socket.socket | None:
    found: object = getattr(driver, "_sock", None)  # the driver has no public way to wake its reader, or to read less
    return found if isinstance(found, socket.socket) else None


def _driver(url: BrokerUrl, timeout_ms: int) -> _Driver:
    parts = url.parts()
    kind: object = redis.Connection
    if "path" in parts:
        kind = redis.UnixDomainSocketConnection
    else:
        parts["socket_keepalive"] = True
        if url.encrypted:
            kind = redis.SSLConnection
    seconds = timeout_ms / 1000
    connection = cast("Callable[..., object]", kind)(
        **parts,
        protocol=2,
        driver_info=None,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=seconds,
        socket_connect_timeout=seconds,
    )
    return cast("_Driver", connection)
