"""A runner in a process of its own, spoken to in its own messages, and the folders that its commands run in."""

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tenure.processes.frames import Unframer, frame
from tenure.protocol.envelope import CommandWork
from tenure.protocol.worker_messages import Binding, FailureKind
from tenure.workers.actions import StartCommand
from tenure.workers.endings import tree_ended
from tenure.workers.inputs import TreeEnded
from tenure.workers.runner_messages import Fields, parse, render
from tests.waiting import wait_until

ROOT = Path(__file__).parents[1]
LIMIT = 10_000
BINDING = Binding(task_id="0" * 26, attempt=1, fence=1, digest="a" * 64, nonce="b" * 32)


class RunnerBench:
    """One runner, the orders that it was given, and all that it has said."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.printed: list[tuple[int, int, str]] = []
        self.lines: list[str] = []
        self.reports: list[Fields] = []
        self.run = 0
        self.work = CommandWork(argv=("true",))
        self._unframer = Unframer()
        self.control, theirs = socket.socketpair()
        lock = os.open(os.devnull, os.O_RDONLY)
        numbers = (theirs.fileno(), lock)
        argv = [sys.executable, "-P", "-m", "tenure.workers.runner", *map(str, numbers), str(os.getpid())]
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(argv, pass_fds=numbers, env=env, start_new_session=True)
        theirs.close()
        os.close(lock)

    # --- orders ---------------------------------------------------------------------------------

    def start(self, *argv: str, form: str = "stdout", **fields: Any) -> Path:
        """Order a command, and answer its folder."""
        self.run += 1
        self.work = CommandWork.model_validate({"argv": argv, "form": form})
        cwd = self.folder / f"task-{self.run}"
        task: Fields = {"task_id": BINDING.task_id, "parameters": {"steps": 10}, "checkpoint": None}
        order: Fields = {
            "op": "command",
            "run": self.run,
            "argv": argv,
            "env": {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
            "cwd": str(cwd),
            "until": None,
            "grace": 500,
            "descriptors": 0,
            "stdin": "",
            "limit": LIMIT,
            "form": form,
            "task": task,
            "limits": {},
            "secrets": [],
            "keep": "",
            **fields,
        }
        self.send(order)
        return cwd

    def python(self, script: str, **fields: Any) -> Path:
        """Order a Python script."""
        return self.start(sys.executable, "-c", script, **fields)

    def send(self, order: Fields) -> None:
        """Send an order."""
        self.control.sendall(frame(render(order)))

    def clean(self) -> None:
        """The folder of the last command is not needed any more."""
        self.send({"op": "clean", "run": self.run})

    # --- what it says ---------------------------------------------------------------------------

    def _listen(self) -> None:
        """Take what it has said since."""
        while select.select([self.control], [], [], 0)[0]:
            data = self.control.recv(1 << 20)
            assert data, "the runner has ended"
            for body in self._unframer.feed(data):
                self._take(parse(body))

    def until(self, holds: Callable[[], object], description: str, timeout_s: float = 20) -> None:
        """Listen until that holds."""

        def heard() -> object:
            self._listen()
            return holds()

        wait_until(heard, description, timeout_s)

    def report(self, timeout_s: float = 20) -> Fields:
        """The report of the end of the last command."""
        self.until(lambda: self.reports and self.reports[-1]["run"] == self.run, "the command has ended", timeout_s)
        return self.reports[-1]

    def ended(self, timeout_s: float = 20) -> TreeEnded:
        """What the core is told about that end; a result that was told in lines is its last."""
        report = self.report(timeout_s)
        if self.work.form == "lines":
            results = [parse(line.encode()).get("result") for line in self.lines if '"result"' in line]
            report = {**report, "result": render({"x": results[-1]}).decode()[5:-1] if results else None}
        return tree_ended(0, report, StartCommand(0, 1, BINDING, self.work), [], LIMIT)

    def value(self) -> str:
        """The value of the last command, as JSON text."""
        outcome = self.ended().outcome
        assert outcome is not None
        assert outcome.value is not None, outcome.failure
        return outcome.value

    def failure(self, timeout_s: float = 20) -> FailureKind:
        """How the last command failed."""
        outcome = self.ended(timeout_s).outcome
        assert outcome is not None
        assert outcome.failure is not None, outcome.value
        return outcome.failure.kind

    def text(self, stream: int) -> str:
        """What was passed on of a stream, without what was left out."""
        return "".join(text for number, _, text in self.printed if number == stream)

    def close(self) -> None:
        """End it as an agent does that has died, and see that nothing is left of it."""
        self.control.close()
        self.process.send_signal(signal.SIGCONT)
        assert self.process.wait(30) == 0
        assert list(self.folder.glob("task-*")) == []

    def _take(self, message: Fields) -> None:
        if "reason" in message:
            self.reports.append(message)
            return
        assert message["run"] == self.run
        self.printed += [(stream, position, text) for stream, position, text in message.get("printed", ())]
        self.lines += message.get("lines", ())
