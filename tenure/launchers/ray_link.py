"""The launcher's end of the process that speaks with Ray: started when needed, and killed when it does not answer.

Every request is bounded in time, whatever Ray does. After a failure the next ones fail at once for a growing pause, for
starting that process costs seconds of CPU.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast, final

from tenure.errors import SubstrateUnreachable
from tenure.processes.tied import tied_argv

if TYPE_CHECKING:
    from tenure.clock import Clock
    from tenure.launchers.ray_plan import RayOptions

# The package comes from where this process has it, which need not be where that one would look.
_SCRIPT: Final = """\
import sys
sys.path.append(sys.argv[1])
from tenure.launchers.ray_side import main
main(int(sys.argv[2]))
"""
_CONNECT_MS: Final = 40_000
_REACH_S: Final = 3
_HOST_AND_PORT: Final = re.compile(r"(?P<host>[^:/]+):(?P<port>[0-9]{1,5})")
_FIRST_PAUSE_MS: Final = 1_000
_LAST_PAUSE_MS: Final = 60_000
_END_S: Final = 5
_REMEDY: Final = "Is the cluster up, its address right, and its Ray and Python the same as here? See ray.log"


@final
@dataclass
class _Side:
    process: subprocess.Popen[bytes]
    connection: socket.socket

    def ask(self, request: dict[str, Any], clock: Clock, patience_ms: int) -> dict[str, Any]:
        """Raises OSError (TimeoutError included) and ValueError."""
        until_ms = clock.elapsed_ms() + patience_ms
        self.connection.settimeout(patience_ms / 1000)
        self.connection.sendall(json.dumps(request).encode() + b"\n")
        received = bytearray()
        while not received.endswith(b"\n"):
            left_ms = until_ms - clock.elapsed_ms()
            if left_ms <= 0:
                raise TimeoutError
            self.connection.settimeout(left_ms / 1000)
            piece = self.connection.recv(65536)
            if not piece:
                raise ConnectionResetError
            received += piece
        return cast("dict[str, Any]", json.loads(received))

    def end(self, *, at_once: bool) -> None:
        self.connection.close()
        if not at_once:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_END_S)
        self.process.kill()
        self.process.wait()


@final
class RayLink:
    """Asks Ray, through a process of its own.

    Args:
        options: where the cluster is.
        folder: where that process writes what Ray prints, into `ray.log`.
        clock: for the bounds.
    """

    def __init__(self, options: RayOptions, folder: Path, clock: Clock) -> None:
        self._options = options
        self._log = folder / "ray.log"
        self._clock = clock
        self._side: _Side | None = None
        self._pause_ms = 0
        self._closed_until_ms = 0
        self._why = ""

    def ask(self, request: dict[str, Any], patience_ms: int) -> dict[str, Any]:
        """The answer to one request.

        Raises:
            SubstrateUnreachable: there was none; what was asked may have been done.
        """
        if self._clock.elapsed_ms() < self._closed_until_ms:
            raise SubstrateUnreachable(self._why, _REMEDY)
        try:
            if self._side is None:
                self._connect()
            side = cast("_Side", self._side)
            found = side.ask(request, self._clock, patience_ms)
        except (OSError, OverflowError, ValueError) as error:
            raise self._failed(f"Ray does not answer ({type(error).__name__})") from None
        if "error" in found:
            raise SubstrateUnreachable(f"Ray has failed: {_first_line(found['error'])}", _REMEDY)
        self._pause_ms = 0
        return found

    def close(self) -> None:
        """End the process. What was launched runs on."""
        if self._side is not None:
            self._side.end(at_once=False)
            self._side = None

    def _connect(self) -> None:
        # Ray would try for half a minute, with a process of its own; most of what is away is found out at once.
        if found := _HOST_AND_PORT.fullmatch(self._options.address):
            socket.create_connection((found["host"], int(found["port"])), _REACH_S).close()
        here, there = socket.socketpair()
        home = str(Path(__file__).parents[2])
        argv = [sys.executable, "-P", "-c", _SCRIPT, home, str(there.fileno())]
        if variables := self._options.variables:
            program = shutil.which("env") or "/usr/bin/env"
            argv = [program, *(f"{name}={value}" for name, value in variables.items()), *argv]
        with self._log.open("wb") as log, there:
            process = subprocess.Popen(
                tied_argv(argv),
                pass_fds=(there.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        self._side = _Side(process, here)
        where = {"address": self._options.address, "namespace": self._options.namespace}
        answer = self._side.ask(where, self._clock, _CONNECT_MS)
        if "error" in answer:
            raise self._failed(f"no connection to Ray: {_first_line(answer['error'])}")

    def _failed(self, why: str) -> SubstrateUnreachable:
        if self._side is not None:
            self._side.end(at_once=True)
            self._side = None
        self._pause_ms = min(max(2 * self._pause_ms, _FIRST_PAUSE_MS), _LAST_PAUSE_MS)
        self._closed_until_ms = self._clock.elapsed_ms() + self._pause_ms
        self._why = why
        return SubstrateUnreachable(why, _REMEDY)


def _first_line(text: object) -> str:
    return str(text).partition("\n")[0][:500]
