"""One call with files: fetch what it needs, let the slot's child run it, stage what it has left.

Such a call has its slot to itself. The core sees its `CallEnded` when the outputs are staged, or the end of the child's
tree. What comes from the child passes through here, so that neither overtakes the other.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, final

from tenure.protocol.worker_messages import Failure, FailureKind, Outcome
from tenure.workers.calls import Call
from tenure.workers.command_order import checkpoint_file
from tenure.workers.freight import clear_away, collect_failure
from tenure.workers.inputs import CallEnded, Recalled
from tenure.workers.saves import Saves
from tenure.workers.workplace import Workplace, most_output_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tenure.artifacts.jobs import Ended
    from tenure.workers.actions import StartCall
    from tenure.workers.gear import Gear
    from tenure.workers.inputs import Input, TreeEnded


class CallStep(StrEnum):
    """How far a call with files has come."""

    NEW = "new"
    FETCHING = "fetching"  #: the porter brings inputs and checkpoint
    RUNNING = "running"  #: the child has it
    SAVING = "saving"  #: it has failed; its last checkpoints are still being staged
    COLLECTING = "collecting"  #: it has returned; the porter stages its outputs
    OVER = "over"  #: its end is told


CALL_STEPS: Final = MappingProxyType(
    {
        CallStep.NEW: frozenset({CallStep.FETCHING, CallStep.RUNNING, CallStep.OVER}),
        CallStep.FETCHING: frozenset({CallStep.RUNNING, CallStep.OVER}),
        CallStep.RUNNING: frozenset({CallStep.SAVING, CallStep.COLLECTING, CallStep.OVER}),
        CallStep.SAVING: frozenset({CallStep.OVER}),
        CallStep.COLLECTING: frozenset({CallStep.OVER}),
        CallStep.OVER: frozenset[CallStep](),
    }
)
_LOG: Final = logging.getLogger(__name__)
_FOLDERS: Final = ("inputs", "outputs", "checkpoint")
_WAITING: Final = frozenset({CallStep.SAVING, CallStep.COLLECTING})


@final
class CallRun:
    """See the module.

    Args:
        action: what to call.
        gear: what all of the agent's slots share.
        folder: the call's own folder; nothing else ever had it.
        hand_over: gives the call to the slot's child; False when it does not take it.
    """

    def __init__(self, action: StartCall, gear: Gear, folder: Path, hand_over: Callable[[Call], bool]) -> None:
        self._action = action
        self._launch = gear.launch
        self._freight = gear.freight
        self._hand_over = hand_over
        options = gear.launch.options
        most_files = most_output_files(action.provision, options)
        self._place = Workplace(action.slot, action.call, action.binding, folder, most_files, options.site)
        self._saves = Saves(self._place, gear.freight, self._warn, self._saves_settled)
        self._step = CallStep.NEW
        self._job = 0
        self._was_stopped = False
        self._end: CallEnded | None = None
        self._tree: TreeEnded | None = None

    # --- what happens to it ---------------------------------------------------------------------

    def begin(self) -> list[Input]:
        """Start with the first step that is needed."""
        if not self._action.provision.is_fetched:
            return self._run()
        self._go(CallStep.FETCHING)
        self._job = self._freight.submit(self._place.fetch(self._action.provision), self._fetched, self._warn)
        return []

    def saved(self, name: str) -> None:
        """The call has told a checkpoint."""
        if self._step is CallStep.RUNNING:
            self._saves.save(name)

    def passed(self, happened: Input) -> list[Input]:
        """The child has told this: the end of this call may have to wait."""
        if not isinstance(happened, CallEnded) or happened.call != self._action.call:
            return [happened]
        if self._step is not CallStep.RUNNING:
            return []
        outcome = happened.outcome
        if outcome is not None and not self._was_stopped:
            self._end = happened
            if outcome.failure is not None and self._saves.busy:
                self._go(CallStep.SAVING)
                return []
            if outcome.failure is None and self._place.has_outputs():
                self._go(CallStep.COLLECTING)
                self._saves.drop()
                self._job = self._freight.submit(self._place.collect(), self._collected, self._warn)
                return []
        if self._was_stopped and outcome is not None and self._place.has_outputs():
            happened = replace(happened, outcome=None)  # a result without its files is none
        return self._finish(happened)

    def recalled(self) -> None:
        """The child had not begun it, and will not."""
        if self._step is CallStep.RUNNING:
            self._finish(None)

    def stop(self, *, is_late: bool = False) -> list[Input] | None:
        """The core wants the slot's tree to end; answers the tree's end when that is known already, else None.

        `is_late`: for no other reason than that its right to run is over. What has returned is still staged then.
        """
        if is_late and self._step in {CallStep.RUNNING, CallStep.COLLECTING}:
            return [] if self._tree is not None else None
        self._was_stopped = True
        if self._tree is None:
            return None
        tree, self._tree = self._tree, None
        return [*self._finish(None), tree]

    def tree_ended(self, tree: TreeEnded) -> list[Input]:
        """The slot's tree has ended. What the call has returned before is not lost by that."""
        if self._step in _WAITING and not self._was_stopped:
            self._tree = tree
            return []
        if self._step is CallStep.FETCHING:
            tree = replace(tree, begun=False, unstarted=() if self._was_stopped else (self._action.call,))
        return [*self._finish(None), tree]

    # --- from step to step ----------------------------------------------------------------------

    def _go(self, step: CallStep) -> None:
        if step not in CALL_STEPS[self._step]:
            raise AssertionError(f"a call cannot go from {self._step} to {step}")
        self._step = step

    def _fetched(self, ended: Ended) -> list[Input]:
        self._job = 0
        if self._step is not CallStep.FETCHING:
            return self._clear_when_idle()
        if self._was_stopped:
            return []
        if ended.problem is None:
            return self._run()
        return self._fail(f"what it needs could not be fetched: {ended.problem.message}")

    def _run(self) -> list[Input]:
        folder, checkpoint = self._place.folder, self._action.provision.checkpoint
        try:
            for name in _FOLDERS:
                (folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            return self._fail(f"its folder could not be made: {error.strerror}")
        files = {
            "folder": str(folder),
            "checkpoint": str(checkpoint_file(checkpoint, folder)) if checkpoint is not None else "",
            "secrets": {name: str(self._launch.secret_file(name)) for name in self._action.provision.secrets},
        }
        binding, work = self._action.binding, self._action.work
        call = Call(
            self._action.call,
            binding.task_id,
            binding.attempt,
            binding.fence,
            work.handler,
            work.arguments,
            json.dumps(files),
        )
        self._go(CallStep.RUNNING)
        if self._hand_over(call):
            return []
        self._finish(None)
        return [Recalled(self._place.slot, [call.call])]

    def _collected(self, ended: Ended) -> list[Input]:
        self._job = 0
        if self._step is not CallStep.COLLECTING or self._end is None:
            return self._clear_when_idle()
        if ended.problem is None:
            return self._finish(replace(self._end, outputs=ended.bundle))
        return self._finish(replace(self._end, outcome=collect_failure(ended.problem)))

    def _saves_settled(self) -> list[Input]:
        if self._step is CallStep.SAVING:
            return self._finish(self._end)
        return self._clear_when_idle()

    def _warn(self, text: str) -> None:
        # The log is the child's to number, so that words of Tenure's own go to the worker's.
        _LOG.warning("task %s: %s", self._action.binding.task_id, text)

    def _fail(self, message: str) -> list[Input]:
        failure = Failure(kind=FailureKind.INPUT_UNAVAILABLE, message=message[:2_000])
        return self._finish(CallEnded(self._place.slot, self._action.call, Outcome(failure=failure), 0))

    def _finish(self, end: CallEnded | None) -> list[Input]:
        """Tell that end, and after it that of the tree when it came first."""
        if self._step is CallStep.OVER:
            return []
        self._go(CallStep.OVER)
        self._saves.drop()
        if self._job:
            self._freight.cancel(self._job)
        self._clear_when_idle()
        tree, self._tree = self._tree, None
        return [one for one in (end, tree) if one is not None]

    def _clear_when_idle(self) -> list[Input]:
        if self._step is CallStep.OVER and not self._job and not self._saves.busy:
            keep = ""
            if self._action.provision.keep_folder:
                name = f"{self._action.binding.task_id}-{self._action.binding.fence}"
                keep = str(self._launch.kept_folder(name))
            clear_away(self._place.folder, keep)
        return []
