"""Which heartbeats are read and decoded at a look: of a site with a credential, no more than it can have to say.

A heartbeat lists what a worker holds, so it may be long. What lists no more than the leases that its worker is bound
to, or than its site's leases altogether, costs nothing; what is longer uses up the site's allowance (`limits`) and is
passed over when there is none left, as is what no heartbeat may be. A worker that is passed over is a silent one until
its turn comes, but none is left unheard until its leases are over: the same allowance pays for the site's inbox, which
may never leave any of it. What has not changed since the last look is not decoded again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from tenure.errors import UsageError
from tenure.protocol.message import MAX_ENTRY_BYTES, decode
from tenure.protocol.worker_messages import HEARTBEAT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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

_OVERDUE_PARTS: Final = 3
"""After this part of its shortest ttl a worker that was passed over is read all the same, before a lease is over."""

_OVERDUE_BYTES: Final = MAX_ENTRY_BYTES
"""So much is read of a site's workers in a second for that reason: the longest heartbeat that there may be."""

_SECOND_MS: Final = 1_000


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
        self._spared: dict[str, tuple[int, int]] = {}
        """Of the sites of which something was read for being overdue: what may still be, and since when."""

    def listen(
        self, workers: Sequence[WorkerView], leases: LiveLeases, now_ms: int
    ) -> list[tuple[WorkerView, Heartbeat]]:
        """The heartbeats that are news: readable, and of another generation or with a new sequence number."""
        beats = self._read(workers, leases, now_ms)
        known = {worker.worker_id for worker in workers}
        self._heard = {name: heard for name, heard in self._heard.items() if name in known}
        self._spared = {site: each for site, each in self._spared.items() if now_ms - each[1] < _SECOND_MS}
        found = ((worker, self._news(worker, raw)) for worker in workers if (raw := beats[worker.address]))
        return [(worker, beat) for worker, beat in found if beat is not None]

    def _read(
        self, workers: Sequence[WorkerView], leases: LiveLeases, now_ms: int
    ) -> dict[WorkerAddress, bytes | None]:
        """The heartbeats, of sites with limits those that are passed over left out: nothing of them is None."""
        own = {worker.address: _own_bytes(worker) for worker in workers if worker.site not in self._limits.free}
        addresses = [worker.address for worker in workers]
        # One byte over tells those that are longer; only these few are measured, and read again.
        raws = self._broker.sites.heartbeats(addresses, {each: size + 1 for each, size in own.items()})
        beats = dict(zip(addresses, raws, strict=True))
        long = [each for each in workers if each.address in own and _length(beats[each.address]) > own[each.address]]
        most = self._most(long, leases, now_ms)
        beats |= dict.fromkeys([worker.address for worker in long])
        if most:
            beats |= zip(most, self._broker.sites.heartbeats(list(most), most), strict=True)
        return beats

    def _most(self, workers: Sequence[WorkerView], leases: LiveLeases, now_ms: int) -> Mapping[WorkerAddress, int]:
        """How many bytes are read of each of those whose heartbeats are long, but for those that are passed over."""
        sizes = self._broker.sites.heartbeat_sizes([worker.address for worker in workers]) if workers else []
        # Whoever had to wait longest comes first, so that nobody waits for ever behind others of its site.
        long = sorted(
            zip(workers, sizes, strict=True), key=lambda each: self._passed_over.get(each[0].worker_id, now_ms)
        )
        most: dict[WorkerAddress, int] = {}
        shared: dict[str, int] = {}
        waiting: dict[str, int] = {}
        for worker, size in long:
            left = shared.get(worker.site, _HOLD_BYTES * leases.of_sites[worker.site])
            spare = self._spare(worker.site, now_ms)
            since_ms = self._passed_over.get(worker.worker_id, now_ms)
            if size > MAX_ENTRY_BYTES:
                continue
            if size <= left or self._limits.afford(worker.site, size // _BYTES_PER_UNIT, now_ms):
                shared[worker.site] = max(left - size, 0)
            elif now_ms - since_ms > _shortest_ttl_ms(worker, leases) // _OVERDUE_PARTS and size <= spare:
                self._spared[worker.site] = (spare - size, now_ms)
            else:
                waiting[worker.worker_id] = since_ms
                continue
            most[worker.address] = min(size + _FRAME_BYTES, MAX_ENTRY_BYTES)
        self._passed_over = waiting
        return most

    def _spare(self, site: str, now_ms: int) -> int:
        """How many bytes may be read of a site's workers now because they are overdue; they come back with time."""
        left, since_ms = self._spared.get(site, (_OVERDUE_BYTES, now_ms))
        return min(_OVERDUE_BYTES, left + (now_ms - since_ms) * _OVERDUE_BYTES // _SECOND_MS)

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


def _shortest_ttl_ms(worker: WorkerView, leases: LiveLeases) -> int:
    """Of a worker and of what it is bound to."""
    return min([worker.ttl_ms, *(lease.ttl_ms for lease in leases.of_worker(worker.worker_id))])


def _own_bytes(worker: WorkerView) -> int:
    """What its heartbeat may have for nothing."""
    return min(_FRAME_BYTES + _HOLD_BYTES * worker.bound, MAX_ENTRY_BYTES)


def _length(raw: bytes | None) -> int:
    return len(raw or b"")
