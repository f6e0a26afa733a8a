"""The agent's side of one slot: its runner process, and what the runner runs.

Nothing here blocks and nothing decides: orders go out, and what comes back is turned into inputs of the core.
"""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
from typing import TYPE_CHECKING, Any, Final, final

from tenure.workers.child_sockets import ChildSockets
from tenure.workers.endings import tree_ended
from tenure.workers.frames import Unframer, frame
from tenure.workers.inputs import TreeEnded
from tenure.workers.runner_messages import parse, render

if TYPE_CHECKING:
    from tenure.workers.actions import StartCommand
    from tenure.workers.inputs import Input
    from tenure.workers.launching import Launch

_LOG: Final = logging.getLogger(__name__)
_CHUNK: Final = 256 * 1024
_SOCKET_BYTES: Final = 1024 * 1024


@final
class RunnerLink:
    """One slot's processes as the agent sees them. Used by one thread."""

    def __init__(self, slot: int, launch: Launch) -> None:
        self._slot = slot
        self._launch = launch
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._unframer = Unframer()
        self._run = 0
        self._is_active = False
        self._command: StartCommand | None = None
        self._child: ChildSockets | None = None
        self._until: tuple[int | None, int] = (None, 0)

    def descriptors(self) -> tuple[int, int]:
        """The control and the results descriptor to watch; -1 for one that is not open."""
        return (
            self._control.fileno() if self._control is not None else -1,
            self._child.results() if self._child is not None else -1,
        )

    @property
    def pid(self) -> int:
        """The runner's process id; 0 while there is none."""
        return self._process.pid if self._process is not None else 0

    # --- orders ---------------------------------------------------------------------------------

    def child(self) -> ChildSockets:
        """The sockets of the slot's child, which is started when there is none."""
        if self._child is None:
            self._child = ChildSockets(self._slot)
            order = {"op": "child", "argv": self._launch.child_argv(), "env": self._launch.child_env()}
            self._start(order, f"child-{self._slot}-{self._run + 1}", self._child.child_ends())
            self._child.handed_over()
        return self._child

    def start_command(self, action: StartCommand) -> None:
        """Run a command; an idle child is ended first."""
        self._drop_child()
        self._command = action
        order = {
            "op": "command",
            "argv": list(action.work.argv),
            "env": self._launch.command_env(action.binding, action.work),
            "stdin": action.work.stdin,
            "limit": self._launch.options.max_value_bytes,
        }
        self._start(order, f"{action.binding.task_id}-{action.binding.fence}", [])

    def recall(self) -> list[int]:
        """Take back the calls that the child has not begun."""
        return self._child.recall() if self._child is not None else []

    def allow_until(self, until_ms: int | None, grace_ms: int) -> None:
        """Push the deadline of what runs, or of what is started next."""
        self._until = (until_ms, grace_ms)
        if self._is_active:
            self._send({"op": "until", "run": self._run, "until": until_ms, "grace": grace_ms})

    def end_tree(self, grace_ms: int) -> list[Input]:
        """End what runs; answers at once when nothing does."""
        if not self._is_active:
            return [TreeEnded(self._slot, gone=True)]
        self._send({"op": "stop", "run": self._run, "grace": grace_ms})
        if self._process is not None:
            # A runner that somebody has stopped could not obey, and the lease would run out over what it holds.
            self._process.send_signal(signal.SIGCONT)
        return []

    def close(self) -> None:
        """Let the runner end everything and itself."""
        self._drop_child()
        self._is_active = False
        self._drop_control()

    def wait(self, timeout_s: float) -> bool:
        """Whether the runner has ended within that time after `close`."""
        if self._process is None:
            return True
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    # --- what comes back ------------------------------------------------------------------------

    def read_results(self) -> list[Input]:
        """What the child has told since."""
        inputs: list[Input] = []
        if self._child is not None:
            self._child.receive(inputs)
            if self._child.is_broken:
                self.end_tree(0)
        return inputs

    def read_control(self) -> list[Input]:
        """What the runner has told since: ends of trees, or its own end."""
        if self._control is None:
            return []
        try:
            data = self._control.recv(_CHUNK)
            reports = [parse(body) for body in self._unframer.feed(data)]
        except BlockingIOError:
            return []
        except (ValueError, TypeError, OSError):
            data, reports = b"", []
        inputs = [happened for report in reports for happened in self._tree_ended(report)]
        return inputs if data else [*inputs, *self._runner_ended()]

    def _tree_ended(self, report: dict[str, Any]) -> list[Input]:
        if report["run"] != self._run or not self._is_active:
            return []
        inputs, unstarted = self._last_of_child()
        limit_bytes = self._launch.options.max_value_bytes
        inputs.append(tree_ended(self._slot, report, self._command, unstarted, limit_bytes))
        self._is_active, self._command = False, None
        return inputs

    def _runner_ended(self) -> list[Input]:
        self._drop_control()
        process, self._process = self._process, None
        if process is not None:
            # Its end of the socket is closed, so it has ended, or it is good for nothing.
            process.kill()
            code = process.wait()
            _LOG.warning("the runner of slot %d has ended (exit code %s)", self._slot, code)
        was_active, self._is_active, self._command = self._is_active, False, None
        inputs, unstarted = self._last_of_child()
        if was_active:
            detail = "the process that watches over the slot has ended"
            inputs.append(TreeEnded(self._slot, gone=False, unstarted=unstarted, detail=detail))
        return inputs

    def _last_of_child(self) -> tuple[list[Input], list[int]]:
        if self._child is None:
            return [], []
        inputs, unstarted = self._child.receive_all(), self._child.recall()
        self._drop_child()
        return inputs, unstarted

    # --- the runner -----------------------------------------------------------------------------

    def _start(self, order: dict[str, Any], folder: str, descriptors: list[int]) -> None:
        self._run += 1
        self._is_active = True
        until_ms, grace_ms = self._until
        order |= {"run": self._run, "until": until_ms, "grace": grace_ms, "descriptors": len(descriptors)}
        order["cwd"] = self._launch.task_folder(folder)
        if self._control is None:
            self._start_runner()
        self._send(order, descriptors)

    def _start_runner(self) -> None:
        ours, theirs = socket.socketpair()
        self._unframer = Unframer()
        self._process = subprocess.Popen(
            self._launch.runner_argv(theirs.fileno()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd="/",
            env=self._launch.runner_env(),
            pass_fds=(theirs.fileno(), self._launch.runners_lock),
            start_new_session=True,
        )
        theirs.close()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
        ours.setblocking(False)  # noqa: FBT003
        self._control = ours

    def _send(self, order: dict[str, Any], descriptors: list[int] | None = None) -> None:
        if self._control is None:
            return
        data = frame(render(order))
        try:
            sent = socket.send_fds(self._control, [data], descriptors) if descriptors else self._control.send(data)
        except OSError:
            sent = 0
        if sent != len(data) and self._process is not None:
            # A runner that does not read is stuck or dead; without it nothing in this slot can be proved.
            self._process.kill()

    def _drop_child(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None

    def _drop_control(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
