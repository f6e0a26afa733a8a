"""The right to run: until when each hold may run, by this host's own elapsed time.

A renewal counts from *before* its heartbeat was sent, and only for holds that the heartbeat listed. Ordinary tasks are
renewed by every heartbeat that the broker took: a dead coordinator replaces nobody, so its workers run on. Exclusive
tasks are renewed only by heartbeats whose echo came back from the coordinator, so that a split broker cannot let two
holders run.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from tenure.workers.holds import Hold

_REMEMBERED = 512


@final
class Rights:
    """When heartbeats were sent, which were taken, and which were echoed."""

    def __init__(self, generation: int) -> None:
        self._generation = generation
        self._sent: OrderedDict[int, int] = OrderedDict()
        self._taken = (0, 0)
        self._echoed = (0, 0)
        self.sequence = 0

    def next_beat(self, now_ms: int) -> int:
        """Number the heartbeat that is about to be sent."""
        self.sequence += 1
        self._sent[self.sequence] = now_ms
        if len(self._sent) > _REMEMBERED:
            self._sent.popitem(last=False)
        return self.sequence

    def taken(self, sequence: int, echo: str, lowest_epoch: int) -> None:
        """The broker took a heartbeat, and answered an echo `<epoch>:<generation>:<sequence>` or "".

        An echo of an epoch below `lowest_epoch` comes from a coordinator that has been replaced.
        """
        if sequence in self._sent and sequence > self._taken[0]:
            self._taken = (sequence, self._sent[sequence])
        parts = echo.split(":")
        if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):  # noqa: PLR2004
            return
        epoch, generation, echoed = map(int, parts)
        if epoch < lowest_epoch or generation != self._generation:
            return
        if echoed in self._sent and echoed > self._echoed[0]:
            self._echoed = (echoed, self._sent[echoed])

    @property
    def echoed_ms(self) -> int:
        """When the newest heartbeat that the coordinator has echoed was sent; 0 before the first."""
        return self._echoed[1]

    def deadline_ms(self, hold: Hold) -> int:
        """The elapsed time at which the hold's process tree must have been told to end."""
        sequence, sent_ms = self._echoed if hold.exclusive else self._taken
        base_ms = sent_ms if sequence > hold.after_beat and sent_ms > hold.base_ms else hold.base_ms
        return base_ms + hold.ttl_ms
