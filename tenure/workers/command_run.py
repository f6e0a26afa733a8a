"""One command from its start to its one `TreeEnded`: fetch what it needs, run it, stage what it has left.

The core sees none of the steps in between. Whatever happens in whatever order, one `TreeEnded` comes out, after it
nothing more, and the folder is cleared away when no job of the porter works in it any more.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from tenure.protocol.worker_messages import Failure, FailureKind, Outcome
from tenure.workers.command_order import command_order
from tenure.workers.endings import tree_ended
from tenure.workers.freight import collect_failure
from tenure.workers.inputs import TreeEnded
from tenure.workers.log_feed import LogFeed
from tenure.workers.program_voice import ProgramVoice
from tenure.workers.saves import Saves
from tenure.workers.workplace import Workplace, most_output_files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tenure.artifacts.jobs import Ended
    from tenure.workers.actions import StartCommand
    from tenure.workers.gear import Gear
    from tenure.workers.inputs import Input


class Step(StrEnum):
    """How far a command has come."""

    NEW = "new"
    FETCHING = "fetching"  #: the porter brings inputs and checkpoint
    RUNNING = "running"  #: the runner has it
    SAVING = "saving"  #: the program has failed; its last checkpoints are still being staged
    COLLECTING = "collecting"  #: the program has ended well; the porter stages its outputs
    OVER = "over"  #: its `TreeEnded` is told


STEPS: Final = MappingProxyType(
    {
        Step.NEW: frozenset({Step.FETCHING, Step.RUNNING, Step.OVER}),
        Step.FETCHING: frozenset({Step.RUNNING, Step.OVER}),
        Step.RUNNING: frozenset({Step.SAVING, Step.COLLECTING, Step.OVER}),
        Step.SAVING: frozenset({Step.OVER}),
        Step.COLLECTING: frozenset({Step.OVER}),
        Step.OVER: frozenset[Step](),
    }
)

_MAX_MESSAGE: Final = 2_000


class ProgramHost(Protocol):
    """The slot's runner, as far as a command needs it."""

    def run_program(self, order: dict[str, Any], folder: Path) -> None:
        """Start it."""
        ...

    def stop_program(self, grace_ms: int) -> None:
        """End it; the runner's report of its end follows."""
        ...

    def clear(self, folder: Path, keep: str) -> None:
        """Nobody needs that folder any more: remove it, or move it to `keep`."""
        ...


