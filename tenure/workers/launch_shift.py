"""A parent's shift: one agent whose launcher starts executors, from its hello to its goodbye. Runs no user code.

The same desk, lines and outbox as a worker that runs its tasks itself (`shift.py`); in place of slots' processes there
is a launcher, and in place of the spool a journal.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any, Final, final

from tenure.protocol.worker_messages import Hello
from tenure.version import VERSION
from tenure.workers.actions import Leave, Outranked, Tell, TurnedAway
from tenure.workers.admission import Admission
from tenure.workers.courier import Courier
from tenure.workers.desk import Desk
from tenure.workers.freight import StoreAddress
from tenure.workers.host_secrets import secret_labels
from tenure.workers.identity import Kind
from tenure.workers.inputs import DrainAsked
from tenure.workers.launch_actions import DropLaunch, LaunchAction, NoteHandle, StartLaunch
from tenure.workers.launch_crew import LaunchCrew
from tenure.workers.launch_inputs import Found, LaunchInput, NotLaunched
from tenure.workers.launch_intake import ParentProfile
from tenure.workers.launch_journal import LaunchJournal
from tenure.workers.launches import Launches
from tenure.workers.lifetime import walled
from tenure.workers.lines import Line
from tenure.workers.listener import Listener
from tenure.workers.outbox import Outbox
from tenure.workers.pulse import Pulse
from tenure.workers.shift import Summary
from tenure.workers.taker import Taker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tenure.errors import TenureError
    from tenure.launchers.base import Launcher
    from tenure.workers.identity import Identity
    from tenure.workers.shift import Surroundings

_GOODBYE_S: Final = 3.0
_CLOSE_S: Final = 3.0
_LONGEST_WAIT_MS: Final = 200
"""A signal handler can set no `Event` that its own thread may hold the lock of, so the loop looks this often."""
DEFAULT_LAUNCH_TIMEOUT_MS: Final = 5 * 60_000


@final
@dataclass(frozen=True, slots=True)
class Launching:
    """What a parent needs beside what every worker does.

    Args:
        make: makes the launcher, given a private folder of this worker.
        namespace: the fleet's name on the broker.
        timeout_ms: how long the substrate may take to start an executor.
    """

    make: Callable[[Path], Launcher[Any]]
    namespace: str
    timeout_ms: int = DEFAULT_LAUNCH_TIMEOUT_MS

    def begin(self, identity: Identity, surroundings: Surroundings) -> LaunchShift:
        """The parent's shift; what an `Agent` is given as `begin`."""
        return LaunchShift(identity, surroundings, self)


@final
class LaunchShift:
    """One parent at work. See `agent.Working`."""

    def __init__(self, identity: Identity, surroundings: Surroundings, launching: Launching) -> None:
        options, clock, entropy = surroundings.options, surroundings.clock, surroundings.entropy
        self._identity = identity
        self._wakeup = Event()
        profile = _profile(identity, surroundings, launching)
        self._desk: Desk[LaunchInput, LaunchAction] = Desk(Launches(profile, entropy), clock, self._wakeup.set)
        self._journal = LaunchJournal(identity.records(Kind.PARENT))
        self._crew = LaunchCrew(launching.make(_private(identity.folder / "launcher")), self._desk.post)
        self._outbox = Outbox()
        self._admission = Admission(options.site)
        self._listener = Listener(self._desk)
        # A parent carries no files: where the store is does not matter to it.
        store = StoreAddress(options.artifacts or "-")
        self._pulse = Pulse(options.ttl_ms, self._desk, clock, self._listener.start_over, store)
        courier = Courier(identity, self._outbox, self._desk, clock)
        taker = Taker(options.capabilities, self._desk, clock, self._pulse.hurry, store)
        self._writers = tuple(
            Line(duty, surroundings.connect, entropy, self._admission) for duty in (self._pulse, courier)
        )
        self._readers = tuple(
            Line(duty, surroundings.connect, entropy, self._admission) for duty in (self._listener, taker)
        )
        self._drains_asked = 0
        self._drains_told = 0
        self._turned_away: TenureError | None = None
        self._is_over = False

    def ask_to_drain(self, times: int) -> None:
        """End the shift: once waits for what was launched, twice cancels it. Safe in a signal handler."""
        self._drains_asked = times

    def work(self) -> Summary:
        """Work until drained."""
        try:
            # Before anything is read, so that what was launched before is not launched as something new.
            self._advance([Found(self._journal.load())])
            for line in (*self._writers, *self._readers):
                line.start()
            self._crew.start()
            while not self._is_over:
                self._advance(self._drains())
                self._wakeup.wait(min(self._desk.due_in_ms(), _LONGEST_WAIT_MS) / 1000)
                self._wakeup.clear()
            self._admission.hush()
            self._outbox.wait_until_empty(_GOODBYE_S)
        finally:
            self._close()
        refusal = self._turned_away or self._admission.refusal
        return Summary(self._identity.worker_id, self._identity.generation, self._desk.counts(), refusal)

    def _drains(self) -> list[LaunchInput]:
        if self._drains_told == self._drains_asked:
            return []
        self._drains_told = self._drains_asked
        return [DrainAsked(at_once=self._drains_asked > 1)]

    def _advance(self, happened: Sequence[LaunchInput]) -> None:
        """Tell the core, and carry out what follows until nothing more does."""
        while True:
            actions = self._desk.advance(happened)
            happened = [each for action in actions for each in self._perform(action)]
            if not happened:
                return

    def _perform(self, action: LaunchAction) -> list[LaunchInput]:
        match action:
            case Tell(event):
                self._outbox.put([event.model_dump_json().encode()])
            case StartLaunch():
                return self._start(action)
            case NoteHandle(key, handle):
                self._journal.handle(key, handle)
            case DropLaunch(key):
                self._journal.over(key)
            case Outranked(generation):
                self._identity.note_outranked(generation)
            case TurnedAway():
                self._turned_away = self._identity.wrong_kind(Kind.PARENT)
            case Leave():
                self._is_over = True
            case _:
                self._crew.perform(action)
        return []

    def _start(self, action: StartLaunch) -> list[LaunchInput]:
        try:
            self._journal.order(action.key, action.order)
        except OSError as error:
            # Unnoted, nobody would look after it once this agent has died.
            return [NotLaunched(action.key, f"the journal cannot be written: {error.strerror}", is_known=True)]
        self._crew.perform(action)
        return []

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
        self._crew.close(_CLOSE_S)
        self._journal.close()


def _profile(identity: Identity, surroundings: Surroundings, launching: Launching) -> ParentProfile:
    options = surroundings.options
    lifetime = options.lifetime
    if options.wall_ms is not None:
        now_ms = surroundings.clock.elapsed_ms()
        lifetime = walled(lifetime, options.wall_ms, ttl_ms=options.ttl_ms, now_ms=now_ms)
    hello = Hello(
        launches=True,
        slots=options.slots,
        capabilities=options.capabilities,
        labels=(*options.labels, *secret_labels(surroundings.secrets)),
        resources=options.resources,
        ttl_ms=options.ttl_ms,
        host=socket.gethostname(),
        pid=os.getpid(),
        version=VERSION,
        # No predecessor: this agent's death proves nothing of the executors that were launched.
    )
    return ParentProfile(
        hello,
        identity.generation,
        launching.namespace,
        options.site,
        identity.worker_id,
        launching.timeout_ms,
        lifetime,
    )


def _private(folder: Path) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
