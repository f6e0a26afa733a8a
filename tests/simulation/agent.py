"""A worker: its seat (what outlives an agent), and one agent at work around the real core.

Real here: the core (`Claims` and all that it is made of), the spool and its file, the outbox. Simulated: the threads
(`agent_lines.py`) and the processes of the slots (`slots.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from tenure.broker.base import Stream
from tenure.broker.keys import DEFAULT_SITE
from tenure.protocol.control_messages import Granted, Judged, Refused
from tenure.protocol.timing import broker_timeout_ms
from tenure.protocol.worker_messages import Finished, Hello, Released
from tenure.workers.actions import Forget, Leave, Outranked, Tell, TurnedAway
from tenure.workers.claims import Claims
from tenure.workers.inputs import Restored
from tenure.workers.membership import Profile
from tenure.workers.outbox import Outbox
from tenure.workers.spool import Spool
from tests.simulation.agent_lines import CourierLine, ListenerLine, LookLine, PulseLine, TakerLine
from tests.simulation.history import Answered, Told
from tests.simulation.hosts import Process
from tests.simulation.slots import Crew

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tenure.broker.base import StreamEntry
    from tenure.broker.memory import MemoryWorker
    from tenure.protocol.control_messages import Control
    from tenure.workers.actions import Action
    from tenure.workers.inputs import Input
    from tests.simulation.book import Book
    from tests.simulation.dice import Dice
    from tests.simulation.hosts import Host
    from tests.simulation.network import Network

SITE: Final = DEFAULT_SITE
GOODBYE_MS: Final = 500


@final
@dataclass(frozen=True, slots=True)
class Errand:
    """What an executor was started for: whose it is, and where the entry of its assignment lies."""

    parent: str
    entry: StreamEntry


@final
@dataclass(slots=True)
class Seat:
    """What outlives a worker's agents: identity, spool, host, runners."""

    worker_id: str
    host: Host
    network: Network
    crew: Crew
    book: Book
    folder: Path
    dice: Dice
    slots: int
    ttl_ms: int
    capabilities: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    site: str = SITE
    errand: Errand | None = None
    """Of an executor; None for a worker that takes assignments itself."""
    generation: int = 0
    predecessor: int = 0
    outranked: int = 0
    agent: Agent | None = None
    restarting: bool = False
    retired: bool = False
    goodbye_ms: int = GOODBYE_MS
    """How long a drained agent takes to leave."""

    def hello(self) -> Hello:
        """What the worker says about itself."""
        return Hello(
            slots=self.slots,
            capabilities=self.capabilities,
            labels=self.labels,
            ttl_ms=self.ttl_ms,
            predecessor=self.predecessor,
            executor_of=None if self.errand is None else self.errand.parent,
            launches=False,
        )

    def start(self) -> Agent:
        """A new agent; the one before must be gone."""
        self.predecessor = self.generation
        self.generation = max(self.generation + 1, self.outranked + 1, self.host.clock.now_ms())
        self.agent = Agent(self, self.generation)
        self.agent.start()
        return self.agent

    def start_when_possible(self) -> None:
        """Start an agent as soon as nothing runs that an earlier one left behind."""
        if self.retired or (self.agent is not None and self.agent.alive):
            self.restarting = False
        elif self.crew.is_empty() and not self.host.suspended:
            self.restarting = False
            self.start()
        else:
            self._later(50)

    def restart_after(self, delay_ms: int) -> None:
        """A supervisor starts a new agent after a while."""
        if not self.restarting:
            self.restarting = True
            self._later(delay_ms)

    def retire(self) -> None:
        """End this worker for good."""
        self.retired = True
        if self.agent is not None:
            self.agent.crash()

    def _later(self, delay_ms: int) -> None:
        """Try to start after that time."""
        self.network.engine.after(delay_ms, self.start_when_possible)


