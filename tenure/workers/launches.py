"""The parent's core: a state machine without I/O, in the manner of `claims.py`, of launches in place of claims.

The parent reads assignments like any worker and never claims one: it has an executor launched for each, which claims
for itself, and says what became of it. What may be relied on, whatever order inputs come in: a (task, fence) is in the
heartbeats from the input that brought it until its answer; the launcher is asked one thing at a time about each; what
was perhaps launched is never forgotten before the substrate has said that it is over, or the coordinator has answered;
and `ExecutorGone` is told until it is answered, unless what could not be seen is seen again: then as it is.
`tests/property/test_worker_launches.py` searches for counterexamples.

The core is not safe for threads; the desk holds one lock around it, and every call is short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from tenure.protocol.control_messages import Drain, HelloRefused, Judged, Order, Registered, SayHello, Stop, StopReason
from tenure.protocol.worker_messages import Cause, Heartbeat
from tenure.workers.inputs import BeatTaken, DrainAsked, Ordered, Reconnected, Taken
from tenure.workers.launch_book import LaunchBook
from tenure.workers.launch_inputs import CancelTried, ClearTried, Found, Launched, NotLaunched, Sighted
from tenure.workers.launch_intake import LaunchIntake
from tenure.workers.launch_membership import LaunchMembership
from tenure.workers.launch_rounds import LaunchRounds
from tenure.workers.launch_stages import TOLD, LaunchStage
from tenure.workers.launch_stops import LaunchStops
from tenure.workers.rights import Rights

if TYPE_CHECKING:
    from tenure.clock import Entropy
    from tenure.workers.launch_actions import LaunchAction
    from tenure.workers.launch_inputs import CrewInput, LaunchInput
    from tenure.workers.launch_intake import ParentProfile

ROUND_MS: Final = 100
IDLE_ROUND_MS: Final = 1_000


@final
class Launches:
    """The state machine. See `desk.Core`."""

    def __init__(self, profile: ParentProfile, entropy: Entropy) -> None:
        self._profile = profile
        self._epoch = 0
        self._round_due_ms = 0
        self._book = LaunchBook()
        self._rights = Rights(profile.generation)
        self._stops = LaunchStops(self._book, profile.timeout_ms)
        self._intake = LaunchIntake(profile, self._book, self._stops, entropy)
        self._rounds = LaunchRounds(self._book, self._intake, self._stops)
        self._membership = LaunchMembership(profile, self._book, self._intake, self._stops)

    def handle(self, happened: LaunchInput, now_ms: int) -> None:
        """Apply one input."""
        match happened:
            case Taken():
                self._intake.take(happened, now_ms)
            case Ordered():
                self._obey(happened, now_ms)
            case BeatTaken():
                self._rights.taken(happened.sequence, happened.echo, self._epoch)
            case Reconnected():
                self._membership.reconnected(now_ms)
                self._rounds.repeat_all(now_ms)
            case Found():
                for left in happened.launches:
                    launch = self._intake.launch_of(left.order, now_ms)
                    launch.handle = left.handle
                    self._intake.adopt(launch)
            case DrainAsked():
                self._membership.asked_to_drain(now_ms, at_once=happened.at_once)
            case _:
                self._hear(happened, now_ms)

    def collect(self, now_ms: int) -> list[LaunchAction]:
        """Do what is due, and hand out the actions decided since the last call."""
        if now_ms >= self._round_due_ms:
            self._membership.round(self._rights.echoed_ms, now_ms)
            self._rounds.round(now_ms)
            self._round_due_ms = now_ms + (ROUND_MS if len(self._book) else IDLE_ROUND_MS)
        elif len(self._book):
            self._round_due_ms = min(self._round_due_ms, now_ms + ROUND_MS)
        actions, self._book.actions = self._book.actions, []
        return actions

    def due_ms(self) -> int:
        """When `collect` wants to be called although nothing happened."""
        return self._round_due_ms

    def pulse(self, now_ms: int) -> Heartbeat:
        """The heartbeat that is about to be sent; `now_ms` must have been read before."""
        return Heartbeat(
            generation=self._profile.generation,
            sequence=self._rights.next_beat(now_ms),
            window=self.window(now_ms),
            held=self._book.held(),
            remaining_ms=self._profile.lifetime.remaining_ms(now_ms),
        )

    def shortest_ttl_ms(self) -> int:
        """The smallest ttl of all launches and of the worker itself."""
        own_ms = self._profile.hello.ttl_ms
        return min((launch.ttl_ms for launch in self._book.launches() if launch.is_unfinished), default=own_ms)

    def window(self, now_ms: int) -> int:
        """How many assignments the worker wants in hand: one per slot, and none while it pauses or leaves."""
        takes = not self._intake.closed and not self._rounds.pauses(now_ms)
        return self._profile.hello.slots if takes else 0

    def room(self, now_ms: int) -> int:
        """How many more assignments should be taken now."""
        return max(self.window(now_ms) - self._book.unfinished(), 0)

    def counts(self) -> dict[str, int]:
        """How many launches ended in which way."""
        return dict(self._book.counts)

    # --- inputs ---------------------------------------------------------------------------------

    def _hear(self, happened: CrewInput, now_ms: int) -> None:
        launch = self._book.find(happened.key)
        if launch is None:
            return
        launch.busy = False
        match happened:
            case Launched(_, handle):
                self._rounds.launched(launch, handle, now_ms)
            case NotLaunched():
                self._rounds.not_launched(launch, happened, now_ms)
            case Sighted(_, sighting):
                if launch.is_unfinished:
                    self._stops.sighted(launch, sighting, now_ms)
            case CancelTried():
                self._stops.forced(launch, now_ms, done=happened.done)
            case ClearTried():
                self._rounds.cleared(launch, now_ms, done=happened.done)

    def _obey(self, happened: Ordered, now_ms: int) -> None:
        if happened.control.epoch < self._epoch:
            return
        self._epoch = happened.control.epoch
        for order in happened.control.orders:
            self._obey_one(order, now_ms)

    def _obey_one(self, order: Order, now_ms: int) -> None:
        match order:
            case Judged():
                self._judged(order, now_ms)
            case Stop():
                self._stop(order, now_ms)
            case Registered():
                if self._membership.registered(order, now_ms):
                    self._rounds.repeat_all(now_ms)
            case HelloRefused():
                self._membership.refused(order)
            case SayHello():
                self._membership.say_hello(now_ms)
            case Drain():
                self._membership.ordered_to_drain(now_ms)
            case _:
                pass  # answers to claims and checkpoints, which are the executors'

    def _judged(self, order: Judged, now_ms: int) -> None:
        launch = self._book.find((order.task_id, order.fence))
        if launch is None or launch.stage not in TOLD or launch.binding.nonce != order.nonce:
            return
        if launch.handle is None:
            self._book.forget(launch)
        else:
            launch.move(LaunchStage.CLEARING)
            launch.due_ms, launch.failures = now_ms, 0

    def _stop(self, order: Stop, now_ms: int) -> None:
        key = (order.task_id, order.fence)
        launch = self._book.find(key)
        if launch is not None:
            launch.is_superseded = launch.is_superseded or order.reason is StopReason.SUPERSEDED
            self._stops.stop(launch, Cause.CANCELLED, now_ms)
        elif not self._book.knows(key):
            self._intake.stop_early(key)
