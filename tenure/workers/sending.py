"""The runner's reports on their way to the agent. A runner never waits for an agent that does not read."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final, final

from tenure.processes.frames import frame
from tenure.workers.runner_messages import render

if TYPE_CHECKING:
    from tenure.workers.runner_messages import Fields

_ROOM_BYTES: Final = 256 * 1024


@final
class Sending:
    """Frames that wait until the socket takes them."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._waiting = bytearray()

    @property
    def has_room(self) -> bool:
        """Whether so little waits that what can be told later, or not at all, may be told now."""
        return len(self._waiting) < _ROOM_BYTES

    @property
    def waits(self) -> bool:
        """Whether something waits until the socket can be written to."""
        return bool(self._waiting)

    def put(self, report: Fields) -> None:
        """Send the report, as soon as that is possible. Raises OSError when the agent is gone."""
        self._waiting += frame(render(report))
        self.go_on()

    def go_on(self) -> None:
        """Send what the socket takes now. Raises OSError when the agent is gone."""
        while self._waiting:
            try:
                sent = self._control.send(self._waiting, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return
            del self._waiting[:sent]

    def forget(self) -> None:
        """Nobody will read what waits."""
        self._waiting.clear()
