"""The live leases as the loop sees them: what the store says, plus the renewals that are kept in memory only.

Rebuilt from the store at start and after every failed transaction; renewals then start from a full term, which is the
safe side. `renewed_ms` is always the coordinator's own elapsed time at which a sign of life was *seen*.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Self, final

from tenure.broker.base import Stream, StreamEntry
from tenure.protocol.metrics import read_metrics
from tenure.protocol.states import LeaseState
from tenure.protocol.worker_messages import Released

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tenure.broker.base import EntryId
    from tenure.coordinator.fleet import WorkerView
    from tenure.protocol.envelope import Requirements
    from tenure.protocol.worker_messages import ExecutorGone

_SHOWN: Final = 200
"""Characters of a task's metrics in one sentence."""


@final
@dataclass(frozen=True, slots=True)
class Progress:
    """How far an attempt is; `metrics` is the JSON text that its worker sent."""

    cursor: int
    fraction_ppm: int
    message: str
    metrics: str

    def __str__(self) -> str:
        """In a few words, for people."""
        words = f"{self.fraction_ppm / 10_000:.0f} % done: {self.message}".rstrip(": ")
        try:
            metrics = read_metrics(self.metrics)
        except ValueError:
            return words
        if not metrics:
            return words
        return f"{words} ({', '.join(f'{name} {value}' for name, value in metrics.items())[:_SHOWN]})"


@final
@dataclass(frozen=True, slots=True)
class Gone:
    """What a parent has told of the executor that a lease is bound to.

    `since_ms` is the elapsed time of the first look at heartbeats after it was told, -1 before: what was written by
    then may be older than the end, and what is seen later cannot be.
    """

    told: ExecutorGone
    since_ms: int = -1


@final
@dataclass(frozen=True, slots=True)
class Surrender:
    """What an executor has told that was ended from outside, and when, by elapsed time and by the clock."""

    told: Released
    at_ms: int
    now_ms: int

    @classmethod
    def kept(cls, told: str, now_ms: int, elapsed_ms: int) -> Self | None:
        """As the store has it; None for "". Its parent is waited for anew."""
        return cls(Released.model_validate_json(told), elapsed_ms, now_ms) if told else None


@final
@dataclass(slots=True)
class LiveLease:
    """One OFFERED or ACTIVE lease."""

    task_id: str
    fence: int
    attempt: int
    digest: str
    run: str
    state: LeaseState
    start: Literal["granted", "claimed"]
    ttl_ms: int
    site: str
    """Where it is offered: nobody of another site can be bound to it."""
    capability: str
    directed_to: str
    entry_id: EntryId
    renewed_ms: int
    needs: Requirements | None = None
    """Requirements of a directed task, whose resources are given back at the end."""
    worker_id: str = ""
    parent: str = ""
    """The worker whose executor it is bound to; "" when it is bound to none."""
    generation: int = 0
    nonce: str = ""
    bound_ms: int = 0
    """When it was bound, by elapsed time; 0 when that was before this coordinator began."""
    after_beat: int | None = 0
    """Later heartbeats must list it. None when its holder has not said: the next one to be seen may be older."""
    holder: str = ""
    """The worker whose heartbeat lists this offer although its claim has not been seen."""
    launched: bool = False
    """Whether an executor may be on its way to this offer: it is not published again under its fence."""
    seconded: bool = False
    """Whether another executor was started for it too, and refused."""
    stopping: bool = False
    """Whether its task is being cancelled, so that the stop order is repeated until the end is proved."""
    unproved: bool = False
    """Whether its worker has said that it could not end the attempt: silence about it then proves nothing."""
    takers: set[str] | None = None
    """Who could have taken this offer when the doubt about it began, less those that have left with nothing in hand."""
    doubted_ms: int = -1
    """Since when it is unclear whether anyone took this offer; -1 when it is not."""
    progress: Progress | None = None
    """The newest that its holder has said about it."""
    printed: bool = True
    """Whether there may be a log of it; its worker says when there is none."""

    gone: Gone | None = None
    """What its executor's parent says of it: that it is gone."""
    surrendered: Surrender | None = None
    """What its executor has said of its own end, while its parent may still know the cause."""

    @property
    def charged(self) -> frozenset[str]:
        """The workers in whose room it counts: whom it is directed to, whom it is bound to, and that one's parent."""
        return frozenset({self.directed_to, self.worker_id, self.parent} - {""})

    @property
    def stream(self) -> Stream:
        """The stream that it was published on."""
        return Stream(self.site, "", self.directed_to) if self.directed_to else Stream(self.site, self.capability)

    @property
    def entry(self) -> StreamEntry:
        """Its entry in that stream."""
        return StreamEntry(self.stream, self.entry_id)


