"""What the driver's errors mean: each becomes one of `tenure.errors`, saying what, to what, and what to do.

The address in a message is host and port or a socket's path; user and password never appear.
"""

from __future__ import annotations

import ssl
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import redis.exceptions

from tenure.broker.redis_replies import ReplyTooLarge
from tenure.errors import (
    BrokerError,
    BrokerFull,
    BrokerRefused,
    BrokerUnreachable,
    CredentialRefused,
    ReplyBeyondMeasure,
    StreamMissing,
)

if TYPE_CHECKING:
    from collections.abc import Generator

_REMEDY_UNREACHABLE: Final = "Check that the broker runs there and that the network lets this host through"
_REMEDY_FULL: Final = "Raise its maxmemory, or find what fills it"

_BY_FIRST_WORD: Final = MappingProxyType(
    {
        "NOGROUP": (StreamMissing, "has lost a stream or its group", "The coordinator makes it again; wait for it"),
        "UNBLOCKED": (StreamMissing, "has lost a stream or its group", "The coordinator makes it again; wait for it"),
        "NOPERM": (BrokerRefused, "does not allow this user to do that", "Give the user the rights of its role"),
        "WRONGTYPE": (BrokerRefused, "holds something else under one of our keys", "Choose another namespace"),
        "READONLY": (BrokerRefused, "is a read-only replica", "Connect to the primary"),
        "MOVED": (BrokerRefused, "is a cluster node without our slot", "Connect to the node that serves the namespace"),
        "OOM": (BrokerFull, "has reached its memory limit and refuses writes", _REMEDY_FULL),
        "MISCONF": (BrokerFull, "cannot write to its disk and refuses writes", "Free space on its disk"),
        "CLUSTERDOWN": (BrokerUnreachable, "belongs to a cluster that is down", _REMEDY_UNREACHABLE),
        "MASTERDOWN": (BrokerUnreachable, "is a replica whose primary is down", _REMEDY_UNREACHABLE),
        "TRYAGAIN": (BrokerUnreachable, "is moving our slot", "Try again"),
        "LOADING": (BrokerUnreachable, "is still loading its data", "Wait until it has"),
    }
)

_ENDED: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError)

_CODES_THAT_THE_DRIVER_STRIPS: Final = (
    (redis.exceptions.NoPermissionError, "NOPERM"),
    (redis.exceptions.OutOfMemoryError, "OOM"),
    (redis.exceptions.ReadOnlyError, "READONLY"),
    (redis.exceptions.BusyLoadingError, "LOADING"),
    (redis.exceptions.MovedError, "MOVED"),
    (redis.exceptions.MasterDownError, "MASTERDOWN"),
    (redis.exceptions.ClusterDownError, "CLUSTERDOWN"),
    (redis.exceptions.TryAgainError, "TRYAGAIN"),
    (redis.exceptions.ExecAbortError, "EXECABORT"),
)


def first_word(error: redis.exceptions.RedisError) -> str:
    """The code that the server's error began with; redis-py strips it where it has a class of its own."""
    for kind, code in _CODES_THAT_THE_DRIVER_STRIPS:
        if isinstance(error, kind):
            return code
    return str(error).partition(" ")[0]


@contextmanager
def translated(address: str) -> Generator[None]:
    """Let the driver's errors out as `BrokerError`s about `address`, with their cause kept."""
    try:
        yield
    except (redis.exceptions.RedisError, OSError) as error:
        raise translate(error, address) from error


def translate(error: redis.exceptions.RedisError | OSError, address: str) -> BrokerError:
    """The error of ours that `error`, met at `address`, means."""
    if isinstance(error, redis.exceptions.ResponseError | redis.exceptions.BusyLoadingError):
        return _answered_no(error, address)
    if isinstance(error, redis.exceptions.AuthenticationError | redis.exceptions.AuthorizationError):
        return CredentialRefused(f"The broker at {address} refuses this user or password", "Check the broker URL")
    if isinstance(error, redis.exceptions.InvalidResponse):
        return BrokerRefused(f"What answers at {address} is not a Redis or Valkey server", "Check the broker URL")
    # An end in the middle is what a broker that is killed, or closes a connection, looks like through TLS.
    if isinstance(error.__context__, ssl.SSLError) and not isinstance(error.__context__, _ENDED):
        return _tls(error.__context__, address)
    if isinstance(error, redis.exceptions.TimeoutError):
        return BrokerUnreachable(f"The broker at {address} did not answer in time", _REMEDY_UNREACHABLE)
    unreachable = ReplyBeyondMeasure if isinstance(error, ReplyTooLarge) else BrokerUnreachable
    return unreachable(f"The broker at {address} cannot be reached: {_reason(error)}", _REMEDY_UNREACHABLE)


def _answered_no(error: redis.exceptions.RedisError, address: str) -> BrokerError:
    code = first_word(error)
    kind, what, remedy = _BY_FIRST_WORD.get(code, (BrokerRefused, "refused a command", "See what it says"))
    return kind(f"The broker at {address} {what} ({str(error).removeprefix(code).strip() or code})", remedy)


def _tls(error: ssl.SSLError, address: str) -> BrokerError:
    what = getattr(error, "reason", None) or str(error)
    remedy = "Check rediss:// or redis://, and the certificates named in the broker URL (ssl_ca_certs, ssl_certfile)"
    return BrokerRefused(f"The broker at {address} and this client do not agree on TLS ({what})", remedy)


def _reason(error: Exception) -> str:
    """The operating system's words when it spoke; the driver repeats the address around them."""
    cause = error.__context__
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return str(error).removesuffix(".")
