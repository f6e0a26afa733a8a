"""The worker's core with a clock in the hands of the test, and short names for what happens to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from tenure.broker.base import EntryId, Handout
from tenure.protocol.assignment import Assignment, Ticket
from tenure.protocol.control_messages import (
    Control,
    Granted,
    Judged,
    Order,
    Refused,
    Registered,
    Stop,
    StopReason,
    Verdict,
)
from tenure.protocol.control_messages import Reason as WhyRefused
from tenure.protocol.envelope import CallWork, CommandWork, Envelope, Scope, digest, encode
from tenure.protocol.worker_messages import Finished, Hello, Outcome, Released
from tenure.testing import SeededEntropy
from tenure.workers.actions import Action, Recall, StartCall, StartCommand, Tell
from tenure.workers.claims import Claims
from tenure.workers.inputs import BeatTaken, CallEnded, ChildReady, Input, Ordered, Recalled, Taken, TreeEnded
from tenure.workers.lifetime import ENDLESS, Lifetime
from tenure.workers.membership import Profile

_A = TypeVar("_A")
SCOPE = Scope(world="world", run="run")
QUICK = "m:quick"


class Core:
    """Claims, and what they decided."""

    def __init__(
        self,
        slots: int = 1,
        generation: int = 1,
        *,
        ttl_ms: int = 30_000,
        prompt: bool = True,
        registered: bool = True,
        lifetime: Lifetime = ENDLESS,
    ) -> None:
        hello = Hello(slots=slots, capabilities=("default",), ttl_ms=ttl_ms)
        self.claims = Claims(Profile(hello, generation, lifetime=lifetime), SeededEntropy(1))
        self.generation = generation
        self.now_ms = 1_000_000
        self.actions: list[Action] = []
        self.prompt = prompt
        """Whether children are ready as soon as they are started."""
        self.ready: set[int] = set()
        self.sequence = 0
        self.epoch = 1
        self.ordinal = 0
        self.orders = Orders(self)
        self.seen = Seen(self)
        if registered:
            self.collect()
            self.orders.register()
            self.actions.clear()

    # --- what happens ---------------------------------------------------------------------------

    def feed(self, *inputs: Input) -> list[Action]:
        """Let these happen now; what was decided at that."""
        for one in inputs:
            self.claims.handle(one, self.now_ms)
        return self.collect()

    def collect(self) -> list[Action]:
        """What is decided now."""
        decided = self.claims.collect(self.now_ms)
        self.actions.extend(decided)
        for action in decided:
            if isinstance(action, Tell) and isinstance(action.event, Hello):
                self.ordinal = action.event.ordinal
            if isinstance(action, StartCommand):
                self.ready.discard(action.slot)
            elif isinstance(action, StartCall) and self.prompt and action.slot not in self.ready:
                self.ready.add(action.slot)
                self.claims.handle(ChildReady(action.slot), self.now_ms)
        return decided

    def pass_ms(self, duration_ms: int) -> list[Action]:
        """Let time pass in steps of at most 50 ms, looking at what is due."""
        decided: list[Action] = []
        until_ms = self.now_ms + duration_ms
        while self.now_ms < until_ms:
            self.now_ms = min(self.now_ms + 50, until_ms)
            decided.extend(self.collect())
        return decided

    def take(self, *envelopes: Envelope, age_ms: int = 0, **flags: bool) -> list[Ticket]:
        """Assignments of these envelopes are read; the read was issued `age_ms` ago."""
        tickets = [self.ticket(envelope) for envelope in envelopes]
        self.hand_out(tickets, envelopes, age_ms=age_ms, **flags)
        return tickets

    def hand_out(
        self, tickets: Sequence[Ticket], envelopes: Sequence[Envelope], age_ms: int = 0, **flags: bool
    ) -> None:
        handouts = [
            Handout(EntryId(1, ticket.fence), Assignment(ticket=ticket, envelope=encode(envelope)))
            for ticket, envelope in zip(tickets, envelopes, strict=True)
        ]
        self.feed(Taken(handouts, self.now_ms - age_ms, **flags))

    def ticket(self, envelope: Envelope, **changes: Any) -> Ticket:
        self.sequence += 1
        fields: dict[str, Any] = {
            "task_id": f"{self.sequence:026d}",
            "attempt": 1,
            "fence": self.sequence,
            "digest": digest(encode(envelope)),
            "epoch": self.epoch,
            "start": envelope.start,
            "exclusive": envelope.exclusive,
            "ttl_ms": envelope.lease_ttl_ms,
        }
        return Ticket(**{**fields, **changes})

    def beat(self, *, echoed: bool = True, taken: bool = True) -> int:
        """Send a heartbeat now; the broker takes it, and echoes it."""
        pulse = self.claims.pulse(self.now_ms)
        if taken:
            echo = f"{self.epoch}:{self.generation}:{pulse.sequence}" if echoed else ""
            self.feed(BeatTaken(pulse.sequence, echo))
        return pulse.sequence

    def end(self, ticket: Ticket, value: str = "1", duration_ms: int = 0) -> list[Action]:
        """The call of that assignment returns."""
        start = self.seen.start_of(ticket)
        return self.feed(CallEnded(start.slot, start.call, Outcome(value=value), duration_ms))

    def recalled(self, slot: int, *tickets: Ticket) -> list[Action]:
        return self.feed(Recalled(slot, [self.seen.start_of(ticket).call for ticket in tickets]))

    def tree_ended(self, slot: int, *, gone: bool = True, **fields: Any) -> list[Action]:
        self.ready.discard(slot)
        return self.feed(TreeEnded(slot, gone=gone, **fields))


class Orders:
    """The coordinator's part."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def order(self, *orders: Order, epoch: int | None = None) -> list[Action]:
        return self._core.feed(Ordered(Control(epoch=self._core.epoch if epoch is None else epoch, orders=orders)))

    def register(self) -> None:
        """Answer the newest hello."""
        self.order(Registered(generation=self._core.generation, ordinal=self._core.ordinal))

    def grant(self, *tickets: Ticket) -> list[Action]:
        return self.order(*(Granted(task_id=t.task_id, fence=t.fence, nonce=self._core.seen.nonce(t)) for t in tickets))

    def refuse(self, ticket: Ticket) -> list[Action]:
        reason = WhyRefused.STALE_FENCE
        return self.order(
            Refused(task_id=ticket.task_id, fence=ticket.fence, nonce=self._core.seen.nonce(ticket), reason=reason)
        )

    def stop(self, ticket: Ticket) -> list[Action]:
        return self.order(Stop(task_id=ticket.task_id, fence=ticket.fence, reason=StopReason.CANCELLED))

    def judge(self, *tickets: Ticket) -> list[Action]:
        verdict = Verdict.ACCEPTED
        return self.order(
            *(
                Judged(task_id=t.task_id, fence=t.fence, nonce=self._core.seen.nonce(t), verdict=verdict)
                for t in tickets
            )
        )


