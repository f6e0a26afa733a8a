"""Whose call printed what: from a child's numbers for its calls to the attempts that they run for.

A child names its calls by numbers and knows of no others, so that it cannot write into the log of another task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from tenure.broker.base import LogChunk
from tenure.workers.calls import Dropped, Raised, Returned

if TYPE_CHECKING:
    from tenure.workers.calls import Printed, Told
    from tenure.workers.log_feed import Printed as Sink

_MOST_CHARACTERS: Final = 128 * 1024


@final
class CallLogs:
    """The logs of the calls in one child. `sink` takes what an attempt has printed, or nothing when it is over."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._attempts: dict[int, tuple[str, int]] = {}
        self._printing: set[int] = set()

    def expect(self, call: int, task_id: str, fence: int) -> None:
        """That call runs in the child from now on, or waits there."""
        self._attempts[call] = (task_id, fence)

    def printed(self, message: Printed) -> None:
        """A call has printed."""
        attempt = self._attempts.get(message.call)
        if attempt is not None:
            self._printing.add(message.call)
            self._sink(*attempt, [LogChunk(message.stream, message.position, message.text[:_MOST_CHARACTERS])])

    def told(self, message: Told) -> None:
        """A child has told something else, perhaps the end of a call."""
        if isinstance(message, Returned | Raised | Dropped):
            self.drop(message.call)

    def drop(self, call: int) -> None:
        """That call is over, or was taken back."""
        attempt = self._attempts.pop(call, None)
        if attempt is not None and call in self._printing:
            self._printing.discard(call)
            self._sink(*attempt, ())

    def close(self) -> None:
        """The child is gone."""
        for call in list(self._attempts):
            self.drop(call)
