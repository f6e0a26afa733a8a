"""Files below a folder, reached so that no link can lead out of it.

Every part of a path is opened by itself, below the part before it and without following links. Whoever exchanges a
folder for a link while this goes on is met with `ForbiddenPath`, not with another folder's files.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Final

from tenure.errors import ForbiddenPath, TooManyFiles
from tenure.protocol.artifact import MAX_FILES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe that has taken a file's place would wait for a writer.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_SHOWN: Final = 200
_MOST_ENTRIES: Final = 2 * MAX_FILES
"""As many files as may be in a bundle, and as many folders beside them."""
_KINDS: Final = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISREG, "a file"),
)


def shown(path: str) -> str:
    """The path, fit for a message: what cannot be printed is escaped, and it is cut when it is long."""
    text = repr(path)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def kind_of(mode: int) -> str:
    """What a directory entry is, in words."""
    return next((name for test, name in _KINDS if test(mode)), "no file")


def forbidden(path: str, why: str) -> ForbiddenPath:
    """The error about a path that may not be there."""
    return ForbiddenPath(f"{shown(path)} {why}", "Only files and folders may be there, under readable names")


@contextmanager
def root_folder(folder: str) -> Generator[int]:
    """The folder that everything is below, opened; it may not be a link itself. Raises FileNotFoundError."""
    try:
        descriptor = os.open(folder, _FOLDER)
    except OSError as error:
        raise _explained(error, folder.rsplit("/", 1)[-1], lambda: os.lstat(folder)) from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def folder_below(root: int, path: str) -> Generator[int]:
    """A folder below an open one; "" is the open one itself. Raises `ForbiddenPath` and FileNotFoundError."""
    current = os.dup(root)
    try:
        passed: list[str] = []
        for part in filter(None, path.split("/")):
            passed.append(part)
            above, current = current, _opened(current, part, "/".join(passed))
            os.close(above)
        yield current
    finally:
        os.close(current)


@contextmanager
def file_in(folder: int, name: str, path: str) -> Generator[tuple[int, os.stat_result]]:
    """An ordinary file in an open folder, opened for reading; `path` is what messages call it."""
    descriptor = -1
    try:
        try:
            descriptor = os.open(name, _FILE, dir_fd=folder)
        except OSError as error:
            raise _explained(error, path, lambda: os.lstat(name, dir_fd=folder)) from None
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise forbidden(path, f"is {kind_of(found.st_mode)}")
        yield descriptor, found
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def entries(folder: int, path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Name and state of everything in an open folder, sorted by name; nothing is followed.

    A program may fill a folder with millions of names: they are counted while they are read. Raises `TooManyFiles`.
    """
    with os.scandir(folder) as found:
        names = [entry.name for entry in islice(found, _MOST_ENTRIES + 1)]
    if len(names) > _MOST_ENTRIES:
        raise TooManyFiles(f"There are more than {_MOST_ENTRIES} names in {shown(path)}", "Pack them into an archive")
    for name in sorted(names):
        with suppress(FileNotFoundError):  # a program that still runs may tidy up beside us
            yield name, os.stat(name, dir_fd=folder, follow_symlinks=False)


def make_folder(folder: int, name: str, path: str) -> int:
    """The folder of that name in an open one, made when it is not there, opened. The caller closes it."""
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)
    return _opened(folder, name, path)


def _opened(folder: int, name: str, path: str) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except OSError as error:
        raise _explained(error, path, lambda: os.lstat(name, dir_fd=folder)) from None


def _explained(error: OSError, path: str, look: Callable[[], os.stat_result]) -> Exception:
    """What an open that failed means: links and the like are forbidden, what is not there is not there."""
    if error.errno in {errno.ELOOP, errno.ENOTDIR, errno.ENXIO}:
        try:
            return forbidden(path, f"is {kind_of(look().st_mode)}")
        except OSError:
            return forbidden(path, "is no ordinary file")
    if isinstance(error, PermissionError):
        return forbidden(path, "may not be read by this user")
    return error
