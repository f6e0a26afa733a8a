"""The workers as the loop sees them, and which of them may be given a task. Pure; rebuilt from the store at start."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from tenure.broker.base import Stream, WorkerAddress
from tenure.protocol.durations import duration_text
from tenure.protocol.states import WorkerState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tenure.protocol.envelope import Requirements


@final
@dataclass(slots=True)
class WorkerView:
    """One worker.

    `seen_ms` is the coordinator's elapsed time from which its silence counts: its newest sign of life, or a term that
    it was given since. `heard_ms` is when its newest heartbeat was taken, and nothing else moves it.
    """

    worker_id: str
    site: str
    generation: int
    state: WorkerState
    slots: int
    capabilities: frozenset[str]
    labels: frozenset[tuple[str, str]]
    resources: dict[str, int]
    ttl_ms: int
    seen_ms: int
    heard_ms: int = -1
    by_hand: bool = False
    executor_of: str = ""
    """The worker whose launcher started it for one assignment; "" for all that take assignments themselves."""
    launches: bool | None = None
    """Whether its launcher starts executors, or it runs what it takes; None: it never said."""
    window: int = 0
    beat: int = -1
    """Sequence number of the newest heartbeat seen; -1 before the first."""
    first_fence: int = 0
    """The newest fence when its present agent said hello, if there was another before it, else 0: that this agent does
    not hold what was offered up to then says nothing, for an earlier one may have started it."""
    bound: int = 0
    """Live leases bound or directed to it, or bound to an executor of its."""
    reserved: dict[str, int] = field(default_factory=dict[str, int])
    """Resources that its live directed leases use."""
    remaining_ms: int | None = None
    """For how long a task may still run there, as it has said last; None: it has no end of its own."""

    @property
    def address(self) -> WorkerAddress:
        """Where it is written to and heard."""
        return WorkerAddress(self.site, self.worker_id)

    def streams(self) -> list[Stream]:
        """The streams that it reads: of its capabilities at its site, and its own. An executor reads none."""
        if self.executor_of:
            return []
        return [Stream(self.site, name) for name in self.capabilities] + [Stream(self.site, "", self.worker_id)]

    @property
    def takes(self) -> bool:
        """Whether it takes assignments from its capabilities' streams."""
        return not self.by_hand and not self.executor_of

    def free(self) -> int:
        """How many more assignments it wants."""
        return max(0, self.window - self.bound) if self.state is WorkerState.ACTIVE else 0

    def why_not(self, capability: str, needs: Requirements, timeout_ms: int | None = None) -> str:
        """Why it may not be given a task now; "" when it may.

        Deterministic: ACTIVE, capability, name, labels, time, resources, free slot, in this order.
        """
        if self.executor_of:
            return f"{self.worker_id} was started by {self.executor_of} for one task, and takes no other"
        if self.state is not WorkerState.ACTIVE:
            return f"{self.worker_id} is {self.state}"
        if capability not in self.capabilities:
            return f"{self.worker_id} does not offer {capability}"
        if needs.worker not in {None, self.worker_id}:
            return f"the task is for {needs.worker}"
        if missing := [label for label in needs.labels if label not in self.labels]:
            return f"{self.worker_id} {', '.join(map(_lack, missing))}"
        return self.lacks_time(timeout_ms) or self._no_room(needs)

    def lacks_time(self, timeout_ms: int | None) -> str:
        """Why a task that may run for that long is not for it; "" when it has the time, or the task has no limit."""
        if self.remaining_ms is None or timeout_ms is None or timeout_ms <= self.remaining_ms:
            return ""
        left, needed = duration_text(self.remaining_ms), duration_text(timeout_ms)
        return f"{self.worker_id} has {left} left, the task may run {needed}"

    def _no_room(self, needs: Requirements) -> str:
        for name, amount in needs.resources:
            left = self.resources.get(name, 0) - self.reserved.get(name, 0)
            if amount > left:
                return f"{self.worker_id} has {left} {name} free, {amount} needed"
        return "" if self.free() > 0 else f"{self.worker_id} has no free slot"

    def reserve(self, needs: Requirements, sign: int) -> None:
        """Take (`sign` 1) or give back (-1) the resources that a directed lease uses."""
        for name, amount in needs.resources:
            self.reserved[name] = self.reserved.get(name, 0) + sign * amount


def lacks_labels(workers: Iterable[WorkerView], capability: str, needs: Requirements) -> str:
    """Which of the labels no ACTIVE worker that offers a capability has, or not together.

    "" when one has them all, or when nobody offers it.
    """
    offering = [
        worker
        for worker in workers
        if worker.state is WorkerState.ACTIVE and not worker.executor_of and capability in worker.capabilities
    ]
    if not offering or any(worker.labels.issuperset(needs.labels) for worker in offering):
        return ""
    missing = [label for label in needs.labels if not any(label in worker.labels for worker in offering)]
    words = " and ".join(map(_had, missing[:3] or needs.labels))
    return words if missing else f"{words} together"


def _had(label: tuple[str, str]) -> str:
    key, value = label
    kind, _, name = key.partition(":")
    return f"the secret {name}" if kind == "secret" else f"{key}={value}"


