"""The courier: takes reports from the outbox to the broker, many events per entry.

A report whose fate is unknown is sent again first, in order; every event is safe to repeat.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, final

from tenure.errors import BrokerError
from tenure.workers.inputs import Reconnected

if TYPE_CHECKING:
    from tenure.broker.base import WorkerBroker
    from tenure.clock import Clock
    from tenure.workers.desk import Front
    from tenure.workers.identity import Identity
    from tenure.workers.outbox import Outbox

_MANY: Final = 8
_GATHER_MS: Final = 4
"""While many events come, wait this long for more: one entry with many is cheaper for everyone."""


@final
class Courier:
    """See `lines.Duty`."""

    def __init__(self, identity: Identity, outbox: Outbox, desk: Front, clock: Clock) -> None:
        self._head = f'{{"worker_id":{json.dumps(identity.worker_id)},"generation":{identity.generation},"window":'
        self._outbox = outbox
        self._desk = desk
        self._clock = clock
        self._was_many = False

    @property
    def name(self) -> str:
        """See `lines.Duty.name`."""
        return "courier"

    def opened(self, *, again: bool) -> None:
        """See `lines.Duty.opened`."""
        if again:
            self._desk.post(Reconnected())

    def turn(self, broker: WorkerBroker) -> None:
        """See `lines.Duty.turn`."""
        if not self._outbox.wait():
            return
        if self._was_many:
            self._clock.sleep_ms(_GATHER_MS)
        events = self._outbox.batch()
        raw = f'{self._head}{self._desk.window()},"events":['.encode() + b",".join(events) + b"]}"
        try:
            broker.report([raw])
        except BrokerError:
            self._outbox.restore(events)
            raise
        self._outbox.settle()
        self._was_many = len(events) >= _MANY

    def closing(self, broker: WorkerBroker) -> None:
        """See `lines.Duty.closing`."""
