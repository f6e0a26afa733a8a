"""The crew: all slots' processes. Carries out the core's actions on them, and waits for what they tell."""

from __future__ import annotations

import os
import select
from dataclasses import replace
from threading import RLock
from typing import TYPE_CHECKING, Final, final

from tenure.workers.actions import AllowUntil, CancelCall, EndTree, Recall, StartCall, StartCommand
from tenure.workers.inputs import Recalled, TreeEnded
from tenure.workers.orphans import end_orphans
from tenure.workers.runner_link import RunnerLink

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tenure.workers.gear import Gear
    from tenure.workers.inputs import Input

SlotAction = StartCall | StartCommand | Recall | CancelCall | EndTree | AllowUntil
_EIGHT: Final = 8
_GLANCE_MS: Final = 10
"""How often a porter without a descriptor is asked."""
_RUNNER_PATIENCE_S: Final = 5.0


@final
class Crew:
    """The processes of one worker. Used by one thread; only `wake` may be called from others."""

    def __init__(self, gear: Gear) -> None:
        self._links = tuple(RunnerLink(slot, gear) for slot in range(gear.launch.options.slots))
        self._freight = gear.freight
        self._adopts = gear.launch.options.adopts
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
        if self._freight.is_waiting:
            inputs.extend(map(self._proved, self._freight.read()))
            # A porter that died while it was read may have been started again.
            self._watch()
            unwatched_ms = _GLANCE_MS if self._freight.fileno() == -1 else timeout_ms
            timeout_ms = 0 if inputs else min(timeout_ms, unwatched_ms)
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
        self._freight.close()
        for link in self._links:
            link.wait(_RUNNER_PATIENCE_S)
        with self._wakeup_lock:
            os.close(self._wakeup)
            self._wakeup = -1

    def _perform(self, action: SlotAction, link: RunnerLink) -> list[Input]:
        match action:
            case StartCall() | StartCommand():
                return link.start(action)
            case AllowUntil():
                link.allow_until(action.until_ms, action.grace_ms)
            case Recall():
                return [Recalled(action.slot, link.recall())]
            case CancelCall():
                link.child().cancel(action.call)
            case EndTree():
                return link.end_tree(action.grace_ms, is_late=action.is_late)
        return []

    def _proved(self, happened: Input) -> Input:
        """When a runner has died over a tree, end what it left behind, and so prove what it cannot prove any more."""
        if not self._adopts or not isinstance(happened, TreeEnded) or happened.gone:
            return happened
        # The porter is no orphan of theirs: it carries the files of other slots' tasks.
        return replace(happened, gone=end_orphans({self._freight.pid, *(link.pid for link in self._links)}))

    def _watch(self) -> None:
        """Watch the descriptors that are open now; a number may have passed from one slot to another."""
        watched = (*(link.descriptors() for link in self._links), (self._freight.fileno(), -1))
        if watched == self._watched:
            return
        self._watched = watched
        self._poll = select.poll()
        self._poll.register(self._wakeup, select.POLLIN)
        self._readers = {}
        self._watch_one(self._freight.fileno(), self._freight.read)
        for link, (control, results) in zip(self._links, watched[:-1], strict=True):
            for descriptor, reader in ((control, link.read_control), (results, link.read_results)):
                self._watch_one(descriptor, reader)

    def _watch_one(self, descriptor: int, reader: Callable[[], list[Input]]) -> None:
        if descriptor != -1:
            self._poll.register(descriptor, select.POLLIN)
            self._readers[descriptor] = reader
