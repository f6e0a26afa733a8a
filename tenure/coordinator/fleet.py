"""The workers as the loop sees them, and which of them may be given a task. Pure; rebuilt from the store at start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from tenure.protocol.states import WorkerState

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    window: int = 0
    beat: int = -1
    """Sequence number of the newest heartbeat seen; -1 before the first."""
    bound: int = 0
    """Live leases bound or directed to it."""
    reserved: dict[str, int] = field(default_factory=dict[str, int])
    """Resources that its live directed leases use."""

    def free(self) -> int:
        """How many more assignments it wants."""
        return max(0, self.window - self.bound) if self.state is WorkerState.ACTIVE else 0

    def why_not(self, capability: str, needs: Requirements) -> str:
        """Why it may not be given a task now; "" when it may.

        Deterministic: ACTIVE, capability, name, labels, resources, free slot, in this order.
        """
        if self.state is not WorkerState.ACTIVE:
            return f"{self.worker_id} is {self.state}"
        if capability not in self.capabilities:
            return f"{self.worker_id} does not offer {capability}"
        if needs.worker not in {None, self.worker_id}:
            return f"the task is for {needs.worker}"
        if missing := [f"{key}={value}" for key, value in needs.labels if (key, value) not in self.labels]:
            return f"{self.worker_id} lacks label {', '.join(missing)}"
        return self._no_room(needs)

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


@final
class Fleet:
    """All workers that are not OFFLINE, by id."""

    def __init__(self) -> None:
        self._workers: dict[str, WorkerView] = {}

    def __iter__(self) -> Iterator[WorkerView]:
        """The workers, in order of id, so that choices repeat."""
        return iter([self._workers[key] for key in sorted(self._workers)])

    def get(self, worker_id: str | None) -> WorkerView | None:
        """The worker of that id, if it is known."""
        return self._workers.get(worker_id) if worker_id else None

    def put(self, worker: WorkerView) -> None:
        """Add or replace a worker."""
        self._workers[worker.worker_id] = worker

    def remove(self, worker_id: str) -> None:
        """Forget a worker that has gone OFFLINE."""
        self._workers.pop(worker_id, None)

    def capabilities(self) -> frozenset[str]:
        """Everything that some ACTIVE worker offers."""
        return frozenset(
            name
            for worker in self._workers.values()
            if worker.state is WorkerState.ACTIVE
            for name in worker.capabilities
        )

    def free(self, capability: str) -> int:
        """How many more assignments the ACTIVE workers of a capability want in hand, together.

        Workers that were registered by hand read no capability's stream.
        """
        return sum(
            worker.free()
            for worker in self._workers.values()
            if capability in worker.capabilities and not worker.by_hand
        )

    def choose(self, capability: str, needs: Requirements) -> tuple[WorkerView | None, str]:
        """The eligible worker with most room (ties: lowest id), or None and why no worker is eligible.

        A worker that was registered by hand is eligible only where it is named.
        """
        reasons: list[str] = []
        best: WorkerView | None = None
        for worker in self:
            reason = worker.why_not(capability, needs)
            if not reason and worker.by_hand and needs.worker is None:
                reason = f"{worker.worker_id} was registered by hand and takes only what it is assigned"
            if reason:
                reasons.append(reason)
            elif best is None or worker.free() > best.free():
                best = worker
        if best is not None:
            return best, ""
        return None, "; ".join(reasons[:3]) or "no worker is registered"
