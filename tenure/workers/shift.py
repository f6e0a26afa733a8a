"""A shift: one agent at work, from its hello to its goodbye.

The main loop waits for the slots' processes and for the lines' threads, tells the core, and carries out what it
decides: reports are first spooled, then put into the outbox; slots' actions go to the crew.
"""

from __future__ import annotations

import os
import shutil
import socket
from dataclasses import dataclass, replace
from threading import Event
from typing import TYPE_CHECKING, Final, final

from tenure.protocol.timing import expiry_ms
from tenure.protocol.worker_messages import Finished, Hello, Released
from tenure.version import VERSION
from tenure.workers.actions import Forget, Leave, Outranked, Tell, TurnedAway
from tenure.workers.admission import Admission
from tenure.workers.claims import Claims
from tenure.workers.courier import Courier
from tenure.workers.crew import Crew
from tenure.workers.desk import Desk
from tenure.workers.freight import Freight, StoreAddress
from tenure.workers.gear import Gear
from tenure.workers.host_secrets import secret_labels
from tenure.workers.identity import Kind
from tenure.workers.inputs import DrainAsked, Restored
from tenure.workers.launching import Launch
from tenure.workers.lifetime import walled
from tenure.workers.lines import Duty, Line
from tenure.workers.listener import Listener
from tenure.workers.membership import Profile
from tenure.workers.outbox import Outbox
from tenure.workers.press import Press
from tenure.workers.pulse import Pulse
from tenure.workers.single_taker import SingleTaker
from tenure.workers.spool import Spool
from tenure.workers.taker import Taker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tenure.artifacts.base import Porter
    from tenure.broker.base import WorkerBroker
    from tenure.clock import Clock, Entropy
    from tenure.errors import TenureError
    from tenure.protocol.launch import LaunchTicket
    from tenure.protocol.message import Message
    from tenure.workers.actions import Action
    from tenure.workers.crew import SlotAction
    from tenure.workers.identity import Identity
    from tenure.workers.inputs import Input
    from tenure.workers.options import WorkerOptions

_LONG_WORK_MS: Final = 1_000
_GOODBYE_S: Final = 3.0
_CLOSE_S: Final = 3.0
_EXECUTOR_PATIENCE_MS: Final = 3_600_000
"""An executor's spool is gone with it: the coordinator has this much longer than the lease to come back and judge."""


@final
@dataclass(frozen=True, slots=True)
class Summary:
    """What an agent did: how many assignments ended in which way, by name.

    `refusal` is there when the broker did not accept the site's credential any more at the end, or the coordinator
    never took this worker for one of its kind.
    """

    worker_id: str
    generation: int
    counts: dict[str, int]
    refusal: TenureError | None = None


