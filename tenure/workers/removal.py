"""Removing a folder whatever is in it: a hundred thousand files, ten thousand levels, folders that nobody may read.

In steps, so that a runner can look after its tree meanwhile. Links are removed and never followed. Nobody else may
write into the folder any more. Folders below folders are moved up before they are emptied, so that depth costs nothing.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OWNER: Final = 0o700
_LINKS_WITHOUT_FOLDERS: Final = 2
"""The name and the dot; each folder in it adds its two dots, where the file system counts at all."""


@final
class Removal:
    """The removal of one folder, or of the link or file of that name.

    Args:
        path: where it is.
        top: its descriptor, when it is open already: it is removed also where its task has moved it to. It is closed.
    """

    def __init__(self, path: str, top: int = -1) -> None:
        self._path = path
        self._top = top
        self._count = 0
        self._moved = 0
        self._work = self._remove()

    def step(self, entries: int) -> bool:
        """Remove about so many entries; True when all is done that can be done."""
        enough = self._count + entries
        while self._count < enough:
            if next(self._work, None) is None:
                return True
        return False

    def finish(self) -> None:
        """Remove everything."""
        while not self.step(1_000):
            pass

    def _remove(self) -> Iterator[int]:
        if self._top < 0:
            self._top = self._open(self._path, None)
        if self._top >= 0:
            yield from self._empty_all()
            path = os.readlink(f"/proc/self/fd/{self._top}")  # noqa: PTH115 - pathlib is slow to import
            os.close(self._top)
            _try_to_remove(path, None)
        # Whatever its task has put in its place.
        _try_to_remove(self._path, None)

    def _empty_all(self) -> Iterator[int]:
        _make_accessible(self._top)
        folders = [""]
        while folders:
            name = folders.pop()
            opened = self._open(name, self._top) if name else os.dup(self._top)
            if opened < 0:
                _try_to_remove(name, self._top)
                continue
            try:
                yield from self._empty(opened, folders, is_top=not name)
            finally:
                os.close(opened)
            if name:
                _try_to_remove(name, self._top)

    def _empty(self, folder: int, folders: list[str], *, is_top: bool) -> Iterator[int]:
        """Remove what is in the folder; what is a folder itself comes to the top and to `folders`."""
        seen = -1
        while seen != 0:
            seen = 0
            # A folder that changes may not be listed whole: it is listed again until nothing can be done.
            for name in _names(folder):
                self._count += 1
                yield self._count
                if _try_to_remove(name, folder):
                    seen += 1
                elif not is_top and _is_folder(name, folder) and (moved := self._move_up(name, folder)):
                    folders.append(moved)
                    seen += 1
                elif is_top and _is_folder(name, folder):
                    folders.append(name)
            if is_top:
                return

    def _move_up(self, name: str, folder: int) -> str:
        """The new name of the folder below the top; "" when it cannot be moved."""
        opened = self._open(name, folder)
        if opened >= 0:
            os.close(opened)
        for _ in range(100):
            self._moved += 1
            moved = f".removed-{self._moved}"
            try:
                os.stat(moved, dir_fd=self._top, follow_symlinks=False)
            except FileNotFoundError:
                try:
                    os.rename(name, moved, src_dir_fd=folder, dst_dir_fd=self._top)
                except OSError:
                    return ""
                return moved
        return ""

    @staticmethod
    def _open(name: str, folder: int | None) -> int:
        """A descriptor of the folder, made accessible; -1 when there is none."""
        for _ in range(2):
            try:
                opened = os.open(name, _FOLDER, dir_fd=folder)
            except PermissionError:
                if not _is_folder(name, folder):
                    return -1
                try:
                    os.chmod(name, _OWNER, dir_fd=folder)
                except OSError:
                    return -1
            except OSError:
                return -1
            else:
                _make_accessible(opened)
                return opened
        return -1


def _make_accessible(folder: int) -> None:
    try:
        if os.fstat(folder).st_mode & _OWNER != _OWNER:
            os.fchmod(folder, _OWNER)
    except OSError:
        return


def _names(folder: int) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _is_folder(name: str, folder: int | None) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _try_to_remove(name: str, folder: int | None) -> bool:
    """Whether the file, link or empty folder is gone now."""
    try:
        os.unlink(name, dir_fd=folder)
    except IsADirectoryError:
        return _try_to_remove_folder(name, folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _try_to_remove_folder(name: str, folder: int | None) -> bool:
    try:
        # The kernel looks through all that is below a folder before it refuses to remove it.
        if os.stat(name, dir_fd=folder, follow_symlinks=False).st_nlink > _LINKS_WITHOUT_FOLDERS:
            return False
        os.rmdir(name, dir_fd=folder)
    except OSError:
        return False
    return True
