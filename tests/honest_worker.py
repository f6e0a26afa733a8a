"""A worker that keeps the protocol: it repeats what was not answered and obeys every order."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from tenure.errors import BrokerError
from tenure.protocol.artifact import Bundle
from tenure.protocol.control_messages import Granted, Judged, Order, Refused, Registered, SayHello, Stop
from tenure.protocol.worker_messages import Cause, Released, WorkerEvent
from tests.scripted_fleet import Hand, ScriptedWorker, drop


@dataclass
class HonestWorker:
    """Runs everything that it is given, one round at a time.

    Attributes:
        registered: whether its last hello was answered.
        started: the fence of everything that it has begun to run, in order.
        outputs: what it stages when something has ended, if anything.
    """

    worker: ScriptedWorker
    slots: int = 2
    registered: bool = False
    started: list[int] = field(default_factory=list[int])
    outputs: Callable[[Hand], Bundle | None] = lambda _: None

    def round(self) -> None:
        """Read orders, beat, take, and report; what the broker does not take is said again in the next round."""
        with suppress(BrokerError):
            for order in self.worker.read():
                self._obey(order)
            if not self.registered:
                self.worker.hello(slots=self.slots)
            self.worker.beat()
            self._take()
            for hand in self.worker.hands:
                self.worker.send(self._next(hand))

    def _take(self) -> None:
        """Take what there is; a second copy of what is in hand is the same assignment, not another executor of it."""
        held = {hand.ticket.fence for hand in self.worker.hands}
        for hand in self.worker.take():
            if hand.ticket.fence in held:
                drop(self.worker, hand)

    def _obey(self, order: Order) -> None:
        match order:
            case Registered():
                self.registered = True
            case SayHello():
                self.registered = False
            case Granted():
                self._move(order.fence, "running")
            case Stop():
                self._move(order.fence, "stopping")
            case Refused() | Judged():
                self.worker.hands = [hand for hand in self.worker.hands if hand.nonce != order.nonce]
            case _:
                pass

    def _move(self, fence: int, state: str) -> None:
        for hand in self.worker.hands:
            if hand.ticket.fence != fence:
                continue
            if state == "stopping":
                hand.state = "stopping"
            elif hand.state == "claimed":
                self._start(hand)

    def _start(self, hand: Hand) -> None:
        hand.state = "running"
        self.started.append(hand.ticket.fence)

    def _next(self, hand: Hand) -> WorkerEvent:
        if hand.state == "stopping":
            return Released(binding=hand.binding, cause=Cause.CANCELLED, started=True, tree_gone=True)
        if hand.state == "claimed" and hand.ticket.start == "granted":
            return self.worker.claimed(hand)
        if hand.state == "claimed":
            self._start(hand)
            return self.worker.claimed(hand)
        hand.state = "finished"
        finished = self.worker.finished(hand, str(hand.ticket.fence))
        return finished.model_copy(update={"outputs": self.outputs(hand)})