@final
class LiveLeases:
    """All live leases by task: at most one each, as the store's unique index has it."""

    def __init__(self) -> None:
        self._by_task: dict[str, LiveLease] = {}
        self._by_worker: dict[str, dict[str, LiveLease]] = {}
        self._offered: Counter[tuple[str, str]] = Counter()
        self.of_sites: Counter[str] = Counter()
        """How many there are of each site."""

    def __len__(self) -> int:
        """How many there are."""
        return len(self._by_task)

    def __iter__(self) -> Iterator[LiveLease]:
        """All of them; safe against changes during the walk."""
        return iter(list(self._by_task.values()))

    def get(self, task_id: str) -> LiveLease | None:
        """The live lease of a task, if it has one."""
        return self._by_task.get(task_id)

    def add(self, lease: LiveLease) -> None:
        """Take up a lease."""
        self._by_task[lease.task_id] = lease
        self._note_worker(lease)
        self.of_sites[lease.site] += 1
        if lease.state is LeaseState.OFFERED and not lease.directed_to:
            self._offered[lease.site, lease.capability] += 1

    def bound(self, lease: LiveLease, worker_id: str) -> None:
        """Note that an OFFERED lease has become ACTIVE, and whose it is."""
        if not lease.directed_to:
            self._offered[lease.site, lease.capability] -= 1
        lease.state, lease.worker_id = LeaseState.ACTIVE, worker_id
        self._note_worker(lease)

    def remove(self, lease: LiveLease) -> None:
        """Drop a lease that has ended."""
        if self._by_task.pop(lease.task_id, None) is None:
            return
        theirs = self._by_worker.get(lease.worker_id, {})
        theirs.pop(lease.task_id, None)
        if not theirs:
            self._by_worker.pop(lease.worker_id, None)
        self.of_sites[lease.site] -= 1
        if lease.state is LeaseState.OFFERED and not lease.directed_to:
            self._offered[lease.site, lease.capability] -= 1

    def offered(self, site: str, capability: str) -> int:
        """How many offers of a capability's stream at a site nobody is bound to yet."""
        return self._offered[site, capability]

    def of_worker(self, worker_id: str) -> list[LiveLease]:
        """The leases bound to a worker."""
        return list(self._by_worker.get(worker_id, {}).values())

    def _note_worker(self, lease: LiveLease) -> None:
        if lease.worker_id:
            self._by_worker.setdefault(lease.worker_id, {})[lease.task_id] = lease

    def taken_by_none_of(self, worker: WorkerView) -> None:
        """A worker has left with nothing in hand, so no offer in doubt that is younger than its agent is with it."""
        for lease in self._by_task.values():
            if lease.takers is not None and worker.first_fence < lease.fence:
                lease.takers.discard(worker.worker_id)

    def have_silent(self, elapsed_ms: int) -> bool:
        """Whether one that is bound has had no sign of life for half of its ttl, or it is in doubt who has it."""
        return any(
            elapsed_ms - lease.renewed_ms > lease.ttl_ms // 2
            if lease.state is LeaseState.ACTIVE
            else lease.doubted_ms >= 0
            for lease in self._by_task.values()
        )

    def smallest_ttl_ms(self, otherwise: int) -> int:
        """The shortest ttl among them, for how often heartbeats are looked at."""
        return min((lease.ttl_ms for lease in self._by_task.values()), default=otherwise)
