"""The folder of one command, as docs/task_folder.md describes it: made before it runs, read and removed after it.

The folder is held open, so that what is read in the end is in the folder that was made, whatever the command has put in
its place. No link is ever followed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
from typing import TYPE_CHECKING, Any, Final, final

from tenure.workers.limits import FOLDERS
from tenure.workers.removal import Removal

if TYPE_CHECKING:
    from collections.abc import Sequence

TASK: Final = "task.json"
RESULT: Final = "result.json"
SECRETS: Final = "secrets"
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_MOST_SECRET_BYTES: Final = 64 * 1024
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FULL_BYTES: Final = 64 * 1024


@final
class TaskFolder:
    """One command's folder. `top` is its descriptor; `unknown_secret` names one that could not be read.

    Args:
        path: where it is.
        keep: where it is moved to in the end; "": it is removed.
    """

    def __init__(self, path: str, keep: str = "") -> None:
        self.top = -1
        self.secrets: dict[str, bytes] = {}
        self.unknown_secret = ""
        self._path = path
        self._keep = keep

    def make(self, task: dict[str, Any] | None, secrets: Sequence[Sequence[str]]) -> None:
        """Make what is not there yet, and copy the secrets (pairs of name and source). Raises OSError."""
        os.makedirs(self._path, mode=0o700, exist_ok=True)  # noqa: PTH103 - pathlib is slow to import
        self.top = os.open(self._path, _READ | os.O_DIRECTORY)
        for name in sorted(FOLDERS):
            try:
                os.mkdir(name, 0o700, dir_fd=self.top)
            except FileExistsError:
                continue
        if task is not None:
            self._write(TASK, self.top, json.dumps(task, indent=1).encode() + b"\n", 0o600)
        for name, source in secrets:
            self._copy_secret(name, source)

    def result(self, limit: int) -> dict[str, Any]:
        """The text of `result.json`, of at most `limit` bytes: `result`, `forbidden`, `damaged`, and `over`."""
        found: dict[str, Any] = {"result": None, "forbidden": "", "damaged": "", "over": False}
        try:
            data = _read(RESULT, self.top, limit)
        except FileNotFoundError:
            return {**found, "damaged": "it left no result.json"}
        except _NotAFile as problem:
            return {**found, "forbidden": f"result.json is {problem}"}
        except OSError as error:
            return {**found, "damaged": f"result.json cannot be read: {error.strerror}"}
        if len(data) > limit:
            return {**found, "over": True}
        try:
            return {**found, "result": data.decode()}
        except UnicodeDecodeError:
            return {**found, "damaged": "result.json is not UTF-8"}

    def disk_is_full(self) -> bool:
        """Whether there is no room on the folder's disk."""
        try:
            disk = os.fstatvfs(self.top)
        except OSError:
            return False
        return disk.f_bavail * disk.f_frsize < _FULL_BYTES or (disk.f_files > 0 and disk.f_favail == 0)

    def dispose(self) -> Removal:
        """Move it to where it shall be kept, and answer the removal of what is left."""
        top, self.top = self.top, -1
        if self._keep and top >= 0 and self._move(top):
            kept = f"{self._keep}/{SECRETS}"
            os.close(top)
            return Removal(kept)
        return Removal(self._path, top)

    def _move(self, top: int) -> bool:
        try:
            os.makedirs(os.path.dirname(self._keep), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120
            os.rename(os.readlink(f"/proc/self/fd/{top}"), self._keep)  # noqa: PTH104, PTH115
        except OSError:
            return False
        return True

    def _copy_secret(self, name: str, source: str) -> None:
        # Until it is there.
        self.unknown_secret = name
        value = _read(source, None, _MOST_SECRET_BYTES)
        if len(value) > _MOST_SECRET_BYTES or not _NAME.fullmatch(name):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        folder = os.open(SECRETS, _READ | os.O_DIRECTORY, dir_fd=self.top)
        try:
            self._write(name, folder, value, 0o400)
        finally:
            os.close(folder)
        self.secrets[name] = value
        self.unknown_secret = ""

    @staticmethod
    def _write(name: str, folder: int, data: bytes, mode: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
        file = os.open(name, _WRITE, mode, dir_fd=folder)
        try:
            while data:
                data = data[os.write(file, data) :]
        finally:
            os.close(file)


class _NotAFile(OSError):
    """A link, folder, device or pipe where a file should be."""


def _read(path: str, folder: int | None, limit: int) -> bytes:
    """The beginning of a regular file, one byte more than `limit` if there is more. Raises OSError."""
    try:
        file = os.open(path, _READ, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _NotAFile("a link") from None
        if error.errno == errno.ENXIO:
            raise _NotAFile("no regular file") from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise _NotAFile("no regular file")
        data = b""
        while len(data) <= limit and (piece := os.read(file, limit + 1 - len(data))):
            data += piece
    finally:
        os.close(file)
    return data
