"""What runs of user code are like: how long each takes, how it ends, which files it leaves, and its number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from tests.simulation.contents import bundle_named
from tests.simulation.executions import home_of
from tests.simulation.history import Missing, Saved

if TYPE_CHECKING:
    from tenure.protocol.artifact import Bundle
    from tenure.protocol.worker_messages import Binding
    from tests.simulation.contents import Shelf
    from tests.simulation.dice import Dice
    from tests.simulation.history import History


@final
@dataclass(frozen=True, slots=True)
class TaskPlan:
    """What running a task is like; `fails`, `dies`, `leaves` files and `lies` about them per mille."""

    key: str
    kind: str
    takes_ms: int
    fails: int
    dies: int
    leaves: int = 0
    lies: int = 0
    saves: int = 0
    """How many checkpoints a run makes."""


@final
@dataclass(slots=True, eq=False)
class Run:
    """User code at work."""

    number: int
    call: int
    binding: Binding
    ends_at: int
    how: str
    value: str
    began_at: int
    frozen_at: int = -1
    duration_ms: int = 0
    outputs: Bundle | None = None


@final
class Book:
    """Numbers the runs, and says how long each takes and how it ends."""

    def __init__(self, history: History, dice: Dice, shelf: Shelf) -> None:
        self.shelf = shelf
        self.history = history
        self.dice = dice.fork("runs")
        self.tasks: dict[str, TaskPlan] = {}
        """By digest."""
        self._runs = 0

    def next_run(self) -> int:
        """A number for a run."""
        self._runs += 1
        return self._runs

    def plan(self, binding: Binding) -> tuple[str, int, str]:
        """How the task starts, how long this run takes, and how it ends."""
        task = self.tasks[binding.digest]
        takes_ms = max(1, task.takes_ms * self.dice.between(50, 150) // 100)
        how = "value"
        if self.dice.chance(task.fails):
            how = "failure"
        elif self.dice.chance(task.dies):
            how = "died"
        return task.kind, takes_ms, how

    def save(self, worker: str, binding: Binding, text: str) -> Bundle:
        """Stage what a run has made, whole."""
        bundle = bundle_named(text)
        self.shelf.stage(home_of(worker), binding, bundle)
        digest = bundle.manifest.digest
        self.history.add(Saved(self.history.engine.now, binding.task_id, binding.fence, binding.nonce, digest))
        return bundle

    def outputs(self, worker: str, run: Run) -> Bundle | None:
        """What a run leaves; now and then it was never staged."""
        task, binding = self.tasks[run.binding.digest], run.binding
        if run.how != "value" or not self.dice.chance(task.leaves):
            return None
        text = f"outputs of run {run.number}"
        if not self.dice.chance(task.lies):
            return self.save(worker, binding, text)
        self.history.add(Missing(self.history.engine.now, binding.task_id, binding.fence, binding.nonce))
        return bundle_named(text)
