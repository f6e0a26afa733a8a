"""The crew: all slots' processes. Carries out the core's actions on them, and waits for what they tell."""

from __future__ import annotations

import os
import select
from dataclasses import replace
from threading import RLock
from typing import TYPE_CHECKING, Final, final

from tenure.workers.actions import AllowUntil, CancelCall, EndTree, Recall, StartCall, StartCommand
from tenure.workers.calls import call_packet
from tenure.workers.inputs import Recalled, TreeEnded
from tenure.workers.orphans import end_orphans
from tenure.workers.runner_link import RunnerLink

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tenure.workers.inputs import Input
    from tenure.workers.launching import Launch

SlotAction = StartCall | StartCommand | Recall | CancelCall | EndTree | AllowUntil
_EIGHT: Final = 8
_RUNNER_PATIENCE_S: Final = 5.0


@final
class Crew:
    """The processes of one worker. Used by one thread; only `wake` may be called from others."""

    def __init__(self, launch: Launch) -> None:
        self._links = tuple(RunnerLink(slot, launch) for slot in range(launch.options.slots))
        self._adopts = launch.options.adopts
        self._poll = select.poll()
        self._readers: dict[int, Callable[[], list[Input]]] = {}
        self._watched: tuple[tuple[int, int], ...] = ()
        # Reentrant: a signal handler may wake while this very thread does.
        self._wakeup_lock = RLock()
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll.register(self._wakeup, select.POLLIN)

    def prepare(self) -> None:
        """Start the first child ahead of its first call, which would otherwise wait for the interpreter."""
        self._links[0].child()

    def wake(self) -> None:
        """End a `wait` of another thread. Safe in a signal handler, and after `close`."""
        with self._wakeup_lock:
            if self._wakeup != -1:
                os.eventfd_write(self._wakeup, 1)

    def wait(self, timeout_ms: int) -> list[Input]:
        """What processes have told, waiting up to `timeout_ms` or until `wake`."""
        inputs: list[Input] = []
        self._watch()
        for descriptor, _ in self._poll.poll(max(timeout_ms, 0)):
            if descriptor == self._wakeup:
                os.read(self._wakeup, _EIGHT)
                continue
            reader = self._readers.get(descriptor)
            if reader is not None:
                inputs.extend(map(self._proved, reader()))
        return inputs

    def perform(self, actions: Sequence[SlotAction]) -> list[Input]:
        """Carry out actions in order; answers what is known at once."""
        inputs: list[Input] = []
        for action in actions:
            inputs.extend(self._perform(action, self._links[action.slot]))
        return inputs

    def close(self) -> None:
        """End everything and wait a while for the proof; what remains is waited for by the next agent of this id."""
        for link in self._links:
            link.close()
        for link in self._links:
            link.wait(_RUNNER_PATIENCE_S)
        with self._wakeup_lock:
            os.close(self._wakeup)
            self._wakeup = -1

    def _perform(self, action: SlotAction, link: RunnerLink) -> list[Input]:
        match action:
            case StartCall():
                head = (action.binding.task_id, action.binding.attempt, action.binding.fence)
                packet = call_packet(action.call, head, action.work.handler, action.work.arguments)
                return [] if link.child().send(packet) else [Recalled(action.slot, [action.call])]
            case AllowUntil():
                link.allow_until(action.until_ms, action.grace_ms)
            case StartCommand():
                link.start_command(action)
            case Recall():
                return [Recalled(action.slot, link.recall())]
            case CancelCall():
                link.child().cancel(action.call)
            case EndTree():
                return link.end_tree(action.grace_ms)
        return []

    def _proved(self, happened: Input) -> Input:
        """When a runner has died over a tree, end what it left behind, and so prove what it cannot prove any more."""
        if not self._adopts or not isinstance(happened, TreeEnded) or happened.gone:
            return happened
        return replace(happened, gone=end_orphans({link.pid for link in self._links}))

    def _watch(self) -> None:
        """Watch the descriptors that are open now; a number may have passed from one slot to another."""
        watched = tuple(link.descriptors() for link in self._links)
        if watched == self._watched:
            return
        self._watched = watched
        self._poll = select.poll()
        self._poll.register(self._wakeup, select.POLLIN)
        self._readers = {}
        for link, (control, results) in zip(self._links, watched, strict=True):
            for descriptor, reader in ((control, link.read_control), (results, link.read_results)):
                if descriptor != -1:
                    self._poll.register(descriptor, select.POLLIN)
                    self._readers[descriptor] = reader