def _lack(label: tuple[str, str]) -> str:
    """What a worker without this label does not have, in the words of the one who asked for it."""
    key, value = label
    kind, _, name = key.partition(":")
    return f"has no secret {name}" if kind == "secret" else f"lacks label {key}={value}"


@final
@dataclass(frozen=True, slots=True)
class Rank:
    """Which sites can be given nothing more and why, which come last, and how many live leases each has."""

    closed: Mapping[str, str] = field(default_factory=dict[str, str])
    idle: frozenset[str] = frozenset()
    holding: Mapping[str, int] = field(default_factory=dict[str, int])

    def key(self, worker: WorkerView) -> tuple[bool, int, int]:
        """Grows with how well a worker can be given something. How much room it has is only its own word."""
        return worker.site not in self.idle, -self.holding.get(worker.site, 0), worker.free()


@final
class Fleet:
    """All workers that are not OFFLINE, by id."""

    def __init__(self) -> None:
        self._workers: dict[str, WorkerView] = {}
        self._at: Counter[str] = Counter()

    def __iter__(self) -> Iterator[WorkerView]:
        """The workers, in order of id, so that choices repeat."""
        return iter([self._workers[key] for key in sorted(self._workers)])

    def get(self, worker_id: str | None) -> WorkerView | None:
        """The worker of that id, if it is known."""
        return self._workers.get(worker_id) if worker_id else None

    def put(self, worker: WorkerView) -> None:
        """Add or replace a worker."""
        self.remove(worker.worker_id)
        self._workers[worker.worker_id] = worker
        self._at[worker.site] += 1

    def remove(self, worker_id: str) -> None:
        """Forget a worker that has gone OFFLINE."""
        worker = self._workers.pop(worker_id, None)
        if worker is not None:
            self._at[worker.site] -= 1

    def count_at(self, site: str) -> int:
        """How many workers a site has, executors among them."""
        return self._at[site]

    def parent(self, worker: WorkerView) -> WorkerView | None:
        """The worker that started this executor, if it is known at the executor's site; None for all others.

        One that runs tasks itself starts no executors. Somebody else does, and what they are for it may have begun.
        """
        parent = self.get(worker.executor_of)
        if parent is None or parent.site != worker.site or parent.executor_of or parent.launches is False:
            return None
        return parent

    def capabilities(self) -> frozenset[str]:
        """Everything that some ACTIVE worker offers."""
        return frozenset(
            name
            for worker in self._workers.values()
            if worker.state is WorkerState.ACTIVE and not worker.executor_of
            for name in worker.capabilities
        )

    def free(self, capability: str) -> dict[str, int]:
        """How many more assignments the ACTIVE workers of a capability want in hand, together, by site.

        Executors read no stream, and workers that were registered by hand no capability's.
        """
        free: dict[str, int] = {}
        for worker in self._workers.values():
            if capability in worker.capabilities and worker.takes:
                free[worker.site] = free.get(worker.site, 0) + worker.free()
        return free

    def ends_early(self, capability: str) -> bool:
        """Whether some worker of that capability has an end of its own."""
        return any(
            worker.remaining_ms is not None and capability in worker.capabilities for worker in self._workers.values()
        )

    def lacks_time(self, capability: str, timeout_ms: int | None, site: str | None = None) -> str:
        """Why no worker of that capability, at a site or anywhere, can run a task for so long.

        "" when one can, or when there is none.
        """
        if timeout_ms is None:
            return ""
        workers = [worker for worker in self._offering(capability) if site in {None, worker.site}]
        reasons = [worker.lacks_time(timeout_ms) for worker in workers]
        return "; ".join(reasons[:3]) if all(reasons) else ""

    def _offering(self, capability: str) -> list[WorkerView]:
        """The ACTIVE workers that read the capability's stream."""
        return [
            worker
            for worker in self
            if worker.state is WorkerState.ACTIVE and capability in worker.capabilities and worker.takes
        ]

    def choose(
        self, capability: str, needs: Requirements, timeout_ms: int | None = None, *, sites: Rank | None = None
    ) -> tuple[WorkerView | None, str]:
        """The eligible worker with most room at the site that holds least (ties: lowest id), or None and why none is.

        A worker that was registered by hand is eligible only where it is named, none is at a site that is closed, and
        one at an idle site is chosen last.
        """
        sites = sites or Rank()
        reasons: list[str] = []
        best: WorkerView | None = None
        for worker in self:
            if worker.executor_of:
                continue
            reason = worker.why_not(capability, needs, timeout_ms)
            if not reason and worker.by_hand and needs.worker is None:
                reason = f"{worker.worker_id} was registered by hand and takes only what it is assigned"
            elif not reason and worker.site in sites.closed:
                reason = f"site {worker.site} {sites.closed[worker.site]}"
            if reason:
                reasons.append(reason)
            elif best is None or sites.key(worker) > sites.key(best):
                best = worker
        if best is not None:
            return best, ""
        return None, "; ".join(reasons[:3]) or "no worker is registered"
