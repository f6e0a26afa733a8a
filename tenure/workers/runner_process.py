"""A slot's runner as the agent sees it: the process, orders to it, and its reports. Nothing here blocks for long."""

from __future__ import annotations

import logging
import select
import signal
import socket
import subprocess
from typing import TYPE_CHECKING, Any, Final, final

from tenure.processes.frames import Unframer, frame
from tenure.workers.freight import clear_away
from tenure.workers.runner_messages import parse, render

if TYPE_CHECKING:
    from pathlib import Path

    from tenure.workers.launching import Launch

_LOG: Final = logging.getLogger(__name__)
_CHUNK: Final = 256 * 1024
_SOCKET_BYTES: Final = 1024 * 1024
_ORDER_PATIENCE_MS: Final = 2_000


@final
class RunnerProcess:
    """One slot's runner, started when there is something to run. Used by one thread."""

    def __init__(self, slot: int, launch: Launch) -> None:
        self._slot = slot
        self._launch = launch
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._unframer = Unframer()
        self._until: tuple[int | None, int] = (None, 0)
        self._last_folder: tuple[Path, int] | None = None
        """The folder of the last command that this runner was given, and the number of its run."""
        self.run = 0
        """The number of what was started last."""
        self.is_active = False
        """Whether that has not ended yet."""

    @property
    def pid(self) -> int:
        """The process id; 0 while there is none."""
        return self._process.pid if self._process is not None else 0

    def fileno(self) -> int:
        """The descriptor to watch for reports; -1 while there is none."""
        return self._control.fileno() if self._control is not None else -1

    # --- orders ---------------------------------------------------------------------------------

    def start(self, order: dict[str, Any], folder: Path, descriptors: list[int]) -> None:
        """Start something in that folder; whatever runs is replaced."""
        self.run += 1
        self.is_active = True
        until_ms, grace_ms = self._until
        order |= {"run": self.run, "until": until_ms, "grace": grace_ms, "descriptors": len(descriptors)}
        order["cwd"] = str(folder)
        if self._control is None:
            self._start_process()
        self._send(order, descriptors)

    def run_program(self, order: dict[str, Any], folder: Path) -> None:
        """See `command_run.ProgramHost.run_program`."""
        self.start(order, folder, [])
        self._last_folder = (folder, self.run)

    def allow_until(self, until_ms: int | None, grace_ms: int) -> None:
        """Push the deadline of what runs, or of what is started next."""
        self._until = (until_ms, grace_ms)
        if self.is_active:
            self._send({"op": "until", "run": self.run, "until": until_ms, "grace": grace_ms})

    def stop_program(self, grace_ms: int) -> None:
        """See `command_run.ProgramHost.stop_program`; also ends a child."""
        self._send({"op": "stop", "run": self.run, "grace": grace_ms})
        if self._process is not None:
            # A runner that somebody has stopped could not obey, and the lease would run out over what it holds.
            self._process.send_signal(signal.SIGCONT)

    def clear(self, folder: Path, keep: str) -> None:
        """See `command_run.ProgramHost.clear`."""
        if self._last_folder == (folder, self.run):
            self._send({"op": "clean", "run": self.run})
        else:
            clear_away(folder, keep)

    def close(self) -> None:
        """Let the runner end everything and itself."""
        self.is_active = False
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

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """What it has told since about what was started last, and whether it is still there."""
        if self._control is None:
            return [], True
        try:
            data = self._control.recv(_CHUNK)
            reports = [parse(body) for body in self._unframer.feed(data)]
        except BlockingIOError:
            return [], True
        except (ValueError, TypeError, OSError):
            data, reports = b"", []
        if not data:
            self._bury()
        return [report for report in reports if report["run"] == self.run and self.is_active], bool(data)

    def _bury(self) -> None:
        self._drop_control()
        self._last_folder = None
        process, self._process = self._process, None
        if process is not None:
            # Its end of the socket is closed, so it has ended, or it is good for nothing.
            process.kill()
            code = process.wait()
            _LOG.warning("the runner of slot %d has ended (exit code %s)", self._slot, code)

    # --- the process ----------------------------------------------------------------------------

    def _start_process(self) -> None:
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
            while sent < len(data) and _takes_more(self._control):
                sent += self._control.send(data[sent:])
        except OSError:
            sent = 0
        if sent != len(data) and self._process is not None:
            # A runner that does not read is stuck or dead; without it nothing in this slot can be proved.
            self._process.kill()

    def _drop_control(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None


def _takes_more(control: socket.socket) -> bool:
    """Whether a runner, which may have to start first, takes the rest of a large order soon."""
    poll = select.poll()
    poll.register(control, select.POLLOUT)
    return bool(poll.poll(_ORDER_PATIENCE_MS))
