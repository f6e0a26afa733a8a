"""The listener: reads the coordinator's orders to this worker."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

from tenure.broker.base import EntryId
from tenure.errors import MalformedMessage, PayloadTooLarge
from tenure.protocol.control_messages import CONTROL
from tenure.protocol.message import decode
from tenure.workers.inputs import Ordered

if TYPE_CHECKING:
    from tenure.broker.base import WorkerBroker
    from tenure.workers.desk import Front

_LOG: Final = logging.getLogger(__name__)
_BLOCK_MS: Final = 2_000
_START: Final = EntryId(0, 0)


@final
class Listener:
    """See `lines.Duty`."""

    def __init__(self, desk: Front) -> None:
        self._desk = desk
        self._after = _START

    def start_over(self) -> None:
        """Read the stream from its beginning: the broker's data is new, and so are its ids. Repeats are harmless."""
        self._after = _START

    @property
    def name(self) -> str:
        """See `lines.Duty.name`."""
        return "listener"

    def opened(self, *, again: bool) -> None:
        """See `lines.Duty.opened`."""

    def turn(self, broker: WorkerBroker) -> None:
        """See `lines.Duty.turn`."""
        after = self._after
        deliveries = broker.orders(after=after, block_ms=_BLOCK_MS)
        for delivery in deliveries:
            try:
                control = decode(CONTROL, delivery.raw)
            except (MalformedMessage, PayloadTooLarge) as error:
                _LOG.warning("an order could not be read and was skipped: %s", error)
                continue
            self._desk.post(Ordered(control))
        if deliveries and self._after == after:
            self._after = deliveries[-1].entry_id

    def closing(self, broker: WorkerBroker) -> None:
        """See `lines.Duty.closing`."""