@final
class CommandRun:
    """See the module. Everything that happens to the command comes in as a call; inputs of the core come out.

    Args:
        action: what to run.
        gear: what all of the agent's slots share.
        host: the slot's runner.
        folder: the task's folder; nothing else ever had it.
    """

    def __init__(self, action: StartCommand, gear: Gear, host: ProgramHost, folder: Path) -> None:
        self._action = action
        self._launch = gear.launch
        self._freight = gear.freight
        self._host = host
        options = gear.launch.options
        most_files = most_output_files(action.provision, options)
        self._place = Workplace(action.slot, action.call, action.binding, folder, most_files, options.site)
        self._feed = LogFeed(action.binding, gear.printed)
        self._saves = Saves(self._place, gear.freight, self._feed.say, self._saves_settled)
        self._voice = ProgramVoice(self._place, action.work.form, self._feed, self._saves)
        self._keep = ""
        self._step = Step.NEW
        self._job = 0
        self._was_stopped = self._is_late = False
        self._end: TreeEnded | None = None

    @property
    def is_over(self) -> bool:
        """Whether its `TreeEnded` is told."""
        return self._step is Step.OVER

    # --- what happens to it ---------------------------------------------------------------------

    def begin(self) -> list[Input]:
        """Start with the first step that is needed."""
        if not self._action.provision.is_fetched:
            return self._run()
        self._go(Step.FETCHING)
        self._job = self._freight.submit(self._place.fetch(self._action.provision), self._fetched, self._feed.say)
        return []

    def stop(self, grace_ms: int, *, is_late: bool = False) -> list[Input]:
        """The core wants it to end; `is_late`: for no other reason than that its right to run is over."""
        match self._step:
            case Step.RUNNING:
                self._was_stopped, self._is_late = True, is_late
                self._host.stop_program(grace_ms)
                return []
            case Step.FETCHING:
                return self._finish(
                    TreeEnded(self._place.slot, gone=True, begun=False, detail="stopped before it began")
                )
            case Step.SAVING if self._end is not None:
                return self._finish(self._end)
            case Step.COLLECTING if self._end is not None and not is_late:
                return self._finish(replace(self._end, outcome=None, detail="stopped while its outputs were staged"))
            case _:
                return []

    def told(self, lines: Sequence[str]) -> list[Input]:
        """The program has told these lines."""
        return self._voice.told(lines) if self._step is Step.RUNNING else []

    def printed(self, pieces: Sequence[tuple[int, int, str]]) -> None:
        """The program has printed this."""
        if self._step is Step.RUNNING:
            self._feed.printed(pieces)

    def program_ended(self, report: dict[str, Any]) -> list[Input]:
        """The runner has proved that the program's tree is gone."""
        if self._step is not Step.RUNNING:
            return []
        if self._action.work.form == "lines":
            unread = self._voice.unread
            damaged = f"its line with the result cannot be read: {unread}" if unread else ""
            report = {**report, "result": self._voice.result, "damaged": damaged}
        end = tree_ended(self._place.slot, report, self._action, [], self._launch.options.max_value_bytes)
        if end.outcome is not None and end.outcome.failure is None and self._place.has_outputs():
            return self._collect(end)
        is_failure = end.outcome is not None and end.outcome.failure is not None
        if is_failure and self._saves.busy and not self._was_stopped:
            self._go(Step.SAVING)
            self._end = end
            return []
        return self._finish(end)

    def runner_died(self) -> list[Input]:
        """Nobody watches over the program any more; what other steps do needs no runner."""
        if self._step is not Step.RUNNING:
            return []
        detail = "the process that watches over the slot has ended"
        return self._finish(TreeEnded(self._place.slot, gone=False, detail=detail))

    # --- from step to step ----------------------------------------------------------------------

    def _go(self, step: Step) -> None:
        if step not in STEPS[self._step]:
            raise AssertionError(f"a command cannot go from {self._step} to {step}")
        self._step = step

    def _fetched(self, ended: Ended) -> list[Input]:
        self._job = 0
        if self._step is not Step.FETCHING:
            return self._clear_when_idle()
        if ended.problem is None:
            return self._run()
        return self._fail(FailureKind.INPUT_UNAVAILABLE, f"what it needs could not be fetched: {ended.problem.message}")

    def _run(self) -> list[Input]:
        try:
            order = command_order(self._action, self._launch, self._place.folder)
        except (OSError, ValueError) as error:
            return self._fail(FailureKind.INVALID_ARGUMENTS, f"its parameters or its checkpoint's state: {error}")
        self._go(Step.RUNNING)
        self._keep = order["keep"]
        self._host.run_program(order, self._place.folder)
        return []

    def _collect(self, end: TreeEnded) -> list[Input]:
        if self._was_stopped and not self._is_late:
            # It was to end, and nobody asks a second time.
            return self._finish(replace(end, outcome=None))
        self._go(Step.COLLECTING)
        self._saves.drop()
        self._end = end
        self._job = self._freight.submit(self._place.collect(), self._collected, self._feed.say)
        return []

    def _collected(self, ended: Ended) -> list[Input]:
        self._job = 0
        if self._step is not Step.COLLECTING or self._end is None:
            return self._clear_when_idle()
        if ended.problem is None:
            return self._finish(replace(self._end, outputs=ended.bundle))
        return self._finish(replace(self._end, outcome=collect_failure(ended.problem)))

    def _saves_settled(self) -> list[Input]:
        if self._step is Step.SAVING and self._end is not None:
            return self._finish(self._end)
        return self._clear_when_idle()

    def _fail(self, kind: FailureKind, message: str) -> list[Input]:
        return self._finish(TreeEnded(self._place.slot, gone=True, begun=False, outcome=_failed(kind, message)))

    def _finish(self, end: TreeEnded) -> list[Input]:
        self._go(Step.OVER)
        self._saves.drop()
        if self._job:
            self._freight.cancel(self._job)
        self._feed.close()
        self._clear_when_idle()
        return [end]

    def _clear_when_idle(self) -> list[Input]:
        if self._step is Step.OVER and not self._job and not self._saves.busy:
            self._host.clear(self._place.folder, self._keep)
            if self._place.states.exists():
                self._host.clear(self._place.states, "")
        return []


def _failed(kind: FailureKind, message: str) -> Outcome:
    return Outcome(failure=Failure(kind=kind, message=message[:_MAX_MESSAGE]))
