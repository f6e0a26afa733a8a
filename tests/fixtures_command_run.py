"""A command's steps without processes: a porter and a runner that do what the test says."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenure.artifacts.jobs import Ended, Job, Problem
from tenure.protocol.artifact import Blob, Bundle, Checkpoint, Input
from tenure.protocol.envelope import CommandWork, Limits
from tenure.protocol.worker_messages import Binding
from tenure.testing import ManualClock
from tenure.workers.actions import StartCommand
from tenure.workers.command_run import CommandRun
from tenure.workers.freight import Freight, StoreAddress
from tenure.workers.gear import Gear
from tenure.workers.inputs import CheckpointSaved, ProgressMade, TreeEnded
from tenure.workers.launching import Launch
from tenure.workers.options import WorkerOptions
from tenure.workers.provision import BARE, Provision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.broker.base import LogChunk
    from tenure.workers.inputs import Input as Happened

BINDING = Binding(task_id="0" * 26, attempt=2, fence=7, digest="a" * 64, nonce="b" * 32)
BLOB = Blob(digest="c" * 64, size=5)
BUNDLE = Bundle(manifest=BLOB, files=2, size=9)
INPUTS = Provision(inputs=(Input(path="data/a.txt", content=BLOB),))
CHECKPOINT = Checkpoint(name="step-6", attempt=1, fence=3, ordinal=1, bundle=BUNDLE)


@dataclass
class SlowPorter:
    """Jobs end when the test says so."""

    jobs: dict[int, Job] = field(default_factory=dict[int, Job])
    cancelled: set[int] = field(default_factory=set[int])
    told: list[Ended] = field(default_factory=list[Ended])
    closed: bool = False

    def submit(self, job: Job) -> None:
        self.jobs[job.number] = job

    def cancel(self, number: int) -> None:
        self.cancelled.add(number)

    def ended(self) -> Sequence[Ended]:
        told, self.told = self.told, []
        return told

    def busy(self) -> bool:
        return bool(self.jobs)

    @property
    def pid(self) -> int:
        return 0

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        self.closed = True

    def finish(self, number: int, problem: str = "") -> None:
        """That job has ended; a cancelled one says so."""
        job = self.jobs.pop(number)
        code = "cancelled" if number in self.cancelled else problem
        if code:
            self.told.append(Ended(number=number, problem=Problem(code=code, message=f"it is {code}")))
        else:
            bundle = None if job.kind == "fetch" else BUNDLE
            self.told.append(Ended(number=number, bundle=bundle))

    def die(self) -> None:
        """All jobs end at once."""
        for number in list(self.jobs):
            self.finish(number, "artifact")


@dataclass
class NotedHost:
    """What the slot's runner was told."""

    orders: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    stops: list[int] = field(default_factory=list[int])
    cleared: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def run_program(self, order: dict[str, Any], folder: Path) -> None:
        self.orders.append(order)

    def stop_program(self, grace_ms: int) -> None:
        self.stops.append(grace_ms)

    def clear(self, folder: Path, keep: str) -> None:
        self.cleared.append((folder.name, keep))


class Trial:
    """One command and everything around it."""

    def __init__(
        self,
        folder: Path,
        provision: Provision = BARE,
        work: CommandWork | None = None,
        *,
        has_porter: bool = True,
        **options: Any,
    ) -> None:
        self.porter = SlowPorter()
        self.clock = ManualClock()
        self.made: list[str] = []
        self.host = NotedHost()
        self.log: list[LogChunk] = []
        self.log_ends = 0
        self.inputs: list[Happened] = []
        self.seen = Seen(self)
        self.folder = folder / "tasks" / "one"
        launch = Launch(WorkerOptions(state_dir=folder, **options), folder, -1)
        self.freight = Freight(self._make if has_porter else None, StoreAddress("memory:"), self.clock)
        action = StartCommand(0, 1, BINDING, work or CommandWork(argv=("true",), form="folder"), provision)
        self.run = CommandRun(action, Gear(launch, self.freight, self._printed), self.host, self.folder)

    def _make(self, address: str) -> SlowPorter:
        self.made.append(address)
        return self.porter

    def _printed(self, task_id: str, fence: int, chunks: Sequence[LogChunk]) -> None:
        assert (task_id, fence) == (BINDING.task_id, BINDING.fence)
        self.log.extend(chunks)
        self.log_ends += not chunks

    # --- what happens ---------------------------------------------------------------------------

    def begin(self) -> Trial:
        self.inputs += self.run.begin()
        return self

    def stop(self, *, is_late: bool = False) -> None:
        self.inputs += self.run.stop(500, is_late=is_late)

    def tell(self, *lines: str) -> None:
        self.inputs += self.run.told(lines)

    def end_program(self, code: int = 0, reason: str = "exit", **fields: Any) -> None:
        self.inputs += self.run.program_ended(report(code, reason, **fields))

    def lose_runner(self) -> None:
        self.inputs += self.run.runner_died()

    def finish(self, kind: str, problem: str = "") -> None:
        """The oldest job of that kind has ended."""
        self.porter.finish(next(number for number, job in self.porter.jobs.items() if job.kind == kind), problem)
        self.read()

    def read(self) -> None:
        self.inputs += self.freight.read()

    def leave_output(self) -> None:
        (self.folder / "outputs").mkdir(parents=True, exist_ok=True)
        (self.folder / "outputs" / "x").write_text("x")


class Seen:
    """What came out of a trial."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial

    def jobs(self) -> list[str]:
        return [job.kind for job in self._trial.porter.jobs.values()]

    def end(self) -> TreeEnded:
        (end,) = self.ends()
        return end

    def ends(self) -> list[TreeEnded]:
        return [one for one in self._trial.inputs if isinstance(one, TreeEnded)]

    def saved(self) -> list[str]:
        return [one.name for one in self._trial.inputs if isinstance(one, CheckpointSaved)]

    def progress(self) -> list[ProgressMade]:
        return [one for one in self._trial.inputs if isinstance(one, ProgressMade)]

    def words(self) -> str:
        return "".join(chunk.text for chunk in self._trial.log)


def report(code: int, reason: str, **fields: Any) -> dict[str, Any]:
    """What a runner reports of a command that printed nothing."""
    told = {"run": 1, "reason": reason, "code": code, "duration": 12, "error": None, "stdout": "", "over": False}
    said = {"stderr": "", "out_of_memory": False, "breach": "", "left": 0, "result": "1", "forbidden": ""}
    return {**told, **said, **fields}


def limited(**limits: int) -> Provision:
    return Provision(limits=Limits(**limits))
