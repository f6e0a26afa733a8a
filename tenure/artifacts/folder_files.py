"""The files of a store in a folder: opened without following links, compared, and safe on the disk."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from tenure.artifacts.content import damaged
from tenure.errors import UnknownArtifact

if TYPE_CHECKING:
    import re
    from collections.abc import Generator
    from pathlib import Path

    from tenure.protocol.artifact import Blob

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
MS: Final = 1_000_000
"""Nanoseconds in a millisecond: file times come in the former."""


@contextmanager
def opened(path: Path, blob: Blob) -> Generator[int]:
    """The file of a content, opened for reading. Raises `UnknownArtifact`, or `ArtifactDamaged` for a link."""
    try:
        descriptor = os.open(path, _READ)
    except FileNotFoundError:
        raise UnknownArtifact(f"The store holds no content {blob.digest[:12]}…") from None
    except OSError as error:
        if error.errno not in {errno.ELOOP, errno.ENXIO, errno.ENOTDIR}:
            raise
        raise damaged(blob, "what lies there is no file") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise damaged(blob, "what lies there is no file")
        yield descriptor
    finally:
        os.close(descriptor)


def is_whole(path: Path, blob: Blob) -> bool:
    """Whether an ordinary file of the content's size is there. Raises FileNotFoundError."""
    state = os.lstat(path)
    return stat.S_ISREG(state.st_mode) and state.st_size == blob.size


def is_same(found: os.stat_result, before: os.stat_result) -> bool:
    """Whether it is the same file, and nobody has written to it."""
    return (found.st_ino, found.st_size, found.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)


def write_all(descriptor: int, chunk: bytes, offset: int) -> None:
    """Write the chunk at that offset, to its last byte."""
    rest = memoryview(chunk)
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written


def make_folders(folder: Path) -> None:
    """The folder and those above it, as far as they are not there, safe on the disk."""
    if folder.is_dir():
        return
    make_folders(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make sure that the names in the folder survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # some network mounts cannot do this; they write a rename through
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def names(folder: Path, pattern: re.Pattern[str]) -> list[str]:
    """The names in the folder that fit, sorted; none when it is not there."""
    try:
        return sorted(path.name for path in folder.iterdir() if pattern.fullmatch(path.name))
    except (FileNotFoundError, NotADirectoryError):
        return []


def changed_ms(path: Path) -> int:
    """When the file or folder was last changed, by the clock of whoever serves it. Raises FileNotFoundError."""
    return os.lstat(path).st_mtime_ns // MS
