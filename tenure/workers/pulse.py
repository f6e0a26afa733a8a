"""The pulse: writes the heartbeat, and notices when the broker's data is new.

It waits for nothing but the broker and the desk's short lock; user code runs in other processes, so no handler can hold
it up.
"""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING, final

from tenure.protocol.timing import beat_interval_ms, expiry_ms
from tenure.workers.inputs import BeatTaken, Reconnected

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.broker.base import WorkerBroker
    from tenure.clock import Clock
    from tenure.workers.desk import Front
    from tenure.workers.freight import StoreAddress


@final
class Pulse:
    """See `lines.Duty`. `start_over` is called when the broker's data is new; `store` hears of the fleet's store."""

    def __init__(
        self, ttl_ms: int, desk: Front, clock: Clock, start_over: Callable[[], None], store: StoreAddress
    ) -> None:
        self._ttl_ms = ttl_ms
        # As long as the coordinator waits: one that looks rarely must not miss the last renewal, and replace too soon.
        self._life_ms = expiry_ms(ttl_ms)
        self._desk = desk
        self._clock = clock
        self._start_over = start_over
        self._store = store
        self._marker = ""
        self._shortest_ms = ttl_ms
        self._hurry = Event()

    def hurry(self, ttl_ms: int) -> None:
        """Something with that ttl was taken: beat now when the next beat would be late for it."""
        if ttl_ms < self._shortest_ms:
            self._hurry.set()

    def stop(self) -> None:
        """End the wait for the next beat."""
        self._hurry.set()

    @property
    def name(self) -> str:
        """See `lines.Duty.name`."""
        return "pulse"

    def opened(self, *, again: bool) -> None:
        """See `lines.Duty.opened`."""

    def turn(self, broker: WorkerBroker) -> None:
        """See `lines.Duty.turn`."""
        began_ms = self._clock.elapsed_ms()
        self._hurry.clear()
        heartbeat, self._shortest_ms = self._desk.pulse()
        echo = broker.beat(heartbeat.model_dump_json().encode(), self._life_ms)
        self._desk.post(BeatTaken(heartbeat.sequence, echo))
        self._look_at_marker(broker)
        if not self._store.is_own:
            self._store.announce(broker.store_address())
        rest_ms = began_ms + beat_interval_ms(min(self._shortest_ms, self._ttl_ms)) - self._clock.elapsed_ms()
        self._hurry.wait(max(rest_ms, 0) / 1000)

    def closing(self, broker: WorkerBroker) -> None:
        """See `lines.Duty.closing`."""
        broker.farewell()

    def _look_at_marker(self, broker: WorkerBroker) -> None:
        marker = broker.marker()
        if not marker or marker == self._marker:
            return
        if self._marker:
            self._start_over()
            self._desk.post(Reconnected())
        self._marker = marker
