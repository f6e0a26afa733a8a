"""Reading `progress.jsonl` while a command writes it: what is appended, also after it was cut off or replaced."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from tenure.workers.masking import MaskedStream
    from tenure.workers.told_lines import Cutter

NAME: Final = "progress.jsonl"
LONGEST_LINE: Final = 8 * 1024
_CHUNK: Final = 65_536
_LAST_BYTES: Final = 1024 * 1024
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@final
class ProgressFile:
    """Follows the file in a folder, given by its descriptor; lines go to the cutter."""

    def __init__(self, folder: int, masked: MaskedStream, cutter: Cutter) -> None:
        self._folder = folder
        self._masked = masked
        self._cutter = cutter
        self._file = -1
        self._at = 0

    def look(self) -> bool:
        """Read a piece of what is new; whether there was something."""
        there = self._stat()
        if self._file < 0 and not self._open(there):
            return False
        now = os.fstat(self._file)
        if now.st_size < self._at:
            self._start_again()
        if self._read():
            return True
        if there is None or (there.st_dev, there.st_ino) == (now.st_dev, now.st_ino):
            return False
        self._cutter.take(self._masked.finish())
        self._cutter.finish()
        self.close()
        return self._open(there) and self._read()

    def finish(self) -> None:
        """Read to the end of a file that nobody writes any more; of a long rest, the end of it."""
        while self.look():
            if self._file >= 0 and os.fstat(self._file).st_size - self._at > _LAST_BYTES:
                self._at = os.fstat(self._file).st_size - _LAST_BYTES
                # The first line after the jump is most likely a part of one.
                self._cutter.forget()
        self._cutter.take(self._masked.finish())
        self._cutter.finish()
        self.close()

    def close(self) -> None:
        """Read no more."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _stat(self) -> os.stat_result | None:
        try:
            there = os.stat(NAME, dir_fd=self._folder, follow_symlinks=False)
        except OSError:
            return None
        return there if stat.S_ISREG(there.st_mode) else None

    def _open(self, there: os.stat_result | None) -> bool:
        if there is None:
            return False
        try:
            self._file = os.open(NAME, _FLAGS, dir_fd=self._folder)
        except OSError:
            return False
        self._start_again()
        if stat.S_ISREG(os.fstat(self._file).st_mode):
            return True
        self.close()
        return False

    def _start_again(self) -> None:
        self._at = 0
        self._masked.finish()
        self._cutter.forget()

    def _read(self) -> bool:
        data = os.pread(self._file, _CHUNK, self._at)
        self._at += len(data)
        self._cutter.take(self._masked.feed(data))
        return bool(data)
