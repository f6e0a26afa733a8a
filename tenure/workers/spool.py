"""The spool: reports without a verdict, in a file, so that an agent's death loses no result.

One JSON object per line, added in batches; the file is emptied when nothing is left in it, and written anew when most
of it has been answered. A torn last line is the mark of a crash and is skipped. When the disk is full, reports are
kept in memory only: the work goes on, and a warning says what a crash would now cost.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final, final

from pydantic import TypeAdapter

from tenure.errors import TenureError
from tenure.protocol.message import decode
from tenure.protocol.worker_messages import Finished, Released

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_LOG: Final = logging.getLogger(__name__)
_COMPACT_BYTES: Final = 8 * 1024 * 1024
_REPORT: Final[TypeAdapter[Finished | Released]] = TypeAdapter(Finished | Released)

Key = tuple[str, int]


@final
class Spool:
    """The file and what in it is still unanswered. Used by one thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: dict[Key, bytes] = {}
        self._size = 0
        self._full = False
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def load(self) -> list[Finished | Released]:
        """The reports that an earlier agent left without a verdict."""
        reports: dict[Key, Finished | Released] = {}
        for line in self._path.read_bytes().split(b"\n")[:-1]:
            try:
                report = decode(_REPORT, line)
            except TenureError:
                _LOG.warning("a line of %s could not be read and was skipped", self._path)
                continue
            key = (report.binding.task_id, report.binding.fence)
            reports[key], self._open[key] = report, line
        try:
            self._rewrite()
        except OSError as error:
            self._note_full(error)
        return list(reports.values())

    def add(self, reports: Sequence[tuple[Key, bytes]], *, safely: bool) -> None:
        """Add reports; `safely` waits until they would survive a power cut."""
        self._open.update(reports)
        try:
            if self._full:
                self._rewrite()
            else:
                self._write(b"".join(raw + b"\n" for _, raw in reports))
            if safely:
                os.fdatasync(self._file)
        except OSError as error:
            self._note_full(error)
        else:
            self._note_room()

    def forget(self, key: Key) -> None:
        """A report has its verdict."""
        self._open.pop(key, None)

    def tidy(self) -> None:
        """Empty or rewrite the file when that is worth it."""
        try:
            if self._size and not self._open:
                os.ftruncate(self._file, 0)
                self._size = 0
            elif self._size > _COMPACT_BYTES:
                self._rewrite()
        except OSError as error:
            self._note_full(error)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _write(self, data: bytes) -> None:
        while data:
            written = os.write(self._file, data)
            self._size += written
            data = data[written:]

    def _rewrite(self) -> None:
        fresh = self._path.with_suffix(".new")
        descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        before, self._file, self._size = self._file, descriptor, 0
        try:
            self._write(b"".join(raw + b"\n" for raw in self._open.values()))
            os.fdatasync(descriptor)
            fresh.rename(self._path)
        except OSError:
            os.close(descriptor)
            self._file = before
            raise
        os.close(before)

    def _note_full(self, error: OSError) -> None:
        if not self._full:
            _LOG.warning(
                "results cannot be written to %s (%s): they are kept in memory and would be lost if this worker died",
                self._path,
                error.strerror,
            )
        self._full = True

    def _note_room(self) -> None:
        if self._full:
            _LOG.warning("results are written to %s again", self._path)
        self._full = False
