"""The taker: reads assignments while there is room, and after every reconnect those whose reply was lost.

A site may be granted less while its workers run, and the broker then refuses a read of several streams for one of them.
So a worker goes on with those that it may still read, and tries the others again from time to time.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final, final

from tenure.errors import BrokerRefused, CredentialRefused
from tenure.workers.inputs import Reconnected, Taken

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tenure.broker.base import Handout, WorkerBroker
    from tenure.clock import Clock
    from tenure.workers.desk import Front
    from tenure.workers.freight import StoreAddress

_LONGEST_BLOCK_MS: Final = 2_000
_SHORTEST_BLOCK_MS: Final = 100
_ROOM_PATIENCE_S: Final = 1.0
_RETAKE_LIMIT: Final = 5_000
_WITHHELD_MS: Final = 30_000
"""After so long it is tried again whether the site was granted what it was not."""

_LOG: Final = logging.getLogger(__name__)


@final
class Taker:
    """See `lines.Duty`. `hurry` hears of the smallest ttl of what was read, `store` of the fleet's store."""

    def __init__(
        self,
        capabilities: Sequence[str],
        desk: Front,
        clock: Clock,
        hurry: Callable[[int], None],
        store: StoreAddress,
    ) -> None:
        self._capabilities = tuple(capabilities)
        self._granted = self._capabilities
        self._withheld_ms = 0
        self._desk = desk
        self._clock = clock
        self._hurry = hurry
        self._store = store
        self._must_retake = True
        self._inherited = True
        self.block_ms = _LONGEST_BLOCK_MS

    @property
    def name(self) -> str:
        """See `lines.Duty.name`."""
        return "taker"

    def opened(self, *, again: bool) -> None:
        """See `lines.Duty.opened`."""
        self._must_retake = self._must_retake or again
        self._granted = self._capabilities
        if again:
            # Before anything is read: nothing starts on its claim until the coordinator has looked the broker over.
            self._desk.post(Reconnected())

    def turn(self, broker: WorkerBroker) -> None:
        """See `lines.Duty.turn`."""
        if self._granted != self._capabilities and self._clock.elapsed_ms() - self._withheld_ms >= _WITHHELD_MS:
            self._granted = self._capabilities
        if self._must_retake:
            self._retake(broker)
            return
        room = self._desk.wait_for_room(_ROOM_PATIENCE_S)
        if room > 0:
            issued_ms = self._clock.elapsed_ms()
            handouts = self._read(broker, partial(broker.take, limit=room, block_ms=self.block_ms))
            if handouts:
                if not self._store.is_known:
                    # The coordinator came up after the last heartbeat, and what was read may need its store.
                    self._store.announce(broker.store_address())
                self._post(Taken(handouts, issued_ms))

    def closing(self, broker: WorkerBroker) -> None:
        """See `lines.Duty.closing`."""

    def _retake(self, broker: WorkerBroker) -> None:
        issued_ms = self._clock.elapsed_ms()
        handouts = self._read(broker, partial(broker.retake, limit=_RETAKE_LIMIT))
        self._post(Taken(handouts, issued_ms, again=True, inherited=self._inherited))
        self._must_retake = self._inherited = False

    def _read(self, broker: WorkerBroker, read: Callable[..., list[Handout]]) -> list[Handout]:
        try:
            return read(capabilities=self._granted)
        except CredentialRefused:
            raise  # it is not about what the site was granted
        except BrokerRefused:
            granted = tuple(each for each in self._capabilities if _may_read(broker, each))
            if granted == self._granted:
                raise  # for some other reason
            withheld = ", ".join(each for each in self._capabilities if each not in granted)
            _LOG.warning("the site is not granted %s any more; the worker takes only the rest", withheld)
            self._granted, self._withheld_ms = granted, self._clock.elapsed_ms()
        return read(capabilities=self._granted)

    def _post(self, taken: Taken) -> None:
        self._desk.post(taken)
        shortest_ms = _shortest_ttl_ms(taken.handouts)
        if shortest_ms is not None:
            # A read that is issued long before its answer leaves little of a short lease.
            self.block_ms = max(_SHORTEST_BLOCK_MS, min(self.block_ms, shortest_ms // 4))
            self._hurry(shortest_ms)


def _may_read(broker: WorkerBroker, capability: str) -> bool:
    try:
        broker.retake(capabilities=(capability,), limit=1)  # delivers nothing that is new
    except CredentialRefused:
        raise
    except BrokerRefused:
        return False
    return True


def _shortest_ttl_ms(handouts: Sequence[Handout]) -> int | None:
    return min((one.assignment.ticket.ttl_ms for one in handouts if one.assignment is not None), default=None)
