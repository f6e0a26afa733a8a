"""How much a folder holds, counted in steps while its task writes: files, bytes on the disk, the largest file."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Generator

DEEPEST: Final = 200
"""Folders below folders below this many are not looked into: they count as too many files."""
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_BLOCK: Final = 512
_OWNER: Final = 0o700
_MOST_DESCRIPTORS: Final = 4_096


@final
class Scan:
    """One walk over the folder of that descriptor. Links are counted and not followed.

    `files` counts everything in it but the folders `expected` at its top; `used` is bytes on the disk, where a file
    with several names counts once; `largest` leaves out what is `given` at its top.
    """

    def __init__(
        self, folder: int, expected: frozenset[str] = frozenset(), given: frozenset[str] = frozenset()
    ) -> None:
        self.files = 0
        self.used = 0
        self.largest = 0
        self.too_deep = False
        self._folder = folder
        self._expected = expected
        self._given = given
        self._linked: set[int] = set()
        self._work = self._below(".", folder, 0, written=True)

    def step(self, entries: int) -> bool:
        """Look at so many entries; True when all were seen."""
        return any(next(self._work, None) is None for _ in range(entries))

    def close(self) -> None:
        """Give up."""
        self._work.close()

    def add_unlinked(self, pids: list[int]) -> None:
        """Add files without a name that these processes hold open on the folder's disk."""
        device = os.fstat(self._folder).st_dev
        looked = 0
        for pid in pids:
            for descriptor in _descriptors(pid):
                looked += 1
                if looked > _MOST_DESCRIPTORS:
                    return
                try:
                    found = os.stat(f"/proc/{pid}/fd/{descriptor}")  # noqa: PTH116 - pathlib is slow to import
                except OSError:
                    continue
                if found.st_nlink == 0 and found.st_dev == device and stat.S_ISREG(found.st_mode):
                    self._add(found, written=True)

    def _walk(self, folder: int, depth: int, *, written: bool) -> Generator[int, None, None]:
        try:
            names = os.listdir(folder)
            for name in names:
                try:
                    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                except OSError:
                    continue
                is_folder = stat.S_ISDIR(found.st_mode)
                if not (depth == 1 and is_folder and name in self._expected):
                    self.files += 1
                is_written = written and not (depth == 1 and name in self._given)
                self._add(found, written=is_written)
                yield self.files + 1
                if is_folder:
                    yield from self._below(name, folder, depth, written=is_written)
        finally:
            os.close(folder)

    def _below(self, name: str, folder: int, depth: int, *, written: bool) -> Generator[int, None, None]:
        if depth >= DEEPEST:
            self.too_deep = True
            return
        try:
            opened = _open(name, folder)
        except OSError:
            return
        yield from self._walk(opened, depth + 1, written=written)

    def _add(self, found: os.stat_result, *, written: bool) -> None:
        if stat.S_ISREG(found.st_mode):
            if written:
                self.largest = max(self.largest, found.st_size)
            if found.st_nlink != 1:
                if found.st_ino in self._linked:
                    return
                self._linked.add(found.st_ino)
        self.used += found.st_blocks * _BLOCK


def _open(name: str, folder: int) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except PermissionError:
        # Its task has hidden it, from the one who counts as well.
        os.chmod(name, _OWNER, dir_fd=folder)
        return os.open(name, _FOLDER, dir_fd=folder)


def _descriptors(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208 - pathlib is slow to import
    except OSError:
        return []
