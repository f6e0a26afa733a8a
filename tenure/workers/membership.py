"""Membership: how the worker introduces itself, and how it leaves.

Leaving is a promise in two steps: `Leaving(gone=False)` when nothing more is taken, `Leaving(gone=True)` only when
nothing is in hand any more. When verdicts stay away, the worker leaves without the second step; the reports stay in
the spool and are told by the next agent of the same id. An executor has no next agent, so it is more patient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from tenure.protocol.worker_messages import Cause, Finished, Hello, Leaving
from tenure.workers.actions import Leave, Outranked, Tell, TurnedAway
from tenure.workers.conclusions import give_back
from tenure.workers.greeting import Greeting
from tenure.workers.holds import NEVER, Stage
from tenure.workers.lifetime import ENDLESS, Decline, Lifetime
from tenure.workers.one_task import OneTask

if TYPE_CHECKING:
    from tenure.protocol.control_messages import HelloRefused, Registered
    from tenure.workers.answers import Answers
    from tenure.workers.floor import Floor
    from tenure.workers.intake import Intake
    from tenure.workers.ledger import Ledger
    from tenure.workers.rights import Rights
    from tenure.workers.stopping import Stopper

_VERDICT_PATIENCE_MS: Final = 5_000
_ANSWER_PATIENCE_MS: Final = 120_000


@final
@dataclass(frozen=True, slots=True)
class Profile:
    """What the worker says about itself, the number of its agent, and the names of the secrets that its host knows.

    `verdict_patience_ms` is how long one that leaves waits for the verdicts on what has run; on what has not, and when
    it must leave at once, it never waits longer than five seconds. `answer_patience_ms` is how long an executor waits
    for the answer to its claim.
    """

    hello: Hello
    generation: int
    secrets: frozenset[str] = frozenset()
    verdict_patience_ms: int = _VERDICT_PATIENCE_MS
    answer_patience_ms: int = _ANSWER_PATIENCE_MS
    lifetime: Lifetime = ENDLESS


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
        self._parts = parts
        self._greeting = Greeting(profile.hello, profile.generation)
        self._lifetime = profile.lifetime
        self._decline = Decline(profile.lifetime)
        is_executor = profile.hello.executor_of is not None
        self._one_task = OneTask(profile.answer_patience_ms, parts.intake, parts.ledger) if is_executor else None
        self._patience_ms = profile.verdict_patience_ms
        self._leave_by_ms = NEVER
        self._left = False

    def say_hello(self, now_ms: int) -> None:
        """Introduce the worker with everything that it holds."""
        self._parts.intake.trusted = False
        held = [hold.held() for hold in self._parts.ledger.holds()]
        hello = self._greeting.say(held, now_ms)
        self._parts.ledger.act(Tell(hello.model_copy(update={"remaining_ms": self._lifetime.remaining_ms(now_ms)})))

    def registered(self, order: Registered, now_ms: int) -> None:
        """The hello was taken; or a newer agent of this id has said hello, and this one must end at once."""
        if self._greeting.answered(order, now_ms):
            self._parts.intake.trusted = True
            self._parts.answers.repeat(now_ms, at_once=True)
        elif self._greeting.is_outranked(order):
            self._parts.ledger.act(Outranked(order.generation))
            self.drain(now_ms, at_once=True)

    def refused(self, order: HelloRefused, now_ms: int) -> None:
        """A worker of this id has executors started. This one has started nothing, for it was never registered."""
        if self._greeting.is_refused(order):
            self._parts.ledger.act(TurnedAway())
            self.drain(now_ms, at_once=True)

    def reconnected(self, now_ms: int) -> None:
        """Something may have been lost: say hello again, and start nothing without a grant until it is answered."""
        if self._greeting.registered:
            self.say_hello(now_ms)

    def asked_to_drain(self, now_ms: int, *, at_once: bool) -> None:
        """Somebody on this host wants the worker to leave."""
        self._decline.asked(now_ms)
        self.drain(now_ms, at_once=at_once)

    def ordered_to_drain(self, now_ms: int) -> None:
        """The coordinator wants the worker to leave.

        Orders to an earlier agent may still be in the stream: those before the answer to this agent's hello do not
        count.
        """
        if self._greeting.registered:
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
            self._patience_ms = min(self._patience_ms, _VERDICT_PATIENCE_MS)
            self._leave_by_ms = min(self._leave_by_ms, now_ms + self._patience_ms)  # also when it is NEVER: -1
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
        if not self._left and self._greeting.is_due(self._parts.rights.echoed_ms, now_ms):
            self.say_hello(now_ms)
        self._end_in_time(now_ms)
        if self._one_task is not None and not self._parts.intake.closed and self._one_task.is_over(now_ms):
            self.drain(now_ms, at_once=False)
        if self._parts.intake.closed and not self._left:
            self._leave_when_done(now_ms)

    def _end_in_time(self, now_ms: int) -> None:
        ledger, closed = self._parts.ledger, self._parts.intake.closed
        at_once = self._decline.due(now_ms, in_hand=len(ledger), deeds=ledger.counts.total(), closed=closed)
        if at_once is not None:
            self.drain(now_ms, at_once=at_once)

    def _leave_when_done(self, now_ms: int) -> None:
        ledger = self._parts.ledger
        if ledger.unfinished:
            self._leave_by_ms = NEVER
            return
        if self._leave_by_ms == NEVER:
            self._leave_by_ms = now_ms + self._verdict_patience_ms()
        if len(ledger) == 0:
            ledger.act(Tell(Leaving(gone=True)))
        elif now_ms < self._leave_by_ms:
            return
        self._left = True
        ledger.act(Leave())

    def _verdict_patience_ms(self) -> int:
        reports = [hold.report for hold in self._parts.ledger.holds()]
        has_run = any(isinstance(report, Finished) or (report is not None and report.started) for report in reports)
        return self._patience_ms if has_run else min(self._patience_ms, _VERDICT_PATIENCE_MS)
