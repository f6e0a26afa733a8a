"""The worker's core: a state machine without I/O. Inputs go in with the time, actions come out, nothing else happens.

What may be relied on, whatever order inputs come in: no (task, fence) is started twice; a `granted` task is started
only after a grant for the nonce that this agent drew; every handout is in the heartbeats from the input that brought
it until its verdict; nothing is left running when its right to run has passed (see `rights.py`); a result is told until
a verdict comes. `tests/property/test_worker_claims.py` searches for counterexamples.

The core is not safe for threads; the agent holds one lock around it, and every call is short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from tenure.protocol.control_messages import (
    Drain,
    Granted,
    HelloRefused,
    Judged,
    Kept,
    Order,
    Refused,
    Registered,
    SayHello,
    Stop,
)
from tenure.protocol.envelope import CallWork
from tenure.protocol.worker_messages import Heartbeat
from tenure.workers.answers import Answers
from tenure.workers.conclusions import Ending, finish, stopped
from tenure.workers.floor import Floor
from tenure.workers.holds import Hold, Stage
from tenure.workers.inputs import (
    BeatTaken,
    CallEnded,
    CheckpointSaved,
    ChildReady,
    DrainAsked,
    HandlerSeen,
    Input,
    Ordered,
    ProgressMade,
    Recalled,
    Reconnected,
    Restored,
    Taken,
    TreeEnded,
)
from tenure.workers.intake import Intake, IntakeParts
from tenure.workers.ledger import Ledger
from tenure.workers.membership import Membership, Parts, Profile
from tenure.workers.pace import Pace
from tenure.workers.rights import Rights
from tenure.workers.rounds import IDLE_ROUND_MS, ROUND_MS, Rounds
from tenure.workers.stopping import Stopper

if TYPE_CHECKING:
    from tenure.clock import Entropy
    from tenure.protocol.worker_messages import Finished, Released
    from tenure.workers.actions import Action


@final
class Claims:
    """The state machine. `handle` takes an input, `collect` answers the actions that are due."""

    def __init__(self, profile: Profile, entropy: Entropy) -> None:
        self._profile = profile
        self._round_due_ms = 0
        self._ledger = Ledger()
        self._rights = Rights(profile.generation)
        self._pace = Pace(profile.hello.slots)
        self._floor = Floor(profile.hello.slots, self._ledger, self._pace, self._rights)
        self._stopper = Stopper(self._ledger, self._floor)
        self._rounds = Rounds(self._ledger, self._floor, self._rights, self._stopper)
        intake_parts = IntakeParts(self._ledger, self._rights, self._stopper)
        self._intake = Intake(intake_parts, entropy, profile.secrets, profile.lifetime)
        self._answers = Answers(self._ledger, self._rights, self._intake, self._stopper)
        parts = Parts(self._ledger, self._floor, self._stopper, self._intake, self._answers, self._rights)
        self._membership = Membership(profile, parts)

    # --- what the agent asks --------------------------------------------------------------------

    def handle(self, happened: Input, now_ms: int) -> None:
        """Apply one input."""
        match happened:
            case CallEnded():
                self._call_ended(happened, now_ms)
            case Taken():
                self._intake.take(happened, now_ms)
            case Ordered():
                self._obey(happened, now_ms)
            case ProgressMade() | CheckpointSaved():
                self._heard_of(happened, now_ms)
            case ChildReady(slot):
                self._floor.child_ready(self._floor.slots[slot], now_ms)
            case Recalled():
                self._stopper.recalled(happened, now_ms)
                self._membership.give_back(now_ms)
            case TreeEnded():
                self._tree_ended(happened, now_ms)
            case _:
                self._handle_rare(happened, now_ms)

    def collect(self, now_ms: int) -> list[Action]:
        """Place what may start, do what is due, and hand out the actions decided since the last call."""
        if now_ms >= self._round_due_ms:
            self._membership.round(now_ms)
            self._rounds.round(now_ms)
            self._answers.repeat(now_ms)
        if self._ledger.ready:
            self._floor.pump(now_ms)
            self._rounds.give_back_blocked(now_ms)
        is_busy = self._ledger.unfinished or self._intake.closed or self._profile.hello.executor_of is not None
        pause_ms = ROUND_MS if is_busy else IDLE_ROUND_MS
        if now_ms >= self._round_due_ms or self._round_due_ms > now_ms + pause_ms:
            self._round_due_ms = now_ms + pause_ms
        actions, self._ledger.actions = self._ledger.actions, []
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
            held=tuple(hold.held() for hold in self._ledger.holds()),
            remaining_ms=self._profile.lifetime.remaining_ms(now_ms),
        )

    def shortest_ttl_ms(self) -> int:
        """The smallest ttl of all holds and of the worker itself."""
        own_ms = self._profile.hello.ttl_ms
        return min((hold.ttl_ms for hold in self._ledger.holds()), default=own_ms)

    def window(self, now_ms: int) -> int:
        """How many assignments the worker wants in hand."""
        takes = self._profile.hello.executor_of is None and not self._intake.closed
        return self._floor.window(now_ms) if takes else 0

    def room(self, now_ms: int) -> int:
        """How many more assignments should be taken now: none while a wide window is nearly full.

        Many small reads cost more than they bring, as long as every slot has something to do.
        """
        window = self.window(now_ms)
        room = max(window - self._ledger.unfinished, 0)
        return room if self._ledger.unfinished < self._profile.hello.slots or room * 4 >= window else 0

    def counts(self) -> dict[str, int]:
        """How many holds ended in which way."""
        return dict(self._ledger.counts)

    # --- inputs ---------------------------------------------------------------------------------

    def _handle_rare(
        self, happened: Restored | HandlerSeen | BeatTaken | Reconnected | DrainAsked, now_ms: int
    ) -> None:
        match happened:
            case BeatTaken():
                self._rounds.lapse(now_ms)
                self._rights.taken(happened.sequence, happened.echo, self._intake.epoch)
                self._floor.push_deadlines()
            case HandlerSeen():
                slot = self._floor.slots[happened.slot]
                self._floor.handler_seen(slot, happened.handler, is_async=happened.is_async)
            case Reconnected():
                self._membership.reconnected(now_ms)
                self._answers.repeat(now_ms, at_once=True)
            case Restored():
                for report in happened.reports:
                    self._restore(report, now_ms)
            case DrainAsked():
                self._membership.asked_to_drain(now_ms, at_once=happened.at_once)

    def _obey(self, happened: Ordered, now_ms: int) -> None:
        if happened.control.epoch < self._intake.epoch:
            return
        self._intake.epoch = happened.control.epoch
        for order in happened.control.orders:
            self._obey_one(order, now_ms)

    def _obey_one(self, order: Order, now_ms: int) -> None:
        match order:
            case Judged():
                self._answers.judged(order)
            case Granted():
                self._answers.granted(order, now_ms)
            case Refused():
                self._answers.refused(order, now_ms)
            case Stop():
                self._answers.stop(order, now_ms)
            case Kept():
                self._answers.checkpoints.kept(order, now_ms)
            case _:
                self._obey_about_worker(order, now_ms)

    def _obey_about_worker(self, order: SayHello | Registered | HelloRefused | Drain, now_ms: int) -> None:
        match order:
            case SayHello():
                self._membership.say_hello(now_ms)
            case Registered():
                self._membership.registered(order, now_ms)
            case HelloRefused():
                self._membership.refused(order, now_ms)
            case Drain():
                self._membership.ordered_to_drain(now_ms)

    def _call_ended(self, happened: CallEnded, now_ms: int) -> None:
        slot = self._floor.slots[happened.slot]
        hold = slot.placed.get(happened.call)
        if hold is None:
            return
        self._floor.remove(slot, hold, now_ms)
        slot.failures = 0
        if happened.outcome is None:
            stopped(self._ledger, hold, now_ms, started=True)
            return
        if isinstance(hold.work, CallWork):
            self._pace.note(hold.work.handler, happened.duration_ms)
        finish(self._ledger, hold, Ending(happened.outcome, happened.duration_ms, happened.outputs), now_ms)

    def _tree_ended(self, happened: TreeEnded, now_ms: int) -> None:
        if happened.outcome is not None:
            self._pace.note("", happened.duration_ms)
        self._stopper.tree_ended(happened, now_ms)
        self._membership.give_back(now_ms)

    def _heard_of(self, happened: ProgressMade | CheckpointSaved, now_ms: int) -> None:
        hold = self._floor.slots[happened.slot].placed.get(happened.call)
        if hold is None:
            return
        if isinstance(happened, CheckpointSaved):
            self._answers.checkpoints.saved(hold, happened, now_ms)
        else:
            hold.progress = (happened.fraction_ppm, happened.message, happened.metrics)

    def _restore(self, report: Finished | Released, now_ms: int) -> None:
        binding = report.binding
        if self._ledger.recall((binding.task_id, binding.fence)) is not None:
            return
        hold = Hold(
            call=self._ledger.next_call(),
            binding=binding,
            ttl_ms=self._profile.hello.ttl_ms,
            exclusive=False,
            base_ms=now_ms,
            after_beat=self._rights.sequence,
            stage=Stage.OVER,
            told_ms=now_ms,
            report=report,
        )
        self._ledger.add(hold)
