"""A shift: one agent at work, from its hello to its goodbye.

The main loop waits for the slots' processes and for the lines' threads, tells the core, and carries out what it
decides: reports are first spooled, then put into the outbox; slots' actions go to the crew.
"""

from __future__ import annotations

import os
import shutil
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from tenure.protocol.worker_messages import Finished, Hello, Released
from tenure.version import VERSION
from tenure.workers.actions import Forget, Leave, Outranked, Tell
from tenure.workers.claims import Claims
from tenure.workers.courier import Courier
from tenure.workers.crew import Crew
from tenure.workers.desk import Desk
from tenure.workers.inputs import DrainAsked, Restored
from tenure.workers.launching import Launch
from tenure.workers.lines import Line
from tenure.workers.listener import Listener
from tenure.workers.membership import Profile
from tenure.workers.outbox import Outbox
from tenure.workers.pulse import Pulse
from tenure.workers.spool import Spool
from tenure.workers.taker import Taker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tenure.broker.base import WorkerBroker
    from tenure.clock import Clock, Entropy
    from tenure.workers.actions import Action
    from tenure.workers.crew import SlotAction
    from tenure.workers.identity import Identity
    from tenure.workers.inputs import Input
    from tenure.workers.options import WorkerOptions

_LONG_WORK_MS: Final = 1_000
_GOODBYE_S: Final = 3.0
_CLOSE_S: Final = 3.0


@final
@dataclass(frozen=True, slots=True)
class Summary:
    """What an agent did: how many assignments ended in which way, by name."""

    worker_id: str
    generation: int
    counts: dict[str, int]


@final
@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a shift is given: options, a factory of broker connections, time and randomness."""

    options: WorkerOptions
    connect: Callable[[], WorkerBroker]
    clock: Clock
    entropy: Entropy


@final
class Shift:
    """One agent at work."""

    def __init__(self, identity: Identity, surroundings: Surroundings) -> None:
        options, clock, entropy = surroundings.options, surroundings.clock, surroundings.entropy
        self._identity = identity
        self._options = options
        self._crew = Crew(Launch(options, identity.folder, identity.runners_lock))
        hello = _hello(options, identity.predecessor)
        self._desk = Desk(Claims(Profile(hello, identity.generation), entropy), clock, self._crew.wake)
        self._spool = Spool(identity.folder / "spool.jsonl")
        self._outbox = Outbox()
        self._listener = Listener(self._desk)
        self._pulse = Pulse(options.ttl_ms, self._desk, clock, self._listener.start_over)
        courier = Courier(identity, self._outbox, self._desk, clock)
        taker = Taker(options.capabilities, self._desk, clock, self._pulse.hurry)
        self._writers = tuple(Line(duty, surroundings.connect, entropy) for duty in (self._pulse, courier))
        self._readers = tuple(Line(duty, surroundings.connect, entropy) for duty in (self._listener, taker))
        self._drains_asked = 0
        self._drains_told = 0
        self._is_over = False

    def ask_to_drain(self, times: int) -> None:
        """End the shift: once lets what runs finish, twice ends it. Safe in a signal handler."""
        self._drains_asked = times
        self._crew.wake()

    def work(self) -> Summary:
        """Work until drained."""
        try:
            # No earlier runner is left, so what lies here belongs to nobody.
            shutil.rmtree(self._identity.folder / "tasks", ignore_errors=True)
            self._advance([Restored(self._spool.load())])
            if self._options.allow:
                self._crew.prepare()
            for line in (*self._writers, *self._readers):
                line.start()
            while not self._is_over:
                self._advance([*self._drains(), *self._crew.wait(self._desk.due_in_ms())])
            self._outbox.wait_until_empty(_GOODBYE_S)
        finally:
            self._close()
        return Summary(self._identity.worker_id, self._identity.generation, self._desk.counts())

    def _drains(self) -> list[Input]:
        if self._drains_told == self._drains_asked:
            return []
        self._drains_told = self._drains_asked
        return [DrainAsked(at_once=self._drains_asked > 1)]

    def _advance(self, happened: Sequence[Input]) -> None:
        """Tell the core, and carry out what follows until nothing more does."""
        while True:
            actions = self._desk.advance(happened)
            happened = self._perform(actions)
            if not happened:
                return

    def _perform(self, actions: Sequence[Action]) -> list[Input]:
        told: list[Tell] = []
        slots: list[SlotAction] = []
        for action in actions:
            match action:
                case Tell():
                    told.append(action)
                case Forget(task_id, fence):
                    self._spool.forget((task_id, fence))
                case Outranked(generation):
                    self._identity.note_outranked(generation)
                case Leave():
                    self._is_over = True
                case _:
                    slots.append(action)
        happened = self._crew.perform(slots)
        self._tell(told)
        return happened

    def _tell(self, told: Sequence[Tell]) -> None:
        raw = [action.event.model_dump_json().encode() for action in told]
        kept: list[tuple[tuple[str, int], bytes]] = []
        safely = False
        for action, event in zip(told, raw, strict=True):
            if action.keep and isinstance(action.event, Finished | Released):
                binding = action.event.binding
                kept.append(((binding.task_id, binding.fence), event))
                safely = safely or (isinstance(action.event, Finished) and action.event.duration_ms > _LONG_WORK_MS)
        if kept:
            self._spool.add(kept, safely=safely)
        self._spool.tidy()
        if raw:
            self._outbox.put(raw)

    def _close(self) -> None:
        self._outbox.close()
        self._desk.close()
        for line in (*self._readers, *self._writers):
            line.halt()
        self._pulse.stop()
        for line in self._readers:
            line.cut()
        for line in (*self._readers, *self._writers):
            line.join(_CLOSE_S)
        self._crew.close()
        self._spool.close()


def _hello(options: WorkerOptions, predecessor: int) -> Hello:
    return Hello(
        slots=options.slots,
        capabilities=options.capabilities,
        labels=options.labels,
        resources=options.resources,
        ttl_ms=options.ttl_ms,
        host=socket.gethostname(),
        pid=os.getpid(),
        version=VERSION,
        predecessor=predecessor,
    )
