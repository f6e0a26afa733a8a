"""The agent's side of one slot: its runner process, and what the runner runs.

Nothing here blocks and nothing decides: orders go out, and what comes back is turned into inputs of the core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from tenure.workers.actions import StartCommand
from tenure.workers.call_run import CallRun
from tenure.workers.calls import call_packet, files_packet
from tenure.workers.child_sockets import ChildSockets
from tenure.workers.command_run import CommandRun
from tenure.workers.endings import tree_ended
from tenure.workers.inputs import Recalled, TreeEnded
from tenure.workers.provision import works_with_files
from tenure.workers.runner_process import RunnerProcess

if TYPE_CHECKING:
    from pathlib import Path

    from tenure.workers.actions import StartCall
    from tenure.workers.calls import Call
    from tenure.workers.gear import Gear
    from tenure.workers.inputs import Input


@final
class RunnerLink:
    """One slot's processes as the agent sees them. Used by one thread."""

    def __init__(self, slot: int, gear: Gear) -> None:
        self._slot = slot
        self._gear = gear
        self._launch = gear.launch
        self._runner = RunnerProcess(slot, gear.launch)
        self._starts = 0
        self._command: CommandRun | None = None
        self._call: CallRun | None = None
        self._child: ChildSockets | None = None

    def descriptors(self) -> tuple[int, int]:
        """The control and the results descriptor to watch; -1 for one that is not open."""
        return self._runner.fileno(), self._child.results() if self._child is not None else -1

    @property
    def pid(self) -> int:
        """The runner's process id; 0 while there is none."""
        return self._runner.pid

    # --- orders ---------------------------------------------------------------------------------

    def child(self) -> ChildSockets:
        """The sockets of the slot's child, which is started when there is none."""
        if self._child is None:
            self._command = None
            self._child = ChildSockets(self._slot, self._gear.printed)
            order = {"op": "child", "argv": self._launch.child_argv(), "env": self._launch.child_env()}
            folder = self._launch.task_folder(f"child-{self._slot}-{self._runner.run + 1}")
            self._runner.start(order, folder, self._child.child_ends())
            self._child.handed_over()
        return self._child

    def start(self, action: StartCall | StartCommand) -> list[Input]:
        """Run a call or a command; an idle child is ended for a command. Answers what is known at once."""
        if isinstance(action, StartCommand):
            self._drop_child()
            self._command = CommandRun(action, self._gear, self._runner, self._fresh_folder(action))
            return self._command.begin()
        if works_with_files(action.work, action.provision):
            self.child()
            self._call = CallRun(action, self._gear, self._fresh_folder(action), self._hand_over)
            return self._call.begin()
        binding, work = action.binding, action.work
        head = (binding.task_id, binding.attempt, binding.fence)
        packet = call_packet(action.call, head, work.handler, work.arguments)
        return [] if self._send(action.call, head, packet) else [Recalled(self._slot, [action.call])]

    def recall(self) -> list[int]:
        """Take back the calls that the child has not begun."""
        calls = self._child.recall() if self._child is not None else []
        if calls and self._call is not None:
            self._call.recalled()
        return calls

    def allow_until(self, until_ms: int | None, grace_ms: int) -> None:
        """Push the deadline of what runs, or of what is started next."""
        self._runner.allow_until(until_ms, grace_ms)

    def end_tree(self, grace_ms: int, *, is_late: bool = False) -> list[Input]:
        """End what runs; answers at once when nothing does. See `EndTree` for what `is_late` means."""
        if self._command is not None and not self._command.is_over:
            return self._command.stop(grace_ms, is_late=is_late)
        known = self._call.stop(is_late=is_late) if self._call is not None else None
        if known is not None:
            return known
        if not self._runner.is_active:
            return [TreeEnded(self._slot, gone=True)]
        self._runner.stop_program(grace_ms)
        return []

    def close(self) -> None:
        """Let the runner end everything and itself."""
        self._drop_child()
        self._runner.close()

    def wait(self, timeout_s: float) -> bool:
        """Whether the runner has ended within that time after `close`."""
        return self._runner.wait(timeout_s)

    # --- what comes back ------------------------------------------------------------------------

    def read_results(self) -> list[Input]:
        """What the child has told since."""
        told: list[Input] = []
        if self._child is None:
            return told
        self._child.receive(told)
        inputs = self._through_call(self._child, told)
        if self._child.is_broken and self._runner.is_active:
            self._runner.stop_program(0)
        return inputs

    def read_control(self) -> list[Input]:
        """What the runner has told since: of its command, of ends of trees, or its own end."""
        reports, is_there = self._runner.read()
        inputs = [happened for report in reports for happened in self._told(report)]
        return inputs if is_there else [*inputs, *self._runner_ended()]

    def _told(self, report: dict[str, Any]) -> list[Input]:
        command = self._command
        if "reason" in report:
            self._runner.is_active = False
            return self._child_ended(report) if command is None else command.program_ended(report)
        if command is None:
            return []
        if "printed" in report:
            command.printed(report["printed"])
        return command.told(report.get("lines", ()))

    def _child_ended(self, report: dict[str, Any]) -> list[Input]:
        inputs, unstarted = self._last_of_child()
        end = tree_ended(self._slot, report, None, unstarted, self._launch.options.max_value_bytes)
        return [*inputs, *self._tree_through_call(end)]

    def _runner_ended(self) -> list[Input]:
        was_active, self._runner.is_active = self._runner.is_active, False
        if self._command is not None:
            return self._command.runner_died()
        inputs, unstarted = self._last_of_child()
        if was_active:
            detail = "the process that watches over the slot has ended"
            end = TreeEnded(self._slot, gone=False, unstarted=unstarted, detail=detail)
            inputs.extend(self._tree_through_call(end))
        return inputs

    def _last_of_child(self) -> tuple[list[Input], list[int]]:
        if self._child is None:
            return [], []
        inputs, unstarted = self._through_call(self._child, self._child.receive_all()), self._child.recall()
        self._drop_child()
        return inputs, unstarted

    # --- calls ----------------------------------------------------------------------------------

    def _hand_over(self, call: Call) -> bool:
        return self._send(call.call, (call.task_id, call.attempt, call.fence), files_packet(call))

    def _send(self, call: int, head: tuple[str, int, int], packet: bytes) -> bool:
        child = self.child()
        child.logs.expect(call, head[0], head[2])
        if child.send(packet):
            return True
        child.logs.drop(call)
        return False

    def _through_call(self, child: ChildSockets, told: list[Input]) -> list[Input]:
        """What the child has told, as far as it does not have to wait for the files of a call."""
        if self._call is None:
            return told
        for saved in child.saved:
            self._call.saved(saved.name)
        child.saved.clear()
        return [one for happened in told for one in self._call.passed(happened)]

    def _tree_through_call(self, end: TreeEnded) -> list[Input]:
        if self._call is None:
            return [end]
        return self._call.tree_ended(end)

    def _fresh_folder(self, action: StartCall | StartCommand) -> Path:
        """A folder that nothing else ever had: what is left in an earlier one may still be on its way out."""
        self._starts += 1
        name = f"{action.binding.task_id}-{action.binding.fence}-{self._slot}-{self._starts}"
        return self._launch.task_folder(name)

    def _drop_child(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None