class Seen:
    """What was decided so far."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def all(self, kind: type[_A]) -> list[_A]:
        actions: list[object] = [*self._core.actions]
        return [action for action in actions if isinstance(action, kind)]

    def told(self, kind: type[_A]) -> list[_A]:
        return [action.event for action in self.all(Tell) if isinstance(action.event, kind)]

    def starts(self) -> list[StartCall | StartCommand]:
        return [action for action in self._core.actions if isinstance(action, StartCall | StartCommand)]

    def started(self) -> list[int]:
        """Fences in the order in which they were started."""
        return [start.binding.fence for start in self.starts()]

    def start_of(self, ticket: Ticket) -> StartCall | StartCommand:
        return [start for start in self.starts() if start.binding.fence == ticket.fence][-1]

    def recalls(self) -> list[int]:
        return [action.slot for action in self.all(Recall)]

    def finished(self, ticket: Ticket) -> list[Finished]:
        return [event for event in self.told(Finished) if event.binding.fence == ticket.fence]

    def released(self, ticket: Ticket) -> list[Released]:
        return [event for event in self.told(Released) if event.binding.fence == ticket.fence]

    def held(self) -> dict[int, str]:
        """Fences and states as the next heartbeat lists them."""
        return {held.fence: held.state for held in self._core.claims.pulse(self._core.now_ms).held}

    def nonce(self, ticket: Ticket) -> str:
        hold = self._core.claims._ledger.find((ticket.task_id, ticket.fence))
        return hold.binding.nonce if hold is not None else "0" * 32


def quick(**fields: Any) -> Envelope:
    """A call that may start on its claim, of a handler that is always the same."""
    handler = fields.pop("handler", QUICK)
    described: dict[str, Any] = {"start": "claimed", **fields}
    return Envelope(work=CallWork(handler=handler), scope=SCOPE, **described)


def granted(**fields: Any) -> Envelope:
    """A call that starts on a grant."""
    return quick(**{"start": "granted", **fields})


def program(**fields: Any) -> Envelope:
    """A command that starts on its claim."""
    described: dict[str, Any] = {"start": "claimed", **fields}
    return Envelope(work=CommandWork(argv=("true",)), scope=SCOPE, **described)
