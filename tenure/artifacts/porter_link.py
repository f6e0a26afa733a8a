"""The parent's side of a porter: starts it at the first job, again after it has died, and never waits for it."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Final, final

from tenure.artifacts.jobs import ENDED, Ended, Problem
from tenure.artifacts.porter_orders import MAX_ORDER_BYTES, Begin, Cancel
from tenure.errors import ArtifactError, TenureError
from tenure.processes.frames import BrokenFrame, Unframer, frame
from tenure.processes.interpreters import import_path, python_argv
from tenure.protocol.message import decode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.artifacts.jobs import Job
    from tenure.artifacts.porter_orders import Order, PorterSettings
    from tenure.clock import Clock

_LOG: Final = logging.getLogger(__name__)
_CHUNK: Final = 256 * 1024
_SOCKET_BYTES: Final = 1024 * 1024
_CANCEL_MS: Final = 20_000
"""A porter answers a cancellation within seconds; one that does not is stuck, and is ended."""

_GOODBYE_S: Final = 2.0
_KILLED_S: Final = 0.2
"""How long the end of a killed process is waited for: the caller has a heartbeat to keep."""

_PATH: Final = "/usr/local/bin:/usr/bin:/bin"


@final
class PorterLink:
    """See `tenure.artifacts.base.Porter`. Used by one thread.

    Args:
        settings: what the porter works with.
        clock: how long a cancellation may take.
    """

    def __init__(self, settings: PorterSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._unframer = Unframer(MAX_ORDER_BYTES)
        self._unsent = bytearray()
        self._running: set[int] = set()
        self._cancelled: dict[int, int] = {}
        self._ended: list[Ended] = []

    @property
    def pid(self) -> int:
        """See `Porter.pid`."""
        return self._process.pid if self._process is not None else 0

    def submit(self, job: Job) -> None:
        """See `Porter.submit`."""
        self._running.add(job.number)
        try:
            if self._control is None:
                self._start()
        except OSError as error:
            self._end_all(f"The process that carries files cannot be started: {error.strerror}")
            return
        self._send(Begin(job=job))

    def cancel(self, number: int) -> None:
        """See `Porter.cancel`."""
        if number in self._running and number not in self._cancelled:
            self._cancelled[number] = self._clock.elapsed_ms() + _CANCEL_MS
            self._send(Cancel(number=number))

    def ended(self) -> Sequence[Ended]:
        """See `Porter.ended`."""
        self._flush()
        self._receive()
        if any(until_ms <= self._clock.elapsed_ms() for until_ms in self._cancelled.values()):
            self._lose("The process that carries files does not answer any more")
        told, self._ended = self._ended, []
        return told

    def busy(self) -> bool:
        """See `Porter.busy`."""
        return bool(self._running or self._ended)

    def fileno(self) -> int:
        """See `Porter.fileno`."""
        return self._control.fileno() if self._control is not None else -1

    def close(self) -> None:
        """See `Porter.close`."""
        self._drop_control()
        process, self._process = self._process, None
        self._running.clear()
        self._cancelled.clear()
        if process is None:
            return
        try:
            process.wait(_GOODBYE_S)
        except subprocess.TimeoutExpired:
            _end(process)

    # --- the process ----------------------------------------------------------------------------

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [*python_argv(sys.executable, "tenure.artifacts.porter"), str(theirs.fileno()), str(os.getpid())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    cwd="/",
                    env={"PATH": _PATH, **import_path()},
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                raise
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
        ours.setblocking(False)  # noqa: FBT003
        self._control = ours
        self._unframer = Unframer(MAX_ORDER_BYTES)
        self._unsent = bytearray(frame(self._settings.model_dump_json().encode()))
        self._flush()

    def _send(self, order: Order) -> None:
        self._unsent += frame(order.model_dump_json().encode())
        self._flush()

    def _flush(self) -> None:
        while self._unsent and self._control is not None:
            try:
                sent = self._control.send(self._unsent)
            except BlockingIOError:
                return
            except OSError:
                return  # reading tells the same, after what it had said before
            del self._unsent[:sent]

    def _receive(self) -> None:
        while self._control is not None:
            try:
                data = self._control.recv(_CHUNK)
                bodies = self._unframer.feed(data)
                for body in bodies:
                    self._take(decode(ENDED, body))
            except BlockingIOError:
                return
            except (OSError, BrokenFrame, TenureError):
                data = b""
            if not data:
                self._lose("The process that carries files has ended unexpectedly")

    def _take(self, ended: Ended) -> None:
        if ended.number in self._running:
            self._running.discard(ended.number)
            self._cancelled.pop(ended.number, None)
            self._ended.append(ended)

    def _lose(self, why: str) -> None:
        self._drop_control()
        process, self._process = self._process, None
        if process is not None:
            _end(process)
            _LOG.warning("%s (exit code %s)", why, process.returncode)
        self._end_all(why)

    def _end_all(self, why: str) -> None:
        for number in sorted(self._running):
            self._take(Ended(number=number, problem=Problem(code=ArtifactError.code, message=why)))

    def _drop_control(self) -> None:
        self._unsent.clear()
        if self._control is not None:
            self._control.close()
            self._control = None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    try:
        process.wait(_KILLED_S)
    except subprocess.TimeoutExpired:
        _LOG.warning("the process %d that carries files cannot be ended: a disk or a mount holds it", process.pid)
