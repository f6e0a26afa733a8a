"""The folder of an embedded broker: who holds it, its password, its port, its configuration and its log.

`lock` is held by the server process itself (it inherits the open file), so the folder is free exactly when no server
runs on it, whoever else was killed. `password`, `users.acl` and `server.conf` are readable by the owner alone.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from tenure.broker.credentials import digest_of

if TYPE_CHECKING:
    from pathlib import Path

    from tenure.clock import Entropy

_PRIVATE: Final = 0o600
_USERS: Final = "users.acl"
_PASSWORD_BYTES: Final = 32
_LOG_BYTES_KEPT: Final = 4 * 1024 * 1024
_TAIL_BYTES: Final = 4_096


@final
@dataclass(frozen=True, slots=True)
class EmbeddedFolder:
    """The files in `path`. Methods raise OSError."""

    path: Path

    def prepare(self) -> None:
        """Make the folder, for its owner only when it is new."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def lock(self) -> int | None:
        """An open file that holds the folder for as long as any process has it open; None when somebody else does."""
        held = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PRIVATE)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)
            return None
        return held

    def password(self, entropy: Entropy) -> str:
        """The password of this folder's servers, drawn once."""
        path = self.path / "password"
        with suppress(FileNotFoundError):
            if found := path.read_text().strip():
                return found
        password = entropy.token(_PASSWORD_BYTES)
        self._write("password", password)
        return password

    def users(self, password: str) -> Path:
        """The file of the server's users: those that were made, and `default`, an administrator by this password.

        Whoever reads this folder has the password and the server's data anyway, so nothing is won by turning that off.
        """
        path = self.path / _USERS
        kept: list[str] = []
        with suppress(FileNotFoundError):
            kept = [line for line in path.read_text().splitlines() if line.split()[:2] != ["user", "default"]]
        return self._write(_USERS, "\n".join([f"user default on #{digest_of(password)} ~* &* +@all", *kept, ""]))

    def last_port(self) -> int:
        """The port that the last server listened on; 0 when there was none."""
        try:
            return int((self.path / "port").read_text())
        except (FileNotFoundError, ValueError):
            return 0

    def remember_port(self, port: int) -> None:
        """Try this port first next time, so that workers find the broker again."""
        self._write("port", str(port))

    def configure(self, lines: list[str]) -> Path:
        """Write the server's configuration."""
        return self._write("server.conf", "\n".join([*lines, ""]))

    def open_log(self) -> int:
        """The log, open for appending; a long one is set aside first."""
        path = self.path / "server.log"
        if path.exists() and path.stat().st_size > _LOG_BYTES_KEPT:
            path.replace(self.path / "server.log.1")
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _PRIVATE)

    def log_since(self, offset: int) -> str:
        """What the log has taken in since it was `offset` bytes long, its last few lines."""
        with (self.path / "server.log").open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(offset, end - _TAIL_BYTES))
            return log.read().decode(errors="replace")

    def _write(self, name: str, text: str) -> Path:
        path = self.path / name
        draft = path.with_suffix(".new")
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE), "w") as file:
            file.write(text)
        return draft.replace(path)
