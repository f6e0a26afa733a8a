"""An agent's four lines to the broker, step for step what `workers/{pulse,courier,listener,taker}.py` do in threads.

The threads wait for the broker; here the reply is an event of its own, and the line goes on when it comes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, final

from tenure.broker.base import EntryId
from tenure.errors import StreamMissing, TenureError
from tenure.protocol.control_messages import CONTROL
from tenure.protocol.message import decode
from tenure.protocol.timing import beat_interval_ms, broker_timeout_ms, expiry_ms
from tenure.workers.inputs import BeatTaken, Ordered, Reconnected, Taken

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tenure.broker.base import Delivery, Handout
    from tenure.broker.memory import MemoryWorker
    from tenure.errors import BrokerError
    from tests.simulation.agent import Agent, Errand

_FIRST_PAUSE_MS: Final = 50
_LONGEST_PAUSE_MS: Final = 2_000
_STREAM_PAUSE_MS: Final = 250
_BLOCK_MS: Final = 2_000
_SHORTEST_BLOCK_MS: Final = 100
_RETAKE_LIMIT: Final = 5_000
_ROOM_PATIENCE_MS: Final = 1_000
_START: Final = EntryId(0, 0)


class Line:
    """One connection and its duty; opened again after a pause when the broker fails."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.failures = 0
        self.again = False

    def open(self) -> None:
        """Connect, and begin."""
        self.opened(again=self.again)
        self.turn()

    def opened(self, *, again: bool) -> None:
        """See `lines.Duty.opened`."""

    def turn(self) -> None:
        """See `lines.Duty.turn`."""
        raise NotImplementedError

    def call(
        self,
        act: Callable[[MemoryWorker], Any],
        done: Callable[[Any], None],
        *,
        block_ms: int = 0,
        ready: Callable[[MemoryWorker], bool] | None = None,
        repeatable: bool = False,
    ) -> None:
        """Call the broker; `done` gets the answer, unless the line has failed by then."""
        agent = self.agent
        face = agent.face

        def answered(value: Any) -> None:
            self.failures = 0
            done(value)

        agent.network.call(
            agent,
            lambda: act(face()),
            answered,
            self.failed,
            timeout_ms=broker_timeout_ms(agent.seat.ttl_ms),
            block_ms=block_ms,
            ready=None if ready is None else lambda: ready(face()),
            repeatable=repeatable,
        )

    def failed(self, error: BrokerError) -> None:
        """Wait a little, longer each time, and open again."""
        self.again = True
        self.failures += 1
        longest_ms = _STREAM_PAUSE_MS if isinstance(error, StreamMissing) else _LONGEST_PAUSE_MS
        pause_ms = min(_FIRST_PAUSE_MS << min(self.failures - 1, 10), longest_ms)
        self.agent.after(pause_ms + self.agent.dice.below(pause_ms), self.open)


@final
class PulseLine(Line):
    """Heartbeats, and the marker of the broker's data."""

    def __init__(self, agent: Agent, start_over: Callable[[], None]) -> None:
        super().__init__(agent)
        self._start_over = start_over
        self._marker = ""
        self._shortest_ms = agent.seat.ttl_ms
        self._turns = 0
        self._resting = False

    def hurry(self, ttl_ms: int) -> None:
        """Something with that ttl was taken."""
        if ttl_ms < self._shortest_ms and self._resting:
            self.turn()

    def turn(self) -> None:
        self._resting = False
        agent = self.agent
        if agent.leaving:
            return
        claims = agent.claims
        began_ms = agent.elapsed_ms()
        beat = claims.pulse(began_ms)
        self._shortest_ms = claims.shortest_ttl_ms()
        raw = beat.model_dump_json().encode()
        life_ms = expiry_ms(agent.seat.ttl_ms)

        def taken(answer: tuple[str, str]) -> None:
            echo, marker = answer
            agent.post(BeatTaken(beat.sequence, echo))
            self._look_at_marker(marker)
            self._rest(began_ms)

        self.call(lambda face: (face.beat(raw, life_ms), face.marker()), taken)

    def _rest(self, began_ms: int) -> None:
        interval_ms = beat_interval_ms(min(self._shortest_ms, self.agent.seat.ttl_ms))
        rest_ms = max(began_ms + interval_ms - self.agent.elapsed_ms(), 0)
        self._turns += 1
        turn, self._resting = self._turns, True

        def go_on() -> None:
            if self._resting and self._turns == turn:
                self.turn()

        self.agent.after(rest_ms, go_on)

    def _look_at_marker(self, marker: str) -> None:
        if not marker or marker == self._marker:
            return
        if self._marker:
            self._start_over()
            self.agent.post(Reconnected())
        self._marker = marker


