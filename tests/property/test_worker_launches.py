"""The parent's core under whatever order of events: it forgets nothing, and launches nothing that nobody sees to."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tenure.launchers.base import Handle, Phase, Sighting
from tenure.protocol.control_messages import Judged, Registered, SayHello, Stop, StopReason, Verdict
from tenure.protocol.worker_messages import Cause, ExecutorGone, Hello, Leaving
from tenure.workers.actions import Leave, Tell
from tenure.workers.inputs import DrainAsked, Reconnected
from tenure.workers.launch_actions import (
    CancelLaunch,
    ClearLaunch,
    CrewAction,
    DropLaunch,
    LaunchAction,
    NoteHandle,
    ProbeLaunch,
    StartLaunch,
)
from tenure.workers.launch_inputs import CancelTried, ClearTried, CrewInput, Key, Launched, NotLaunched, Sighted
from tenure.workers.launch_stages import TOLD, LaunchStage
from tests.fixtures_launch_core import ParentCore, handle_of

SLOTS = 3
CREW = (StartLaunch, ProbeLaunch, CancelLaunch, ClearLaunch)


class ParentMachine(RuleBasedStateMachine):
    """A parent, a substrate and a coordinator, each of which may do anything at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.core = ParentCore(SLOTS)
        self.asked: list[CrewAction] = []
        self.taken: list[Key] = []
        self.there: dict[Key, Phase] = {}
        """What the substrate has, launched at least once."""
        self.told: dict[Key, ExecutorGone] = {}
        self.unseen: set[Key] = set()
        """Told of although the substrate could not be asked, so that more may be known later."""
        self.judged: set[Key] = set()
        self.dropped: set[Key] = set()
        self.left = 0

    # --- events ---------------------------------------------------------------------------------

    @rule(duration_ms=st.sampled_from([10, 100, 1_000, 5_000, 61_000]))
    def time_passes(self, duration_ms: int) -> None:
        self.core.now_ms += duration_ms
        self._see(self.core.feed())

    @precondition(lambda self: self.core.launches.room(self.core.now_ms) > 0)
    @rule(again=st.booleans())
    def an_assignment_comes(self, *, again: bool) -> None:
        ticket, envelope = self.core.ticket()
        key = ticket.task_id, ticket.fence
        self.taken.append(key)
        for _ in range(2 if again else 1):
            before = len(self.core.actions)
            self.core.hand_out(ticket, envelope)
            self._see(self.core.actions[before:])

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def the_launcher_answers(self, data: st.DataObject) -> None:
        action = self.asked.pop(data.draw(st.integers(0, len(self.asked) - 1)))
        self._see(self.core.feed(self._answer(action, data)))

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), reason=st.sampled_from(list(StopReason)))
    def it_is_to_stop(self, data: st.DataObject, reason: StopReason) -> None:
        task_id, fence = data.draw(st.sampled_from(self.taken))
        self._see(self.core.orders.order(Stop(task_id=task_id, fence=fence, reason=reason)))

    @precondition(lambda self: self.told)
    @rule(data=st.data())
    def the_coordinator_judges(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(list(self.told)))
        nonce = self.told[key].binding.nonce
        if self._stage(key) in TOLD:
            self.judged.add(key)
        self._see(
            self.core.orders.order(
                Judged(task_id=key[0], fence=key[1], nonce=nonce, verdict=data.draw(st.sampled_from(list(Verdict))))
            )
        )

    @rule()
    def the_broker_is_back(self) -> None:
        self._see(self.core.feed(Reconnected()))

    @rule()
    def the_coordinator_asks_who_that_is(self) -> None:
        self._see(self.core.orders.order(SayHello()))
        ordinal = self.core.seen.told(Hello)[-1].ordinal
        self._see(self.core.orders.order(Registered(generation=7, ordinal=ordinal)))

    @rule(at_once=st.booleans())
    def it_is_asked_to_end(self, *, at_once: bool) -> None:
        self._see(self.core.feed(DrainAsked(at_once=at_once)))

    # --- what must hold -------------------------------------------------------------------------

    @invariant()
    def one_thing_at_a_time_is_asked_about_each(self) -> None:
        assert not [key for key, times in Counter(action.key for action in self.asked).items() if times > 1]

    @invariant()
    def everything_in_hand_is_listed_until_it_is_answered(self) -> None:
        held = self.core.seen.held()
        for key in self.taken:
            assert (key in held) == (key not in self.judged)

    @invariant()
    def slots_are_never_exceeded(self) -> None:
        assert 0 <= self.core.launches.room(self.core.now_ms) <= SLOTS
        assert sum(state == "launched" for state in self.core.seen.held().values()) <= SLOTS

    def _see(self, decided: list[LaunchAction]) -> None:
        for action in decided:
            match action:
                case Tell(ExecutorGone() as event):
                    self._hear(event)
                case Tell(Leaving(gone=True)):
                    assert set(self.taken) == self.judged, "it says that nothing is in its hand, and something is"
                case Leave():
                    self.left += 1
                    assert self.left == 1
                case DropLaunch(key):
                    assert key in self.judged, "forgotten before it was answered"
                    self.dropped.add(key)
                case NoteHandle(key, handle):
                    assert handle == handle_of(key)
                case _:
                    if isinstance(action, CREW):
                        assert action.key not in self.dropped
                        self.asked.append(action)

    def _hear(self, event: ExecutorGone) -> None:
        key = event.binding.task_id, event.binding.fence
        before = self.told.get(key, event)
        assert before == event or key in self.unseen, "two things are told of one launch"
        assert event.proved or not before.proved, "a proof is taken back"
        self.told[key] = event
        if self._stage(key) is not LaunchStage.OVER:
            assert not event.proved
            self.unseen.add(key)
        # What may be there must have been looked for in vain, unless its fate was never known.
        assert not event.proved or self.there.get(key) is not Phase.RUNNING

    def _stage(self, key: Key) -> LaunchStage | None:
        launch = self.core.launches._book.find(key)
        return launch.stage if launch is not None else None

    def _answer(self, action: CrewAction, data: st.DataObject) -> CrewInput:
        key = action.key
        match action:
            case StartLaunch():
                outcome = data.draw(st.sampled_from(["launched", "launched", "refused", "unknown", "lost reply"]))
                if outcome in {"launched", "lost reply"}:
                    self.there.setdefault(key, Phase.RUNNING)
                if outcome == "launched":
                    return Launched(key, handle_of(key))
                # It may also refuse what an earlier try has launched: a quota that this one uses up.
                return NotLaunched(key, "no", is_known=outcome == "refused")
            case ProbeLaunch(_, handle):
                return Sighted(key, self._sighting(handle, key, data))
            case CancelLaunch():
                done = data.draw(st.booleans())
                if done and data.draw(st.booleans()):
                    self.there[key] = Phase.ENDED
                return CancelTried(key, done=done)
            case ClearLaunch():
                return ClearTried(key, done=data.draw(st.booleans()))

    def _sighting(self, handle: Handle, key: Key, data: st.DataObject) -> Sighting:
        assert handle == handle_of(key)
        if data.draw(st.integers(0, 3)) == 0:
            self.there[key] = Phase.ENDED
        if self.there[key] is Phase.ENDED:
            phase = data.draw(st.sampled_from([Phase.ENDED, Phase.MISSING]))
            return Sighting(
                phase, data.draw(st.sampled_from([None, Cause.OOM_KILLED])), proved=data.draw(st.booleans())
            )
        return Sighting(data.draw(st.sampled_from([Phase.STARTING, Phase.RUNNING, Phase.UNKNOWN])))


TestParent = ParentMachine.TestCase
TestParent.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
