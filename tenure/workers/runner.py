"""The runner: a small process per slot that owns the slot's process tree, and proves that it is gone.

It runs no user code and knows nothing of the broker. It starts one child or one command at a time, in a session of its
own; ends the whole tree on order, when the agent is gone (the control socket ends), or when the deadline that the
agent keeps pushing on has passed; and reports an end only when no descendant is left. Its own timer on elapsed time is
the dead-man's switch: an agent that is stopped, swapped out or stuck cannot leave anything running past the lease.

Started as `python -m tenure.workers.runner <control descriptor> <lock descriptor> <agent's process id>`. Orders and
reports are JSON frames, see `runner_messages.py`. The lock is held by being open: a new agent waits for it, and so
starts nothing before everything that an earlier one left behind is gone.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from typing import TYPE_CHECKING, Final, final

from tenure.clock import SystemClock
from tenure.workers.frames import BrokenFrame, Unframer, frame
from tenure.workers.linux import adopt_orphans, die_with_parent, forbid_inspection
from tenure.workers.runner_messages import parse, render
from tenure.workers.tree import Tree

if TYPE_CHECKING:
    from tenure.clock import Clock
    from tenure.workers.runner_messages import Fields

_ORPHAN_GRACE_MS: Final = 500
_CHUNK: Final = 65_536
_MOST_DESCRIPTORS: Final = 8


@final
class Runner:
    """One slot's runner.

    Args:
        control: the stream socket to the agent.
        clock: elapsed time that goes on while the host sleeps.
    """

    def __init__(self, control: socket.socket, clock: Clock) -> None:
        self._control = control
        self._clock = clock
        self._unframer = Unframer()
        self._received: list[int] = []
        self._tree: Tree | None = None
        self._next: Fields | None = None
        self._agent_is_there = True
        self._terminated = False
        self._poll = select.poll()

    def run(self) -> None:
        """Serve the agent until it is gone and nothing is running."""
        self._poll.register(self._control.fileno(), select.POLLIN)
        wakeup, written = os.pipe()
        for end in (wakeup, written):
            os.set_blocking(end, False)
        self._poll.register(wakeup, select.POLLIN)
        signal.set_wakeup_fd(written, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, self._note_child)
        signal.signal(signal.SIGTERM, self._note_terminated)
        while self._agent_is_there or self._tree is not None:
            self._turn(wakeup)

    def _note_child(self, *_: object) -> None:
        """The signal only has to end the wait."""

    def _note_terminated(self, *_: object) -> None:
        self._terminated = True

    def _turn(self, wakeup: int) -> None:
        timeout = -1 if self._tree is None else self._tree.patience_ms(self._clock.elapsed_ms())
        for descriptor, _ in self._poll.poll(timeout):
            if descriptor == wakeup:
                os.read(wakeup, _CHUNK)
            elif descriptor == self._control.fileno():
                self._listen()
            elif self._tree is not None and not self._tree.read(descriptor):
                self._poll.unregister(descriptor)
        if self._terminated:
            self._lose_agent()
        self._look_after_tree()

    def _listen(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, _CHUNK, _MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            data, descriptors = b"", []
        self._received.extend(descriptors)
        if not data:
            self._lose_agent()
            return
        try:
            for body in self._unframer.feed(data):
                self._obey(parse(body))
        except (BrokenFrame, ValueError, TypeError):
            self._lose_agent()

    def _lose_agent(self) -> None:
        if not self._agent_is_there:
            return
        self._agent_is_there = False
        self._next = None
        self._poll.unregister(self._control.fileno())
        if self._tree is not None:
            self._tree.end("agent", self._clock.elapsed_ms(), _ORPHAN_GRACE_MS)

    def _obey(self, order: Fields) -> None:
        now_ms = self._clock.elapsed_ms()
        match order["op"]:
            case "child" | "command":
                if self._tree is not None:
                    self._next = order
                    self._tree.end("replaced", now_ms, 0)
                else:
                    self._start(order)
            case "until" if self._next is not None and self._next["run"] == order["run"]:
                self._next.update(until=order["until"], grace=order["grace"])
            case "until" if self._tree is not None and self._tree.run == order["run"]:
                self._tree.allow_until(order["until"], order["grace"])
            case "stop" if self._tree is not None and self._tree.run == order["run"]:
                self._tree.end("stop", now_ms, order["grace"])
            case _:
                return

    def _start(self, order: Fields) -> None:
        handed = [self._received.pop(0) for _ in range(order["descriptors"])]
        tree = Tree(order, self._clock.elapsed_ms())
        problem = tree.start(handed)
        for descriptor in handed:
            os.close(descriptor)
        if problem is not None:
            self._report({**tree.report(self._clock.elapsed_ms()), "error": problem})
            tree.clean_up()
            return
        self._tree = tree
        for descriptor in tree.descriptors():
            self._poll.register(descriptor, select.POLLIN)

    def _look_after_tree(self) -> None:
        tree = self._tree
        if tree is None or not tree.step(self._clock.elapsed_ms()):
            return
        for descriptor in tree.descriptors():
            self._poll.unregister(descriptor)
        self._tree = None
        outputs = tree.outputs()
        if tree.reason != "replaced":
            self._report({**tree.report(self._clock.elapsed_ms()), **outputs, "error": None})
        tree.clean_up()
        if self._next is not None:
            order, self._next = self._next, None
            self._start(order)

    def _report(self, report: Fields) -> None:
        try:
            self._control.sendall(frame(render(report)))
        except OSError:
            self._lose_agent()


def main(arguments: list[str]) -> int:
    """Run a runner until its agent is gone."""
    control, lock, parent = map(int, arguments)
    adopt_orphans()
    die_with_parent(signal.SIGTERM)
    if os.getppid() != parent:
        return 1
    forbid_inspection()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for descriptor in (control, lock):
        # Nothing that the agent handed over may reach what runs here.
        os.set_inheritable(descriptor, False)  # noqa: FBT003
    Runner(socket.socket(fileno=control), SystemClock()).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
