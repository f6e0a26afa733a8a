"""A parent: a worker that starts an executor for each assignment, on hosts of their own, and says when they are over.

Scripted, for its core is not what is looked into here; its executors are agents with the real core. Its journal
outlives it, unless it is lost: what was launched before it was killed, it adopts. It proves nothing but what its
substrate has seen end; that it has launched nothing itself, or was refused, proves nothing.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from tenure.broker.base import EntryId, Stream, StreamEntry
from tenure.errors import BrokerError
from tenure.protocol.control_messages import CONTROL, Judged, Registered, SayHello, Stop
from tenure.protocol.message import decode
from tenure.protocol.timing import beat_interval_ms, expiry_ms, grace_ms
from tenure.protocol.worker_messages import (
    HEARTBEAT,
    REPORT,
    Binding,
    Cause,
    ExecutorGone,
    Heartbeat,
    Held,
    Hello,
    Report,
)
from tests.simulation.agent import SITE, Errand, Seat
from tests.simulation.hosts import Process
from tests.simulation.slots import Crew

if TYPE_CHECKING:
    from tenure.broker.base import Handout
    from tenure.broker.memory import MemoryWorker
    from tenure.protocol.assignment import Assignment
    from tenure.protocol.worker_messages import WorkerEvent
    from tests.simulation.dice import Dice
    from tests.simulation.world import World

FOREMAN: Final = "f1"
LABELS: Final = (("room", FOREMAN),)
_CAPABILITY: Final = "cpu"
_ROUND_MS: Final = 150
_HELLO_EVERY_MS: Final = 3_000
_TELL_EVERY_MS: Final = 700
_START: Final = EntryId(0, 0)


@final
@dataclass(slots=True, eq=False)
class Launch:
    """One line of the journal, and what has become of it."""

    assignment: Assignment
    errand: Errand
    seats: list[Seat]
    nonce: str
    starts_at: int
    cancel_at: int = -1
    told_at: int = -1
    refused: bool = False
    proved: bool = True

    @property
    def key(self) -> tuple[str, int]:
        """Task and fence."""
        return self.assignment.ticket.task_id, self.assignment.ticket.fence


@final
class Foreman(Process):
    """The parent. `launches` is its journal, of all its lives."""

    def __init__(self, world: World, dice: Dice) -> None:
        super().__init__(world.engine, world.host(FOREMAN))
        self.world = world
        self.dice = dice
        self.slots = dice.between(1, 3)
        self.ttl_ms = dice.pick((1_000, 2_000))
        self.launches: dict[tuple[str, int], Launch] = {}
        self._substrate: dict[tuple[str, int], list[Seat]] = {}
        """What was ever started for a launch, whether the journal knows it or not."""
        self.generation = 1
        self.sequence = 0
        self._hello_at = -1
        self._beat_at = -1
        self._must_retake = True
        self._after = _START
        self._away_until = 0
        self._names = 0

    def start(self) -> None:
        """Begin."""
        self.world.network.server.listeners.append(self._grab)
        self.after(self.dice.between(0, 300), self._round)

    def crash(self, duration_ms: int) -> None:
        """Be killed, and come back with the journal. The nonces of its own words are drawn anew."""
        for launch in self.launches.values():
            launch.nonce, launch.told_at = self.dice.token(8), -1
        self._away_until = self.engine.now + duration_ms
        self.generation += 1
        self.sequence, self._hello_at, self._beat_at, self._must_retake, self._after = 0, -1, -1, True, _START

    def forget(self) -> None:
        """Lose the journal. What was launched goes on, and the substrate knows it when it is launched again."""
        self.launches.clear()

    def running(self) -> list[Launch]:
        """Launches with an executor that lives."""
        return [launch for launch in self.launches.values() if any(map(_lives, launch.seats))]

    def start_again(self, launch: Launch) -> str:
        """The substrate starts a launch once more; the executor's name."""
        self._start_executor(launch)
        return launch.seats[-1].worker_id

    def say_gone(self, launch: Launch, *, proved: bool) -> None:
        """What the substrate says, true or not."""
        ticket = launch.assignment.ticket
        binding = Binding(
            task_id=ticket.task_id,
            attempt=ticket.attempt,
            fence=ticket.fence,
            digest=ticket.digest,
            nonce=launch.nonce,
        )
        cause = Cause.LAUNCH_REFUSED if launch.refused else self.dice.pick((Cause.OOM_KILLED, Cause.EXECUTOR_REMOVED))
        with suppress(BrokerError):
            self._say(self._face(), ExecutorGone(binding=binding, cause=cause, proved=proved))

    # --- one round ------------------------------------------------------------------------------

    def _round(self) -> None:
        self.after(_ROUND_MS, self._round)
        if self.engine.now < self._away_until:
            return
        self._look_after()
        if self.host.cut:
            return
        face = self._face()
        with suppress(BrokerError):
            self._obey(face)
            self._greet(face)
            self._beat(face)
            self._tell()
            self._take(face)
        self.world.network.server_of(self.host).reported()

    def _face(self) -> MemoryWorker:
        return self.world.network.face(self.host, SITE, FOREMAN)

    def _say(self, face: MemoryWorker, event: WorkerEvent) -> None:
        report = Report(worker_id=FOREMAN, generation=self.generation, window=self.slots, events=(event,))
        face.report([REPORT.dump_json(report)])

    def _greet(self, face: MemoryWorker) -> None:
        if self._hello_at >= 0 and self.engine.now - self._hello_at < _HELLO_EVERY_MS:
            return
        hello = Hello(
            slots=self.slots,
            capabilities=(_CAPABILITY,),
            labels=LABELS,
            launches=True,
            ttl_ms=self.ttl_ms,
            held=self._held(),
        )
        self._say(face, hello)
        self._hello_at = self.engine.now

    def _held(self) -> tuple[Held, ...]:
        return tuple(Held(task_id=task, fence=fence, state="launched") for task, fence in self.launches)

    def _beat(self, face: MemoryWorker) -> None:
        if self._beat_at >= 0 and self.engine.now - self._beat_at < beat_interval_ms(self.ttl_ms):
            return
        self.sequence += 1
        beat = Heartbeat(generation=self.generation, sequence=self.sequence, window=self.slots, held=self._held())
        face.beat(HEARTBEAT.dump_json(beat), expiry_ms(self.ttl_ms))
        self._beat_at = self.engine.now

    def _obey(self, face: MemoryWorker) -> None:
        for delivery in face.orders(after=self._after, block_ms=0):
            self._after = delivery.entry_id
            for order in decode(CONTROL, delivery.raw).orders:
                match order:
                    case SayHello():
                        self._hello_at = -1
                    case Registered(generation=generation) if generation > self.generation:
                        self.generation = generation + 1
                        self._hello_at = -1
                    case Stop(task_id=task, fence=fence) if (task, fence) in self.launches:
                        launch = self.launches[task, fence]
                        if launch.cancel_at < 0:
                            wait_ms = grace_ms(launch.assignment.ticket.ttl_ms) + 2_000
                            launch.cancel_at = self.engine.now + wait_ms
                    case Judged(task_id=task, fence=fence, nonce=nonce):
                        self._judged((task, fence), nonce)
                    case _:
                        pass

    def _grab(self) -> None:
        """Often it is handed work before the others are, which read all the time."""
        is_there = self._hello_at >= 0 and self.engine.now >= self._away_until and not self.host.cut
        if is_there and not self._must_retake and self.dice.chance(400):
            with suppress(BrokerError):
                self._take(self._face())

    def _judged(self, key: tuple[str, int], nonce: str) -> None:
        launch = self.launches.get(key)
        if launch is not None and launch.nonce == nonce and self._is_over(launch):
            del self.launches[key]

    def _take(self, face: MemoryWorker) -> None:
        capabilities = (_CAPABILITY,)
        room = self.slots - len(self.launches)
        if self._must_retake:
            found = face.retake(capabilities=capabilities, limit=100)
            self._must_retake = False
        elif room > 0:
            found = face.take(capabilities=capabilities, limit=room, block_ms=0)
        else:
            return
        for handout in found:
            self._launch(face, handout)

    def _launch(self, face: MemoryWorker, handout: Handout) -> None:
        assignment = handout.assignment
        if assignment is None:
            return
        ticket = assignment.ticket
        key = (ticket.task_id, ticket.fence)
        if key in self.launches:
            return
        stream = Stream(SITE, "", FOREMAN) if handout.is_directed else Stream(SITE, _CAPABILITY)
        errand = Errand(FOREMAN, StreamEntry(stream, handout.entry_id))
        starts_at = self.engine.now + self.dice.pick((0, 50, 400, 1_500))
        seats = self._substrate.setdefault(key, [])
        launch = Launch(assignment, errand, seats, self.dice.token(8), starts_at)
        # A quota may be used up by the very executor that an earlier life has launched.
        launch.refused = not self.world.quiet and self.dice.chance(400 if seats else 100)
        launch.proved = not launch.refused and self.dice.chance(600)
        self.launches[key] = launch

    # --- the substrate --------------------------------------------------------------------------

    def _look_after(self) -> None:
        for launch in self.launches.values():
            if launch.cancel_at >= 0 and self.engine.now >= launch.cancel_at:
                for seat in launch.seats:
                    seat.retire()
            elif not launch.seats and not launch.refused and self.engine.now >= launch.starts_at:
                self._start_executor(launch)

    def _is_over(self, launch: Launch) -> bool:
        if launch.refused or (not launch.seats and launch.cancel_at >= 0):
            return True
        return bool(launch.seats) and not any(map(_lives, launch.seats))

    def _tell(self) -> None:
        for launch in self.launches.values():
            due = launch.told_at < 0 or self.engine.now - launch.told_at >= _TELL_EVERY_MS
            if due and self._is_over(launch):
                launch.told_at = self.engine.now
                self.say_gone(launch, proved=launch.proved and bool(launch.seats))

    def _start_executor(self, launch: Launch) -> None:
        self._names += 1
        name = f"{FOREMAN}.x{self._names}"
        host, world = self.world.host(name), self.world
        seat = Seat(
            worker_id=name,
            host=host,
            network=world.network,
            crew=Crew(host, name, 1, world.book),
            book=world.book,
            folder=world.folder,
            dice=self.dice.fork(name),
            slots=1,
            ttl_ms=launch.assignment.ticket.ttl_ms,
            capabilities=(_CAPABILITY,),
            labels=(),
            errand=launch.errand,
        )
        launch.seats.append(seat)
        world.seats.append(seat)
        seat.start()
        seat.retired = True  # nobody starts it again but the substrate, under another name


def _lives(seat: Seat) -> bool:
    return seat.agent is not None and seat.agent.alive
