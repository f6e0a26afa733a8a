"""The agent's ends of the sockets to one child: calls go out as packets, results come back as frames.

The agent keeps a copy of the end that the child reads calls from. What it reads there itself, the child never sees:
such a call provably never started.
"""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING, Final, final

from tenure.processes.frames import BrokenFrame, Unframer
from tenure.workers.call_logs import CallLogs
from tenure.workers.calls import MAX_PACKET_BYTES, BrokenMessage, Printed, Saved, cancel_packet, packet_call, read_frame
from tenure.workers.endings import as_input

if TYPE_CHECKING:
    from tenure.workers.inputs import Input
    from tenure.workers.log_feed import Printed as Sink

_LOG: Final = logging.getLogger(__name__)
_CHUNK: Final = 256 * 1024
_SOCKET_BYTES: Final = 1024 * 1024


@final
class ChildSockets:
    """One child's sockets. Used by one thread; nothing here blocks."""

    def __init__(self, slot: int, printed: Sink) -> None:
        self._slot = slot
        self.logs: Final = CallLogs(printed)
        """Where what calls print goes."""
        self.saved: Final[list[Saved]] = []
        """Checkpoints that a call has told, taken by whoever keeps them."""
        # The child's copy of `_incoming` shares its flags, so that it stays blocking and reads say that they do not.
        self._outgoing, self._incoming = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._results, self._child_results = socket.socketpair()
        self._outgoing.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
        self._outgoing.setblocking(False)  # noqa: FBT003
        self._results.setblocking(False)  # noqa: FBT003
        self._unframer = Unframer()
        self.is_broken = False

    def child_ends(self) -> list[int]:
        """The descriptors that the child gets: calls, results."""
        return [self._incoming.fileno(), self._child_results.fileno()]

    def handed_over(self) -> None:
        """The child's ends are on their way: its results end when it does."""
        self._child_results.close()

    def results(self) -> int:
        """The descriptor to watch for results; -1 when they have ended."""
        return self._results.fileno()

    def send(self, packet: bytes) -> bool:
        """Put a call's packet into the socket; False when it is full."""
        try:
            self._outgoing.send(packet)
        except OSError:
            return False
        return True

    def cancel(self, call: int) -> None:
        """Ask the child to cancel one async call; a child whose socket is full is ended later by other means."""
        self.send(cancel_packet(call))

    def recall(self) -> list[int]:
        """Take back the calls that the child has not begun."""
        taken: list[int] = []
        while packet := self._unbegun():
            call = packet_call(packet)
            if call is not None:
                taken.append(call)
                self.logs.drop(call)
        return taken

    def receive(self, inputs: list[Input]) -> bool:
        """Add what one chunk of results says; False when there was none. Sets `is_broken` when it makes no sense."""
        if self._results.fileno() == -1:
            return False
        try:
            data = self._results.recv(_CHUNK)
            for body in self._unframer.feed(data):
                message = read_frame(body)
                if isinstance(message, Printed):
                    self.logs.printed(message)
                elif isinstance(message, Saved):
                    self.saved.append(message)
                else:
                    self.logs.told(message)
                    inputs.append(as_input(self._slot, message))
        except BlockingIOError:
            return False
        except (BrokenFrame, BrokenMessage, OSError) as error:
            _LOG.warning("the child of slot %d wrote something unreadable and is ended: %s", self._slot, error)
            self.is_broken, data = True, b""
        if not data:
            self._results.close()
        return bool(data)

    def receive_all(self) -> list[Input]:
        """Everything that is there, once the child is gone."""
        inputs: list[Input] = []
        while self.receive(inputs):
            pass
        return inputs

    def close(self) -> None:
        """Close all ends; a child that is still there reads the end of its calls."""
        self.logs.close()
        for end in (self._outgoing, self._incoming, self._results, self._child_results):
            end.close()

    def _unbegun(self) -> bytes:
        try:
            return self._incoming.recv(MAX_PACKET_BYTES, socket.MSG_DONTWAIT)
        except OSError:
            return b""