@final
class Agent(Process):
    """One agent."""

    def __init__(self, seat: Seat, generation: int) -> None:
        super().__init__(seat.network.engine, seat.host)
        self.seat = seat
        self.generation = generation
        self.network = seat.network
        self.dice = seat.dice
        self.history = seat.book.history
        self.claims = Claims(Profile(seat.hello(), generation), seat.dice)
        self.spool = Spool(seat.folder / f"{seat.worker_id}.jsonl")
        self.outbox = Outbox()
        self.stalled_until = 0
        """Until when the main loop is stuck, in a write to its disk for example, while its threads go on."""
        self.crash_in = 0
        """After how many more actions the agent is killed; 0 for never."""
        self.listener = ListenerLine(self)
        self.pulse = PulseLine(self, self.listener.start_over)
        self.courier = CourierLine(self)
        self.taker = TakerLine(self, self.pulse.hurry) if seat.errand is None else LookLine(self, seat.errand)
        self.leaving = False
        self._due_at = -1
        self._is_woken = False
        streams = [Stream(seat.site, name) for name in seat.capabilities] + [Stream(seat.site, "", seat.worker_id)]
        self._streams = [seat.network.keys.assignments(stream) for stream in streams]

    # --- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin."""
        self.seat.crew.tell = self.hear
        self._advance([Restored(self.spool.load())])
        for line in (self.pulse, self.courier, self.listener, self.taker):
            line.open()

    def crash(self) -> None:
        """Be killed."""
        if self.alive:
            self.kill()
            self.spool.close()
            self.seat.crew.lose_agent()

    def elapsed_ms(self) -> int:
        """This host's elapsed time."""
        return self.host.clock.elapsed_ms()

    # --- the desk -------------------------------------------------------------------------------

    def post(self, happened: Input) -> None:
        """Tell the core, and let the main loop carry out what follows."""
        if not self.alive:
            return
        self.claims.handle(happened, self.elapsed_ms())
        self._wake()

    def hear(self, read: Callable[[], list[Input]]) -> None:
        """A process has told something; the main loop reads it when it can."""
        self.after(1, lambda: self._advance_with(read))

    def worthwhile(self) -> int:
        """How many assignments may be taken, when it is worth a round trip; see `Desk.wait_for_room`."""
        window = self.claims.window(self.elapsed_ms())
        room = max(window - self.claims._ledger.unfinished, 0)
        return room if room * 4 >= window else 0

    def outbox_size(self) -> int:
        """How many reports wait to be sent."""
        return len(self.outbox._events)

    # --- the main loop --------------------------------------------------------------------------

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self.after(0, self._turn)

    def _turn(self) -> None:
        if self.engine.now < self.stalled_until:
            self.engine.at(self.stalled_until, lambda: self.deliver(self._turn))
            return
        self._is_woken = False
        self._advance([])

    def _advance_with(self, read: Callable[[], list[Input]]) -> None:
        if self.engine.now < self.stalled_until:
            self.engine.at(self.stalled_until, lambda: self.deliver(lambda: self._advance_with(read)))
            return
        self._advance(read())

    def _advance(self, happened: Iterable[Input]) -> None:
        while self.alive:
            now_ms = self.elapsed_ms()
            for one in happened:
                self.claims.handle(one, now_ms)
            happened = self._perform(self.claims.collect(now_ms))
            if not happened:
                break
        if self.alive:
            self.courier.poke()
            self.taker.poke()
            self._plan_round()

    def _plan_round(self) -> None:
        due_at = self.host.clock.true_ms(self.claims.due_ms())
        if self._due_at < self.engine.now or due_at < self._due_at:
            self._due_at = due_at

            def due() -> None:
                if self._due_at == due_at:
                    self._due_at = -1
                    self._wake()

            self.engine.at(due_at, lambda: self.deliver(due))

    def _perform(self, actions: Iterable[Action]) -> list[Input]:
        """As `Shift._perform`: slots first, then the spool, then the outbox. It may be killed between any two."""
        told: list[Tell] = []
        happened: list[Input] = []
        for action in actions:
            if self._dies_now():
                return []
            match action:
                case Tell():
                    told.append(action)
                case Forget(task_id, fence):
                    self.spool.forget((task_id, fence))
                case Outranked(generation):
                    self.seat.outranked = generation
                case TurnedAway():
                    pass
                case Leave():
                    self._leave()
                case _:
                    happened.extend(self.seat.crew.perform(action))
        self._tell(told)
        return happened if self.alive else []

    def _tell(self, told: list[Tell]) -> None:
        raw = [action.event.model_dump_json().encode() for action in told]
        kept: list[tuple[tuple[str, int], bytes]] = []
        for action, event in zip(told, raw, strict=True):
            if action.keep and isinstance(action.event, Finished | Released):
                binding = action.event.binding
                kept.append(((binding.task_id, binding.fence), event))
                self._note_told(action.event)
        if kept:
            self.spool.add(kept, safely=False)
        self.spool.tidy()
        if raw and not self._dies_now():
            self.outbox.put(raw)

    def _dies_now(self) -> bool:
        if self.crash_in:
            self.crash_in -= 1
            if not self.crash_in:
                self.history.fault("agent_crash", self.seat.worker_id)
                self.crash()
                self.seat.restart_after(self.dice.between(50, 3_000))
        return not self.alive

    def _leave(self) -> None:
        """Drained: send what is left, say farewell, and end; somebody starts the worker again later."""
        self.leaving = True
        self.after(self.seat.goodbye_ms, self._say_farewell)

    def _say_farewell(self) -> None:
        def gone(_: object) -> None:
            self._end()

        timeout_ms = broker_timeout_ms(self.seat.ttl_ms)
        self.network.call(self, lambda: self.face().farewell(), gone, gone, timeout_ms=timeout_ms)

    def _end(self) -> None:
        self.kill()
        self.spool.close()
        self.seat.crew.lose_agent()
        self.seat.restart_after(self.dice.between(200, 2_000))

    # --- the history ----------------------------------------------------------------------------

    def _note_told(self, event: Finished | Released) -> None:
        binding = event.binding
        value = ""
        if isinstance(event, Finished):
            failure = event.outcome.failure
            value = event.outcome.value or (failure.message if failure is not None else "")
        what = "finished" if isinstance(event, Finished) else f"released {event.cause}"
        worker = self.seat.worker_id
        self.history.add(Told(self.engine.now, worker, binding.task_id, binding.fence, binding.nonce, what, value))

    def note_orders(self, control: Control) -> None:
        """Keep answers in the history."""
        worker, now = self.seat.worker_id, self.engine.now
        for order in control.orders:
            if isinstance(order, Judged):
                answer, reason = str(order.verdict), str(order.reason or "")
            elif isinstance(order, Granted):
                answer, reason = "granted", ""
            elif isinstance(order, Refused):
                answer, reason = "refused", str(order.reason)
            else:
                continue
            self.history.add(Answered(now, worker, order.task_id, order.fence, order.nonce, answer, reason))

    # --- the broker -----------------------------------------------------------------------------

    def face(self) -> MemoryWorker:
        """A connection to the server that this host reaches."""
        return self.network.face(self.host, self.seat.site, self.seat.worker_id)

    def has_news(self, face: MemoryWorker) -> bool:
        """Whether an assignment waits that this worker could take. Raises `StreamMissing`."""
        found = [face.store.stream(key) for key in self._streams]
        return any(stream is None or stream.undelivered for stream in found)

    def wrote(self) -> None:
        """Something was written for the coordinator."""
        self.network.server_of(self.host).reported()