@final
class CourierLine(Line):
    """Reports."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        seat = agent.seat
        self._head = f'{{"worker_id":{json.dumps(seat.worker_id)},"generation":{agent.generation},"window":'
        self._idle = False

    def opened(self, *, again: bool) -> None:
        if again:
            self.agent.post(Reconnected())

    def poke(self) -> None:
        """There may be something to send."""
        if self._idle and self.agent.outbox_size():
            self._idle = False
            self.turn()

    def turn(self) -> None:
        agent = self.agent
        if not agent.outbox_size():
            self._idle = True
            return
        events = agent.outbox.batch()
        window = agent.claims.window(agent.elapsed_ms())
        raw = f'{self._head}{window},"events":['.encode() + b",".join(events) + b"]}"
        self._events = events
        self.call(lambda face: face.report([raw]), self._sent, repeatable=True)

    def failed(self, error: BrokerError) -> None:
        self.agent.outbox.restore(self._events)
        super().failed(error)

    def _sent(self, _: object) -> None:
        self.agent.outbox.settle()
        self.agent.wrote()
        self.turn()


@final
class ListenerLine(Line):
    """Orders."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self._after = _START

    def start_over(self) -> None:
        """The broker's data is new: read from the beginning."""
        self._after = _START

    def turn(self) -> None:
        after = self._after

        def read(deliveries: Sequence[Delivery]) -> None:
            for delivery in deliveries:
                try:
                    control = decode(CONTROL, delivery.raw)
                except TenureError:
                    continue
                self.agent.note_orders(control)
                self.agent.post(Ordered(control))
            if deliveries and self._after == after:
                self._after = deliveries[-1].entry_id
            self.turn()

        self.call(
            lambda face: face.orders(after=after, block_ms=0),
            read,
            block_ms=_BLOCK_MS,
            ready=lambda face: bool(face.orders(after=after, block_ms=0)),
        )


@final
class TakerLine(Line):
    """Assignments."""

    def __init__(self, agent: Agent, hurry: Callable[[int], None]) -> None:
        super().__init__(agent)
        self._hurry = hurry
        self._must_retake = True
        self._inherited = True
        self._block_ms = _BLOCK_MS
        self._waiting_for_room = 0
        self._turns = 0

    def opened(self, *, again: bool) -> None:
        self._must_retake = self._must_retake or again
        if again:
            self.agent.post(Reconnected())

    def poke(self) -> None:
        """There may be room now."""
        if self._waiting_for_room and self.agent.worthwhile():
            self._waiting_for_room = 0
            self.turn()

    def turn(self) -> None:
        issued_ms = self.agent.elapsed_ms()
        capabilities = self.agent.seat.capabilities
        if self._must_retake:
            self.call(
                lambda face: face.retake(capabilities=capabilities, limit=_RETAKE_LIMIT),
                lambda handouts: self._retaken(handouts, issued_ms),
            )
            return
        room = self.agent.worthwhile()
        if not room:
            self._wait_for_room()
            return

        def taken(handouts: Sequence[Handout]) -> None:
            if handouts:
                self._post(Taken(handouts, issued_ms))
            self.turn()

        self.call(
            lambda face: face.take(capabilities=capabilities, limit=room, block_ms=0),
            taken,
            block_ms=self._block_ms,
            ready=self.agent.has_news,
        )

    def _wait_for_room(self) -> None:
        self._turns += 1
        turn = self._waiting_for_room = self._turns

        def give_up() -> None:
            if self._waiting_for_room == turn:
                self._waiting_for_room = 0
                self.turn()

        self.agent.after(_ROOM_PATIENCE_MS, give_up)

    def _retaken(self, handouts: Sequence[Handout], issued_ms: int) -> None:
        self._post(Taken(handouts, issued_ms, again=True, inherited=self._inherited))
        self._must_retake = self._inherited = False
        self.turn()

    def _post(self, taken: Taken) -> None:
        self.agent.post(taken)
        ttls = [one.assignment.ticket.ttl_ms for one in taken.handouts if one.assignment is not None]
        if ttls:
            self._block_ms = max(_SHORTEST_BLOCK_MS, min(self._block_ms, min(ttls) // 4))
            self._hurry(min(ttls))


@final
class LookLine(Line):
    """An executor's one look, as `workers/single_taker.py` takes it."""

    def __init__(self, agent: Agent, errand: Errand) -> None:
        super().__init__(agent)
        self._errand = errand

    def poke(self) -> None:
        """Nothing waits for room here."""

    def turn(self) -> None:
        issued_ms = self.agent.elapsed_ms()
        entry = self._errand.entry

        def seen(handout: Handout | None) -> None:
            found = () if handout is None else (handout,)
            self.agent.post(Taken(found, issued_ms, again=True, withdrawn=handout is None))

        self.call(lambda face: face.look(entry), seen)
