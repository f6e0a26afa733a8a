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
from tenure.processes.frames import BrokenFrame, Unframer
from tenure.processes.linux import adopt_orphans, die_with_parent, forbid_inspection
from tenure.workers.runner_messages import parse
from tenure.workers.sending import Sending
from tenure.workers.tree import Tree

if TYPE_CHECKING:
    from tenure.clock import Clock
    from tenure.workers.removal import Removal
    from tenure.workers.runner_messages import Fields

_ORPHAN_GRACE_MS: Final = 500
_CHUNK: Final = 65_536
_MOST_DESCRIPTORS: Final = 8
_REMOVED_AT_A_TIME: Final = 500
_CONGESTED_MS: Final = 20


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
        self._sending = Sending(control)
        self._received: list[int] = []
        self._tree: Tree | None = None
        self._next: Fields | None = None
        self._ended: Tree | None = None
        self._removals: list[Removal] = []
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
        while self._agent_is_there or self._tree is not None or self._removals:
            self._turn(wakeup)

    def _note_child(self, *_: object) -> None:
        """The signal only has to end the wait."""

    def _note_terminated(self, *_: object) -> None:
        self._terminated = True

    def _turn(self, wakeup: int) -> None:
        for descriptor, events in self._poll.poll(self._patience_ms()):
            if descriptor == wakeup:
                os.read(wakeup, _CHUNK)
            elif descriptor == self._control.fileno():
                self._serve(events)
            elif not self._read(descriptor):
                self._poll.unregister(descriptor)
        if self._terminated:
            self._lose_agent()
        self._look_after_tree()
        if self._removals and self._removals[0].step(_REMOVED_AT_A_TIME):
            self._removals.pop(0)

    def _patience_ms(self) -> int:
        if self._removals:
            return 0
        if self._tree is None:
            return -1
        if self._sending.has_room:
            return self._tree.patience_ms(self._clock.elapsed_ms())
        # What waits to be told cannot be told, so that it is never due.
        return max(_CONGESTED_MS, self._tree.patience_ms(self._clock.elapsed_ms()))

    def _read(self, descriptor: int) -> bool:
        command = self._tree.command if self._tree is not None else None
        return command is not None and command.read(descriptor)

    def _serve(self, events: int) -> None:
        if events & select.POLLOUT:
            self._send(None)
        if events & ~select.POLLOUT and self._agent_is_there:
            self._listen()

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
        self._sending.forget()
        self._clean()
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
            case "clean" if self._ended is not None and self._ended.run == order["run"]:
                self._clean()
            case "stop" if self._tree is not None and self._tree.run == order["run"]:
                self._tree.end("stop", now_ms, order["grace"])
            case _:
                return

    def _start(self, order: Fields) -> None:
        self._clean()
        handed = [self._received.pop(0) for _ in range(order["descriptors"])]
        tree = Tree(order, self._clock)
        problem = tree.start(handed)
        for descriptor in handed:
            os.close(descriptor)
        if problem is not None:
            self._close(tree, problem)
            return
        self._tree = tree
        for descriptor in tree.command.descriptors() if tree.command is not None else []:
            self._poll.register(descriptor, select.POLLIN)

    def _look_after_tree(self) -> None:
        tree = self._tree
        if tree is None:
            return
        is_gone = tree.step(self._clock.elapsed_ms())
        if tree.command is not None and self._sending.has_room:
            self._tell(tree.command.news(self._clock.elapsed_ms()))
        if not is_gone:
            return
        for descriptor in tree.command.descriptors() if tree.command is not None else []:
            self._poll.unregister(descriptor)
        self._tree = None
        self._close(tree, None)
        if self._next is not None:
            order, self._next = self._next, None
            self._start(order)

    def _close(self, tree: Tree, problem: int | None) -> None:
        """Report the end of a tree; its folder may be needed until the agent says that it is not."""
        report = {**tree.report(self._clock.elapsed_ms()), "error": problem}
        if tree.reason != "replaced":
            if tree.command is not None:
                self._tell(tree.command.news(self._clock.elapsed_ms(), all_of_it=True))
            self._tell([report])
        self._ended = tree
        if tree.command is None or not self._agent_is_there or tree.reason == "replaced":
            self._clean()

    def _clean(self) -> None:
        if self._ended is not None:
            self._removals.append(self._ended.removal())
            self._ended = None

    def _tell(self, reports: list[Fields]) -> None:
        for report in reports:
            self._send(report)

    def _send(self, report: Fields | None) -> None:
        """Send the report, or go on with what waits."""
        if not self._agent_is_there:
            return
        try:
            if report is None:
                self._sending.go_on()
            else:
                self._sending.put(report)
        except OSError:
            self._lose_agent()
            return
        interest = select.POLLIN | (select.POLLOUT if self._sending.waits else 0)
        self._poll.modify(self._control.fileno(), interest)


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
