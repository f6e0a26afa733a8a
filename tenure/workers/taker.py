"""The taker: reads assignments while there is room, and after every reconnect those whose reply was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

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
        self._capabilities = capabilities
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
        if again:
            # Before anything is read: nothing starts on its claim until the coordinator has looked the broker over.
            self._desk.post(Reconnected())

    def turn(self, broker: WorkerBroker) -> None:
        """See `lines.Duty.turn`."""
        if self._must_retake:
            self._retake(broker)
            return
        room = self._desk.wait_for_room(_ROOM_PATIENCE_S)
        if room > 0:
            issued_ms = self._clock.elapsed_ms()
            handouts = broker.take(capabilities=self._capabilities, limit=room, block_ms=self.block_ms)
            if handouts:
                if not self._store.is_known:
                    # The coordinator came up after the last heartbeat, and what was read may need its store.
                    self._store.announce(broker.store_address())
                self._post(Taken(handouts, issued_ms))

    def closing(self, broker: WorkerBroker) -> None:
        """See `lines.Duty.closing`."""

    def _retake(self, broker: WorkerBroker) -> None:
        issued_ms = self._clock.elapsed_ms()
        handouts = broker.retake(capabilities=self._capabilities, limit=_RETAKE_LIMIT)
        self._post(Taken(handouts, issued_ms, again=True, inherited=self._inherited))
        self._must_retake = self._inherited = False

    def _post(self, taken: Taken) -> None:
        self._desk.post(taken)
        shortest_ms = _shortest_ttl_ms(taken.handouts)
        if shortest_ms is not None:
            # A read that is issued long before its answer leaves little of a short lease.
            self.block_ms = max(_SHORTEST_BLOCK_MS, min(self.block_ms, shortest_ms // 4))
            self._hurry(shortest_ms)


def _shortest_ttl_ms(handouts: Sequence[Handout]) -> int | None:
    return min((one.assignment.ticket.ttl_ms for one in handouts if one.assignment is not None), default=None)
