"""The checker's part that is about files: nothing unaccepted in the store, nothing accepted that gets lost.

An object needs a record that accepted it. A record needs an executor that really staged exactly this: the holder of the
lease, or the one whose late result was adopted. An attempt starts from the newest checkpoint that was accepted before
it was offered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from tests.simulation.executions import LIAR
from tests.simulation.history import (
    ArtifactRow,
    Closed,
    Fault,
    Judgement,
    LeaseRow,
    Missing,
    Removed,
    Saved,
    Started,
    Stored,
    TaskRow,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.history import Fact, ResultRow

LIVE: Final = frozenset({"OFFERED", "ACTIVE"})
OVER: Final = frozenset({"SUCCEEDED", "FAILED", "CANCELLED", "ABANDONED"})
Attempt = tuple[str, int]


@final
class FileChecker:
    """Walks through a history once, beside the other one."""

    def __init__(self, problem: Callable[[Fact, str], None]) -> None:
        self._problem = problem
        self._saved: dict[str, Saved] = {}
        self._artifacts: dict[tuple[str, int, str, int], ArtifactRow] = {}
        self._accepted: dict[str, ArtifactRow] = {}
        self._objects: set[str] = set()
        self._leases: dict[Attempt, LeaseRow] = {}
        self._starts: dict[Attempt, str] = {}
        self._tasks: dict[str, TaskRow] = {}
        self._missing: set[tuple[str, int, str]] = set()
        self._store_was_away = False
        self.adoptions: dict[Attempt, Judgement] = {}
        """Adoptions by task and the fence that they were given."""

    def see(self, fact: Fact) -> None:
        """One fact more."""
        match fact:
            case Saved():
                self._saved[fact.digest] = fact
            case ArtifactRow():
                self._artifact(fact)
            case Stored():
                self._stored(fact)
            case Removed():
                self._removed(fact)
            case LeaseRow():
                self._lease(fact)
            case TaskRow():
                self._tasks[fact.task] = fact
            case _:
                self._see_more(fact)

    def _see_more(self, fact: Fact) -> None:
        match fact:
            case Started() if fact.attempt > 1:
                self._started(fact)
            case Judgement() if fact.action == "adopt":
                self._adopt(fact)
            case Missing():
                self._missing.add((fact.task, fact.fence, fact.nonce))
            case Fault() if fact.kind == "store_away":
                self._store_was_away = True
            case Closed() if fact.settled:
                self._closed(fact)
            case _:
                return

    def excuses(self, result: ResultRow, lease: LeaseRow) -> bool:
        """Whether a good result had to become a failure, because of its files."""
        if "outputs_damaged" in result.value:
            return (result.task, lease.fence, lease.nonce) in self._missing
        return "outputs_not_stored" in result.value and self._store_was_away

    def _artifact(self, fact: ArtifactRow) -> None:
        key = (fact.task, fact.fence, fact.kind, fact.ordinal)
        before = self._artifacts.get(key)
        self._artifacts[key] = fact
        if fact.state == "PROMOTED" and fact.digest not in self._objects:
            self._problem(fact, f"{fact.kind} of fence {fact.fence} is PROMOTED and not in the store")
        if before is not None:
            return
        lease = self._leases.get((fact.task, fact.fence))
        if lease is not None and lease.worker == LIAR and fact.digest in self._objects:
            self._accepted.setdefault(fact.digest, fact)
        else:
            self._accepted[fact.digest] = fact
            self._check_staged(fact)
        if fact.kind == "checkpoint":
            self._check_checkpoint(fact, lease)

    def _check_staged(self, fact: ArtifactRow) -> None:
        """What the store has already was read there: a holder that lies about such an object adds nothing to it."""
        saved = self._saved.get(fact.digest)
        if saved is None or (saved.task, saved.fence, saved.nonce) != (fact.task, fact.place_fence, fact.nonce):
            self._problem(fact, f"{fact.kind} was accepted under fence {fact.fence} that its executor never staged")

    def _check_checkpoint(self, fact: ArtifactRow, lease: LeaseRow | None) -> None:
        newer = any(task == fact.task and fence > fact.fence for task, fence in self._leases)
        # The same commit may have accepted the result behind it.
        live = lease is not None and (lease.state == "ACTIVE" or (lease.state, lease.at) == ("COMPLETED", fact.at))
        if newer or lease is None or not live or lease.nonce != fact.nonce:
            self._problem(fact, f"a checkpoint was accepted under fence {fact.fence}, which is not the live one")

    def _stored(self, fact: Stored) -> None:
        self._objects.add(fact.digest)
        if fact.digest not in self._accepted:
            self._problem(fact, f"the store has {fact.digest[:8]}, which nobody has accepted")

    def _removed(self, fact: Removed) -> None:
        self._objects.discard(fact.digest)
        record = self._accepted.get(fact.digest)
        if record is None:
            return
        record = self._artifacts[record.task, record.fence, record.kind, record.ordinal]
        task = self._tasks[record.task]
        if record.state != "COLLECTED" and not (record.kind == "checkpoint" and task.state in OVER):
            self._problem(fact, f"{record.kind} of fence {record.fence} was removed although it is {record.state}")

    def _lease(self, fact: LeaseRow) -> None:
        key = (fact.task, fact.fence)
        if key not in self._leases:
            self._starts[key] = self._newest(fact.task)
        self._leases[key] = fact

    def _newest(self, task: str) -> str:
        mine = [row for row in self._artifacts.values() if row.task == task and row.kind == "checkpoint"]
        wanted = [row for row in mine if row.state != "COLLECTED"]
        return max(wanted, key=lambda row: (row.fence, row.ordinal)).digest if wanted else ""

    def _started(self, fact: Started) -> None:
        expected = self._starts.get((fact.task, fact.fence), "")
        if fact.checkpoint != expected:
            text = f"from {fact.checkpoint[:8] or 'nothing'}, not from {expected[:8] or 'nothing'}"
            self._problem(fact, f"run {fact.run} of attempt {fact.attempt} starts {text}")

    def _adopt(self, fact: Judgement) -> None:
        self.adoptions[fact.task, fact.fence] = fact
        for (task, fence), lease in self._leases.items():
            if task != fact.task:
                continue
            if lease.state in LIVE or (lease.state == "COMPLETED" and fence >= fact.of_fence):
                self._problem(fact, f"a result of fence {fact.of_fence} was adopted over fence {fence}, {lease.state}")
            if fence >= fact.fence:
                self._problem(fact, f"the fence of an adoption, {fact.fence}, does not grow")

    def _closed(self, fact: Closed) -> None:
        for row in self._artifacts.values():
            if row.state == "ACCEPTED" or (row.kind == "outputs" and row.digest not in self._objects):
                self._problem(
                    fact, f"{row.kind} of fence {row.fence} was accepted and is not in the store: {row.state}"
                )
