"""One process of a fleet on this machine: started, watched, started again after growing pauses, ended.

Each part runs in a process group of its own, so that Ctrl-C reaches only the process that looks after it, and ends when
that process does (see `owner`). What it says goes to a log file of its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from tenure.errors import FleetError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tenure.clock import Clock

_FIRST_PAUSE_MS: Final = 250
_LONGEST_PAUSE_MS: Final = 10_000
_STEADY_MS: Final = 30_000
_TAIL_BYTES: Final = 4_096


@final
@dataclass(frozen=True, slots=True)
class PartPlan:
    """What to run: `tenure` with these arguments, and the log that takes what it says."""

    name: str
    arguments: Sequence[str]
    log: Path


@final
class Part:
    """One process of the fleet.

    Args:
        plan: what to run.
        owner_pipe: the reading end of the owner's pipe, passed on to the process.
        clock: measures pauses between starts.
    """

    def __init__(self, plan: PartPlan, owner_pipe: int, clock: Clock) -> None:
        self._plan = plan
        self._owner_pipe = owner_pipe
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._started_ms = 0
        self._pause_ms = _FIRST_PAUSE_MS
        self._log_offset = 0

    @property
    def name(self) -> str:
        """The part's name, such as coordinator or worker-1."""
        return self._plan.name

    @property
    def pid(self) -> int:
        """The process that runs or ran last; 0 before the first."""
        return self._process.pid if self._process is not None else 0

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process."""
        # -P keeps modules that happen to lie in the current folder (a user's queue.py) out of Tenure's own imports.
        command = [sys.executable, "-P", "-m", "tenure", *self._plan.arguments, "--owner-pipe", str(self._owner_pipe)]
        descriptor = os.open(self._plan.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "ab") as log:
            self._log_offset = log.seek(0, os.SEEK_END)
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(self._owner_pipe,), process_group=0
            )
        self._started_ms = self._clock.elapsed_ms()

    def due_again_ms(self) -> int:
        """When an ended process may be started again, on the elapsed clock; each end in short order waits longer."""
        if self._clock.elapsed_ms() - self._started_ms > _STEADY_MS:
            self._pause_ms = _FIRST_PAUSE_MS
        due_ms = self._clock.elapsed_ms() + self._pause_ms
        self._pause_ms = min(_LONGEST_PAUSE_MS, self._pause_ms * 2)
        return due_ms

    def signal(self, number: int) -> None:
        """Send a signal to the process alone, when it runs."""
        if self._process is not None and self.running:
            self._process.send_signal(number)

    def kill(self) -> None:
        """End the process at once and see it gone."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def exit_code(self) -> int | None:
        """How the process ended; None while it runs or before it was started."""
        return self._process.poll() if self._process is not None else None

    def how_it_ended(self) -> str:
        """In words, with its last line."""
        code = self.exit_code() or 0
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        words = self.error().message if code > 0 else ""
        return f"{how}: {words}" if words else how

    def error(self) -> FleetError:
        """The error that the process said last, as far as its log tells."""
        last = self._last_line()
        try:
            said = json.loads(last)["error"]
            return FleetError(str(said["message"]), str(said["remedy"]))
        except (ValueError, KeyError, TypeError):
            return FleetError(f"{self.name} ended: {last or 'it said nothing'}", f"See {self._plan.log}")

    def _last_line(self) -> str:
        with self._plan.log.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_offset, end - _TAIL_BYTES))
            lines = log.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")
