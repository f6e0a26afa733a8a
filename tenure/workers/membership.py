"""Membership: how the worker introduces itself, and how it leaves.

Leaving is a promise in two steps: `Leaving(gone=False)` when nothing more is taken, `Leaving(gone=True)` only when
nothing is in hand any more. When verdicts stay away, the worker leaves without the second step; the reports stay in
the spool and are told by the next agent of the same id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from tenure.protocol.worker_messages import Cause, Hello, Leaving
from tenure.workers.actions import Leave, Outranked, Tell
from tenure.workers.conclusions import give_back
from tenure.workers.holds import NEVER, Stage

if TYPE_CHECKING:
    from tenure.protocol.control_messages import Registered
    from tenure.workers.answers import Answers
    from tenure.workers.floor import Floor
    from tenure.workers.intake import Intake
    from tenure.workers.ledger import Ledger
    from tenure.workers.rights import Rights
    from tenure.workers.stopping import Stopper

_HELLO_PATIENCE_MS: Final = 1_000
_MOST_DOUBLINGS: Final = 6
_VERDICT_PATIENCE_MS: Final = 5_000


@final
@dataclass(frozen=True, slots=True)
class Profile:
    """What the worker says about itself, and the number of its agent."""

    hello: Hello
    generation: int


@final
@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the core that membership works on."""

    ledger: Ledger
    floor: Floor
    stopper: Stopper
    intake: Intake
    answers: Answers
    rights: Rights


@final
class Membership:
    """Hello and goodbye."""

    def __init__(self, profile: Profile, parts: Parts) -> None:
        self._profile = profile
        self._parts = parts
        self._registered = False
        self._registered_ms = NEVER
        self._ordinal = 0
        self._hello_due_ms = 0
        self._hellos = 0
        self._leave_by_ms = NEVER
        self._left = False

    def say_hello(self, now_ms: int) -> None:
        """Introduce the worker with everything that it holds."""
        self._registered = self._parts.intake.trusted = False
        self._ordinal += 1
        self._hello_due_ms = now_ms + (_HELLO_PATIENCE_MS << min(self._hellos, _MOST_DOUBLINGS))
        self._hellos += 1
        held = tuple(hold.held() for hold in self._parts.ledger.holds())
        self._parts.ledger.act(Tell(self._profile.hello.model_copy(update={"held": held, "ordinal": self._ordinal})))

    def registered(self, order: Registered, now_ms: int) -> None:
        """The hello was taken; or a newer agent of this id has said hello, and this one must end at once."""
        if order.generation == self._profile.generation and order.ordinal == self._ordinal:
            self._registered = self._parts.intake.trusted = True
            self._registered_ms = now_ms
            self._hellos = 0
            self._parts.answers.repeat(now_ms, at_once=True)
        elif order.generation > self._profile.generation:
            self._parts.ledger.act(Outranked(order.generation))
            self.drain(now_ms, at_once=True)

    def reconnected(self, now_ms: int) -> None:
        """Something may have been lost: say hello again, and start nothing without a grant until it is answered."""
        if self._registered:
            self.say_hello(now_ms)

    def ordered_to_drain(self, now_ms: int) -> None:
        """The coordinator wants the worker to leave.

        Orders to an earlier agent may still be in the stream: those before the answer to this agent's hello do not
        count.
        """
        if self._registered:
            self.drain(now_ms, at_once=False)

    def drain(self, now_ms: int, *, at_once: bool) -> None:
        """Take nothing more; give back what has not started, and finish what has, or end it when `at_once`."""
        parts = self._parts
        if not parts.intake.closed:
            parts.intake.closed = True
            parts.ledger.act(Tell(Leaving(gone=False)))
        self.give_back(now_ms)
        for slot in parts.floor.slots:
            if len(slot.placed) > 1 and not slot.is_async:
                parts.stopper.recall(slot)
        if at_once:
            for hold in list(parts.ledger.holds()):
                parts.stopper.stop(hold, Cause.DRAINED, now_ms)

    def give_back(self, now_ms: int) -> None:
        """While the worker leaves: give back everything that has not been placed."""
        if self._parts.intake.closed:
            for hold in list(self._parts.ledger.holds()):
                if hold.stage in {Stage.ASKING, Stage.READY}:
                    give_back(self._parts.ledger, hold, Cause.UNSTARTED, now_ms)

    def round(self, now_ms: int) -> None:
        """Repeat a hello that stays unanswered; leave when nothing is left to do."""
        if not self._left and (self._forgotten(now_ms) or (not self._registered and now_ms >= self._hello_due_ms)):
            self.say_hello(now_ms)
        if self._parts.intake.closed and not self._left:
            self._leave_when_done(now_ms)

    def _forgotten(self, now_ms: int) -> bool:
        """Whether the coordinator has not echoed for so long that it may not know this worker any more."""
        heard_ms = max(self._registered_ms, self._parts.rights.echoed_ms)
        return self._registered and now_ms - heard_ms > 2 * self._profile.hello.ttl_ms

    def _leave_when_done(self, now_ms: int) -> None:
        ledger = self._parts.ledger
        if ledger.unfinished:
            self._leave_by_ms = NEVER
            return
        if self._leave_by_ms == NEVER:
            self._leave_by_ms = now_ms + _VERDICT_PATIENCE_MS
        if len(ledger) == 0:
            ledger.act(Tell(Leaving(gone=True)))
        elif now_ms < self._leave_by_ms:
            return
        self._left = True
        ledger.act(Leave())
