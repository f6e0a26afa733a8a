"""The porter: a process that moves and hashes files, so that nobody who keeps a heartbeat has to.

Started as `python -m tenure.artifacts.porter <control descriptor> <parent's process id>`. Settings and orders come
over the control socket, see `porter_orders.py`. It ends with its parent: the socket's end and the parent's own end both
tell, whichever thread of the parent had started it and whoever has inherited the socket's other end meanwhile.

A job that does not heed its cancellation, because a disk or a network holds it, is told as cancelled after a while;
what it still does changes nothing that anybody relies on.
"""

from __future__ import annotations

import logging
import os
import resource
import select
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Final, final

from tenure.artifacts.carrier import CANCELLED
from tenure.artifacts.jobs import Ended, Problem
from tenure.artifacts.porter_orders import MAX_ORDER_BYTES, ORDER, SETTINGS, Begin
from tenure.artifacts.porter_tools import Tools
from tenure.artifacts.stopping import Stop
from tenure.clock import SystemClock
from tenure.processes.frames import BrokenFrame, Unframer, frame
from tenure.processes.linux import forbid_inspection, give_back_memory
from tenure.protocol.message import decode

if TYPE_CHECKING:
    from tenure.artifacts.jobs import Job
    from tenure.clock import Clock

_AT_ONCE: Final = 4
_CHUNK: Final = 256 * 1024
_PATIENCE_MS: Final = 5_000
_LOOK_MS: Final = 200
_LARGE_BYTES: Final = 1024 * 1024
"""Blocks from this size on go back to the system at once: parts of files come and go all the time."""


@final
class PorterProcess:
    """One porter.

    Args:
        control: the stream socket to the parent.
        parent: a descriptor that becomes readable when the parent has ended; -1 where the system has none.
        clock: how long a cancelled job may take.
    """

    def __init__(self, control: socket.socket, parent: int, clock: Clock) -> None:
        self._control = control
        self._parent = parent
        self._clock = clock
        self._unframer = Unframer(MAX_ORDER_BYTES)
        self._tools: Tools | None = None
        self._threads = ThreadPoolExecutor(_AT_ONCE, "job")
        self._lock = Lock()
        self._stops: dict[int, Stop] = {}
        self._until: dict[int, int] = {}

    def run(self) -> None:
        """Serve the parent until it is gone."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        if self._parent >= 0:
            poll.register(self._parent, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll(_LOOK_MS if self._until else None)}
            if self._parent in ready or (self._control.fileno() in ready and not self._listen()):
                return
            self._give_up_on()

    def _listen(self) -> bool:
        """Take orders; whether there is still somebody who gives them."""
        try:
            data = self._control.recv(_CHUNK)
            for body in self._unframer.feed(data):
                self._obey(body)
        except (OSError, BrokenFrame):
            return False
        return bool(data)

    def _obey(self, body: bytes) -> None:
        if self._tools is None:
            self._tools = Tools(decode(SETTINGS, body, MAX_ORDER_BYTES))
            return
        order = decode(ORDER, body, MAX_ORDER_BYTES)
        if isinstance(order, Begin):
            stop = Stop()
            with self._lock:
                self._stops[order.job.number] = stop
            self._threads.submit(self._work, self._tools, order.job, stop)
            return
        with self._lock:
            stopped = self._stops.get(order.number)
        if stopped is not None:
            stopped.give()
            self._until[order.number] = self._clock.elapsed_ms() + _PATIENCE_MS

    def _work(self, tools: Tools, job: Job, stop: Stop) -> None:
        self._tell(tools.carry(job, stop))

    def _give_up_on(self) -> None:
        now_ms = self._clock.elapsed_ms()
        for number in [number for number, until_ms in self._until.items() if until_ms <= now_ms]:
            del self._until[number]
            problem = Problem(code=CANCELLED, message="The job was given up on order, and does not end by itself")
            self._tell(Ended(number=number, problem=problem))

    def _tell(self, ended: Ended) -> None:
        with self._lock, suppress(OSError):  # a parent that is gone is found out elsewhere
            if self._stops.pop(ended.number, None) is not None:
                self._control.sendall(frame(ended.model_dump_json(exclude_defaults=True).encode()))


def main() -> None:
    """Run a porter on the descriptor that the command line names."""
    control, parent = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    forbid_inspection()
    give_back_memory(_LARGE_BYTES)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(level=logging.ERROR)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        watched = os.pidfd_open(parent) if hasattr(os, "pidfd_open") else -1
    except ProcessLookupError:
        return
    if os.getppid() == parent:
        PorterProcess(control, watched, SystemClock()).run()
    # Without waiting for threads: what they were at is gone on with by whoever repeats the job.
    os._exit(0)


if __name__ == "__main__":
    main()