@final
@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a shift is given: options, a factory of broker connections, time and randomness.

    `porter` starts a porter for a store's address, `secrets` are the names of those that the host knows.
    """

    options: WorkerOptions
    connect: Callable[[], WorkerBroker]
    clock: Clock
    entropy: Entropy
    porter: Callable[[str], Porter] | None = None
    secrets: frozenset[str] = frozenset()


@final
@dataclass(frozen=True, slots=True)
class Launched:
    """What an executor is told: which assignment it is there for, and how long it waits for the answer to its claim."""

    ticket: LaunchTicket
    patience_ms: int


@final
class Shift:
    """One agent at work; for an executor `launched` is what it was started for, and it leaves when that is over."""

    def __init__(self, identity: Identity, surroundings: Surroundings, launched: Launched | None = None) -> None:
        options, clock, entropy = surroundings.options, surroundings.clock, surroundings.entropy
        self._identity = identity
        self._options = options
        self._press = Press(options.site, clock)
        store = StoreAddress(options.artifacts)
        launch = Launch(options, identity.folder, identity.runners_lock)
        self._crew = Crew(Gear(launch, Freight(surroundings.porter, store, clock), self._press.printed))
        lifetime = options.lifetime
        if options.wall_ms is not None:
            lifetime = walled(lifetime, options.wall_ms, ttl_ms=options.ttl_ms, now_ms=clock.elapsed_ms())
        profile = replace(
            _profile(identity, options, surroundings.secrets, launched),
            lifetime=lifetime,
        )
        self._desk = Desk(Claims(profile, entropy), clock, self._crew.wake)
        self._spool = Spool(identity.records(Kind.RUNNER))
        self._outbox = Outbox()
        self._admission = Admission(options.site)
        self._listener = Listener(self._desk)
        self._pulse = Pulse(options.ttl_ms, self._desk, clock, self._start_over, store)
        courier = Courier(identity, self._outbox, self._desk, clock)
        self._ended = Event()
        taker: Duty
        if launched is None:
            taker = Taker(options.capabilities, self._desk, clock, self._pulse.hurry, store)
        else:
            taker = SingleTaker(launched.ticket, self._desk, clock, store, self._ended)
        writers = (self._pulse, courier, self._press)
        self._writers = tuple(Line(duty, surroundings.connect, entropy, self._admission) for duty in writers)
        self._readers = tuple(
            Line(duty, surroundings.connect, entropy, self._admission) for duty in (self._listener, taker)
        )
        self._drains_asked = 0
        self._drains_told = 0
        self._turned_away: TenureError | None = None
        self._is_over = False

    def ask_to_drain(self, times: int) -> None:
        """End the shift: once lets what runs finish, twice ends it. Safe in a signal handler."""
        self._drains_asked = max(self._drains_asked, times)
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
            self._admission.hush()
            self._outbox.wait_until_empty(_GOODBYE_S)
        finally:
            self._close()
        refusal = self._turned_away or self._admission.refusal
        return Summary(self._identity.worker_id, self._identity.generation, self._desk.counts(), refusal)

    def _start_over(self) -> None:
        """The broker's data is new."""
        self._listener.start_over()
        self._press.start_over()

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
                case TurnedAway():
                    self._turned_away = self._identity.wrong_kind(Kind.RUNNER)
                case Leave():
                    self._is_over = True
                case _:
                    slots.append(action)
        happened = self._crew.perform(slots)
        self._tell(told)
        return happened

    def _tell(self, told: Sequence[Tell]) -> None:
        raw = [self._with_log(action.event).model_dump_json().encode() for action in told]
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

    def _with_log(self, event: Message) -> Message:
        """The event, which says whether what the attempt has printed is to be kept."""
        if not isinstance(event, Finished | Released):
            return event
        printed = self._press.has_printed(event.binding.task_id, event.binding.fence)
        return event.model_copy(update={"printed": True}) if printed else event

    def _close(self) -> None:
        self._outbox.close()
        self._desk.close()
        self._ended.set()
        for line in (*self._readers, *self._writers):
            line.halt()
        self._pulse.stop()
        self._press.stop()
        for line in self._readers:
            line.cut()
        for line in (*self._readers, *self._writers):
            line.join(_CLOSE_S)
        self._crew.close()
        self._spool.close()


def _profile(identity: Identity, options: WorkerOptions, secrets: frozenset[str], launched: Launched | None) -> Profile:
    hello = Hello(
        executor_of=launched.ticket.parent if launched is not None else None,
        launches=False,
        slots=options.slots,
        capabilities=options.capabilities,
        labels=(*options.labels, *secret_labels(secrets)),
        resources=options.resources,
        ttl_ms=options.ttl_ms,
        host=socket.gethostname(),
        pid=os.getpid(),
        version=VERSION,
        predecessor=identity.predecessor,
    )
    if launched is None:
        return Profile(hello, identity.generation, secrets)
    patience_ms = expiry_ms(options.ttl_ms) + _EXECUTOR_PATIENCE_MS
    return Profile(hello, identity.generation, secrets, patience_ms, launched.patience_ms)
