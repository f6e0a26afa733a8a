"""How the parent introduces itself, and how it leaves: with its executors ended, and everything about them answered.

When answers stay away it leaves without the last word. Its journal holds what is left, for the next agent of its id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from tenure.protocol.worker_messages import Cause, Leaving
from tenure.workers.actions import Leave, Outranked, Tell, TurnedAway
from tenure.workers.greeting import Greeting
from tenure.workers.holds import NEVER
from tenure.workers.lifetime import Decline

if TYPE_CHECKING:
    from tenure.protocol.control_messages import HelloRefused, Registered
    from tenure.workers.launch_book import LaunchBook
    from tenure.workers.launch_intake import LaunchIntake, ParentProfile
    from tenure.workers.launch_stops import LaunchStops

_ANSWER_PATIENCE_MS: Final = 5_000
_CANCEL_PATIENCE_MS: Final = 30_000
"""How long a substrate may take to end what it was told to end, before the parent leaves it to the next agent."""


@final
class LaunchMembership:
    """Hello and goodbye of a parent."""

    def __init__(self, profile: ParentProfile, book: LaunchBook, intake: LaunchIntake, stops: LaunchStops) -> None:
        self._book = book
        self._intake = intake
        self._stops = stops
        self._greeting = Greeting(profile.hello, profile.generation)
        self._lifetime = profile.lifetime
        self._decline = Decline(profile.lifetime)
        self._leave_by_ms = NEVER
        self._give_up_ms = NEVER
        self._left = False

    def say_hello(self, now_ms: int) -> None:
        """Introduce the worker with everything that it holds."""
        hello = self._greeting.say(self._book.held(), now_ms)
        self._book.act(Tell(hello.model_copy(update={"remaining_ms": self._lifetime.remaining_ms(now_ms)})))

    def registered(self, order: Registered, now_ms: int) -> bool:
        """Whether the newest hello was answered; if a newer agent of this id has said hello, this one must end.

        Its executors are the newer agent's to look after, if it has the same journal, and speak for themselves else.
        """
        if self._greeting.answered(order, now_ms):
            return True
        if self._greeting.is_outranked(order):
            self._book.act(Outranked(order.generation))
            self._leave()
        return False

    def refused(self, order: HelloRefused) -> None:
        """A worker of this id runs tasks itself: no executor of this one's is given a lease."""
        if self._greeting.is_refused(order):
            self._book.act(TurnedAway())
            self._leave()

    def reconnected(self, now_ms: int) -> None:
        """Something may have been lost: say hello again."""
        if self._greeting.registered:
            self.say_hello(now_ms)

    def asked_to_drain(self, now_ms: int, *, at_once: bool) -> None:
        """Somebody on this host wants the worker to leave."""
        self._decline.asked(now_ms)
        self.drain(now_ms, at_once=at_once)

    def ordered_to_drain(self, now_ms: int) -> None:
        """The coordinator wants the worker to leave; orders before the answer to this agent's hello do not count."""
        if self._greeting.registered:
            self.drain(now_ms, at_once=False)

    def drain(self, now_ms: int, *, at_once: bool) -> None:
        """Take nothing more and wait for the launches, or end them when `at_once`."""
        if not self._intake.closed:
            self._intake.closed = True
            self._book.act(Tell(Leaving(gone=False)))
        if at_once:
            self._give_up_ms = now_ms + _CANCEL_PATIENCE_MS
            for launch in self._book.launches():
                self._stops.stop(launch, Cause.DRAINED, now_ms, at_once=True)

    def round(self, echoed_ms: int, now_ms: int) -> None:
        """Repeat a hello that stays unanswered; leave when nothing is left to do."""
        if self._left:
            return
        if self._greeting.is_due(echoed_ms, now_ms):
            self.say_hello(now_ms)
        book, closed = self._book, self._intake.closed
        at_once = self._decline.due(now_ms, in_hand=len(book), deeds=book.counts.total(), closed=closed)
        if at_once is not None:
            self.drain(now_ms, at_once=at_once)
        if self._intake.closed:
            self._leave_when_done(now_ms)

    def _leave_when_done(self, now_ms: int) -> None:
        if len(self._book) == 0:
            self._book.act(Tell(Leaving(gone=True)))
            self._leave()
        elif self._book.unfinished():
            self._leave_by_ms = NEVER
            if self._give_up_ms != NEVER and now_ms >= self._give_up_ms:
                self._leave()
        elif self._leave_by_ms == NEVER:
            self._leave_by_ms = now_ms + _ANSWER_PATIENCE_MS
        elif now_ms >= self._leave_by_ms:
            self._leave()

    def _leave(self) -> None:
        self._left = True
        self._book.act(Leave())
