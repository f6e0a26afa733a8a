"""Which heartbeats are read and decoded at a look: of a site with a credential, no more than it can have to say.

A heartbeat lists what a worker holds, so it may be long. What lists no more than the leases that its worker is bound
to, or than its site's leases altogether, costs nothing; what is longer uses up the site's allowance (`limits`) and is
passed over when there is none left, as is what no heartbeat may be. A worker that is passed over is a silent one until
its turn comes. What has not changed since the last look is not decoded again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from tenure.errors import UsageError
from tenure.protocol.message import MAX_ENTRY_BYTES, decode
from tenure.protocol.worker_messages import HEARTBEAT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tenure.broker.base import CoordinatorBroker, WorkerAddress
    from tenure.coordinator.fleet import WorkerView
    from tenure.coordinator.limits import InboxLimits
    from tenure.coordinator.live import LiveLeases
    from tenure.protocol.worker_messages import Heartbeat

_FRAME_BYTES: Final = 1_024
"""What every heartbeat may have, without anything that it holds."""

_HOLD_BYTES: Final = 128
"""More than one hold takes up."""

_BYTES_PER_UNIT: Final = 64
"""Of the allowance; a hold is about one unit, as it would be in an inbox."""


@final
@dataclass(frozen=True, slots=True)
class _Heard:
    """What was read of a worker last: what tells it from others, and what it said of itself; -1 when it was rubbish."""

    length: int
    mark: int
    generation: int = -1
    sequence: int = -1

    def is_news(self, worker: WorkerView) -> bool:
        if self.generation < 0:
            return False
        return self.generation != worker.generation or self.sequence > worker.beat


@final
class Listener:
    """Reads heartbeats. Used by the coordinator's thread only.

    Args:
        broker: the coordinator's face.
        limits: the allowances of the sites.
    """

    def __init__(self, broker: CoordinatorBroker, limits: InboxLimits) -> None:
        self._broker = broker
        self._limits = limits
        self._heard: dict[str, _Heard] = {}
        self._passed_over: dict[str, int] = {}

    def listen(
        self, workers: Sequence[WorkerView], leases: LiveLeases, now_ms: int
    ) -> list[tuple[WorkerView, Heartbeat]]:
        """The heartbeats that are news: readable, and of another generation or with a new sequence number."""
        most = self._most(workers, leases, now_ms)
        raws = self._broker.sites.heartbeats([worker.address for worker in workers], most)
        known = {worker.worker_id for worker in workers}
        self._heard = {name: heard for name, heard in self._heard.items() if name in known}
        found = ((worker, self._news(worker, raw)) for worker, raw in zip(workers, raws, strict=True) if raw)
        return [(worker, beat) for worker, beat in found if beat is not None]

    def _most(self, workers: Iterable[WorkerView], leases: LiveLeases, now_ms: int) -> Mapping[WorkerAddress, int]:
        """How many bytes are read of each worker of a site with limits; 0 for those that are passed over."""
        limited = [worker for worker in workers if worker.site not in self._limits.free]
        sizes = self._broker.sites.heartbeat_sizes([worker.address for worker in limited])
        most: dict[WorkerAddress, int] = {}
        long: list[tuple[WorkerView, int]] = []
        for worker, size in zip(limited, sizes, strict=True):
            most[worker.address] = own = min(_FRAME_BYTES + _HOLD_BYTES * worker.bound, MAX_ENTRY_BYTES)
            if size > own:
                most[worker.address] = 0
                long.append((worker, size))
        # Whoever had to wait longest comes first, so that nobody waits for ever behind others of its site.
        long.sort(key=lambda each: self._passed_over.get(each[0].worker_id, now_ms))
        shared: dict[str, int] = {}
        waiting: dict[str, int] = {}
        for worker, size in long:
            left = shared.get(worker.site, _HOLD_BYTES * leases.of_sites[worker.site])
            if size > MAX_ENTRY_BYTES:
                continue
            if size <= left or self._limits.afford(worker.site, size // _BYTES_PER_UNIT, now_ms):
                shared[worker.site] = max(left - size, 0)
                most[worker.address] = min(size + _FRAME_BYTES, MAX_ENTRY_BYTES)
            else:
                waiting[worker.worker_id] = self._passed_over.get(worker.worker_id, now_ms)
        self._passed_over = waiting
        return most

    def _news(self, worker: WorkerView, raw: bytes) -> Heartbeat | None:
        heard = self._heard.get(worker.worker_id)
        length, mark = len(raw), hash(raw)
        if heard is not None and (heard.length, heard.mark) == (length, mark) and not heard.is_news(worker):
            return None
        try:
            beat = decode(HEARTBEAT, raw)
        except UsageError:  # a worker that writes rubbish is a silent worker
            self._heard[worker.worker_id] = _Heard(length, mark)
            return None
        heard = self._heard[worker.worker_id] = _Heard(length, mark, beat.generation, beat.sequence)
        return beat if heard.is_news(worker) else None
