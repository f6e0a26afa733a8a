"""The journal: what the parent has launched, in a file, so that its next agent finds it again.

One JSON object per line, and each line is complete in itself: `order` before the launcher is called, `handle` when the
substrate has answered, `over` when nothing is left to be done. Lines are written by one call each and survive the
agent's death by SIGKILL; what cannot be read is skipped, for a torn last line is the mark of a crash, and a launch that
is missing here is retaken from the broker and launched again, which is safe. The file is written anew at the start of
an agent and when most of it is over.
"""

from __future__ import annotations

import errno
import logging
import os
from typing import TYPE_CHECKING, Annotated, Final, Literal, final

from pydantic import Field, TypeAdapter

from tenure.errors import TenureError
from tenure.launchers.base import Handle, LaunchOrder
from tenure.protocol.launch import LaunchTicket
from tenure.protocol.message import Message, TaskId, decode
from tenure.workers.launch_inputs import Journaled

if TYPE_CHECKING:
    from pathlib import Path

    from tenure.workers.launch_inputs import Key

_LOG: Final = logging.getLogger(__name__)
_COMPACT_BYTES: Final = 4 * 1024 * 1024


class OrderLine(Message):
    """It may have been launched since."""

    kind: Literal["order"] = "order"
    ticket: LaunchTicket
    memory_bytes: int | None = None
    timeout_ms: int | None = None
    resources: tuple[tuple[str, int], ...] = ()


class HandleLine(Message):
    """The substrate took it."""

    kind: Literal["handle"] = "handle"
    task_id: TaskId
    fence: int
    handle: Handle


class OverLine(Message):
    """Nothing is left to be done about it."""

    kind: Literal["over"] = "over"
    task_id: TaskId
    fence: int


_Line = OrderLine | HandleLine | OverLine
_LINE: Final[TypeAdapter[_Line]] = TypeAdapter(Annotated[_Line, Field(discriminator="kind")])


@final
class LaunchJournal:
    """The file and what in it is not over. Used by one thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: dict[Key, list[bytes]] = {}
        self._size = 0
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def load(self) -> list[Journaled]:
        """The launches that an earlier agent has left. Raises OSError."""
        found: dict[Key, Journaled] = {}
        for raw in self._path.read_bytes().split(b"\n"):
            if not raw:
                continue
            try:
                line = decode(_LINE, raw)
            except TenureError:
                _LOG.warning("a line of %s could not be read and was skipped", self._path)
                continue
            self._apply(found, line)
        for key, each in found.items():
            self._open[key] = [_encoded(_order_line(each.order))]
            if each.handle is not None:
                self._open[key].append(_encoded(_handle_line(key, each.handle)))
        self._rewrite()
        return list(found.values())

    def order(self, key: Key, order: LaunchOrder) -> None:
        """It may be launched from now on. Raises OSError: then it may not."""
        if key not in self._open:
            line = _encoded(_order_line(order))
            self._write(line)
            self._open[key] = [line]

    def handle(self, key: Key, handle: Handle) -> None:
        """The substrate took it. When this cannot be written it would be launched again, which is safe."""
        self._try_to_write(key, _encoded(_handle_line(key, handle)))

    def over(self, key: Key) -> None:
        """Nothing is left to be done about it. When this cannot be written, the next agent looks for it in vain."""
        if key in self._open:
            self._try_to_write(key, _encoded(OverLine(task_id=key[0], fence=key[1])))
            del self._open[key]
        self._tidy()

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _apply(self, found: dict[Key, Journaled], line: _Line) -> None:
        match line:
            case OrderLine():
                order = LaunchOrder(line.ticket, line.memory_bytes, line.timeout_ms, line.resources)
                found.setdefault((line.ticket.task_id, line.ticket.fence), Journaled(order))
            case HandleLine():
                before = found.get((line.task_id, line.fence))
                if before is not None:
                    found[line.task_id, line.fence] = Journaled(before.order, line.handle)
            case OverLine():
                found.pop((line.task_id, line.fence), None)

    def _try_to_write(self, key: Key, line: bytes) -> None:
        if key in self._open:
            self._open[key].append(line)
        try:
            self._write(line)
        except OSError as error:
            _LOG.warning("%s cannot be written: %s", self._path, error.strerror)

    def _tidy(self) -> None:
        try:
            if self._size and not self._open:
                os.ftruncate(self._file, 0)
                self._size = 0
            elif self._size > _COMPACT_BYTES:
                self._rewrite()
        except OSError as error:
            _LOG.warning("%s cannot be written: %s", self._path, error.strerror)

    def _write(self, line: bytes) -> None:
        # With the end of the last line in front, so that a line which was torn by a full disk spoils no other.
        data = b"\n" + line + b"\n"
        written = os.write(self._file, data)
        self._size += written
        if written < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))

    def _rewrite(self) -> None:
        fresh = self._path.with_suffix(".new")
        descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        before, self._file, self._size = self._file, descriptor, 0
        try:
            for lines in self._open.values():
                for line in lines:
                    self._write(line)
            fresh.rename(self._path)
        except OSError:
            os.close(descriptor)
            self._file = before
            raise
        os.close(before)


def _order_line(order: LaunchOrder) -> OrderLine:
    return OrderLine(
        ticket=order.ticket,
        memory_bytes=order.memory_bytes,
        timeout_ms=order.timeout_ms,
        resources=order.resources,
    )


def _handle_line(key: Key, handle: Handle) -> HandleLine:
    return HandleLine(task_id=key[0], fence=key[1], handle=handle)


def _encoded(line: _Line) -> bytes:
    return line.model_dump_json().encode()
