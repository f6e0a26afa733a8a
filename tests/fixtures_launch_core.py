"""The parent's core with a clock in the hands of the test, and short names for what happens to it."""

from __future__ import annotations

from typing import Any, TypeVar

from tenure.broker.base import EntryId, Handout
from tenure.launchers.base import Handle, Phase, Sighting
from tenure.protocol.assignment import Assignment, Ticket
from tenure.protocol.control_messages import (
    Control,
    Drain,
    Judged,
    Order,
    Registered,
    Stop,
    StopReason,
    Verdict,
)
from tenure.protocol.envelope import CallWork, Envelope, Scope, digest, encode
from tenure.protocol.worker_messages import ExecutorGone, Hello
from tenure.testing import SeededEntropy
from tenure.workers.actions import Tell
from tenure.workers.inputs import BeatTaken, Ordered, Taken
from tenure.workers.launch_actions import CancelLaunch, LaunchAction, ProbeLaunch, StartLaunch
from tenure.workers.launch_inputs import CancelTried, Key, Launched, LaunchInput, NotLaunched, Sighted
from tenure.workers.launch_intake import ParentProfile
from tenure.workers.launches import Launches

_A = TypeVar("_A")
TTL_MS = 30_000
TIMEOUT_MS = 60_000


class ParentCore:
    """Launches, and what they decided."""

    def __init__(self, slots: int = 2, *, registered: bool = True) -> None:
        hello = Hello(slots=slots, capabilities=("default",), ttl_ms=TTL_MS)
        profile = ParentProfile(hello, 7, "main", "lab", "parent", TIMEOUT_MS)
        self.launches = Launches(profile, SeededEntropy(1))
        self.now_ms = 1_000_000
        self.actions: list[LaunchAction] = []
        self.sequence = 0
        self.orders = Orders(self)
        self.seen = Seen(self)
        self.feed()
        if registered:
            self.orders.register()

    # --- what happens ---------------------------------------------------------------------------

    def feed(self, *inputs: LaunchInput) -> list[LaunchAction]:
        """Let these happen now; what was decided at that."""
        for one in inputs:
            self.launches.handle(one, self.now_ms)
        decided = self.launches.collect(self.now_ms)
        self.actions.extend(decided)
        return decided

    def pass_ms(self, duration_ms: int) -> list[LaunchAction]:
        """Let time pass in steps of at most 50 ms, looking at what is due."""
        decided: list[LaunchAction] = []
        until_ms = self.now_ms + duration_ms
        while self.now_ms < until_ms:
            self.now_ms = min(self.now_ms + 50, until_ms)
            decided.extend(self.feed())
        return decided

    def take(self, **said: Any) -> Key:
        """An assignment of a new task is read."""
        ticket, envelope = self.ticket(**said)
        return self.hand_out(ticket, envelope)

    def hand_out(self, ticket: Ticket, envelope: bytes, *, is_directed: bool = False) -> Key:
        assignment = Assignment(ticket=ticket, envelope=envelope)
        self.feed(Taken([Handout(EntryId(1, ticket.fence), assignment, is_directed)], self.now_ms))
        return ticket.task_id, ticket.fence

    def ticket(self, task_id: str = "", **said: Any) -> tuple[Ticket, bytes]:
        """A new assignment, of a new task unless it is said of which one."""
        self.sequence += 1
        raw = encode(Envelope(work=CallWork(handler="m:f"), scope=Scope(world="w", run="r"), **said))
        ticket = Ticket(
            task_id=task_id or f"{self.sequence:026d}",
            attempt=1,
            fence=self.sequence,
            digest=digest(raw),
            epoch=1,
            start="granted",
            ttl_ms=TTL_MS,
        )
        return ticket, raw

    def launched(self, key: Key) -> Handle:
        """The substrate takes it."""
        handle = handle_of(key)
        self.feed(Launched(key, handle))
        return handle

    def refused(self, key: Key, *, is_known: bool = True) -> list[LaunchAction]:
        return self.feed(NotLaunched(key, "no room", is_known=is_known))

    def sighted(self, key: Key, phase: Phase, **said: Any) -> list[LaunchAction]:
        """The substrate says so when it is asked next."""
        for _ in range(1_000):
            if any(isinstance(each, ProbeLaunch) and each.key == key for each in self.actions):
                break
            self.pass_ms(50)
        else:
            raise AssertionError(f"the substrate is not asked about {key}")
        self.actions = [each for each in self.actions if not (isinstance(each, ProbeLaunch) and each.key == key)]
        return self.feed(Sighted(key, Sighting(phase, **said)))

    def let_run(self, duration_ms: int, phase: Phase = Phase.RUNNING, *, can_force: bool = True) -> None:
        """Let time pass while the substrate answers all questions with that phase, and ends nothing when told to."""
        asked = [each.key for each in self.seen.all(ProbeLaunch)]
        until_ms = self.now_ms + duration_ms
        while self.now_ms < until_ms:
            self.actions = [each for each in self.actions if not isinstance(each, ProbeLaunch)]
            self.feed(*(Sighted(key, Sighting(phase)) for key in asked))
            decided = self.pass_ms(50)
            asked = [each.key for each in decided if isinstance(each, ProbeLaunch)]
            self.feed(*(CancelTried(each.key, done=can_force) for each in decided if isinstance(each, CancelLaunch)))

    def beat(self) -> None:
        """Send a heartbeat; the broker takes it, and the coordinator echoes it."""
        beat = self.launches.pulse(self.now_ms)
        self.feed(BeatTaken(beat.sequence, f"1:7:{beat.sequence}"))

    def running(self) -> Key:
        """A new launch that runs."""
        key = self.take()
        self.launched(key)
        self.sighted(key, Phase.RUNNING)
        return key


class Orders:
    """The coordinator's part."""

    def __init__(self, core: ParentCore) -> None:
        self._core = core

    def order(self, *orders: Order, epoch: int = 1) -> list[LaunchAction]:
        return self._core.feed(Ordered(Control(epoch=epoch, orders=orders)))

    def register(self) -> None:
        """Answer the newest hello."""
        self.order(Registered(generation=7, ordinal=self._core.seen.told(Hello)[-1].ordinal))

    def stop(self, key: Key, reason: StopReason = StopReason.CANCELLED) -> list[LaunchAction]:
        return self.order(Stop(task_id=key[0], fence=key[1], reason=reason))

    def drain(self) -> list[LaunchAction]:
        return self.order(Drain())

    def judge(self, key: Key) -> list[LaunchAction]:
        """Answer what was told of it."""
        nonce = self._core.seen.gone(key)[-1].binding.nonce
        return self.order(Judged(task_id=key[0], fence=key[1], nonce=nonce, verdict=Verdict.ACCEPTED))


class Seen:
    """What was decided so far."""

    def __init__(self, core: ParentCore) -> None:
        self._core = core

    def all(self, kind: type[_A]) -> list[_A]:
        actions: list[object] = [*self._core.actions]
        return [action for action in actions if isinstance(action, kind)]

    def told(self, kind: type[_A]) -> list[_A]:
        return [action.event for action in self.all(Tell) if isinstance(action.event, kind)]

    def gone(self, key: Key) -> list[ExecutorGone]:
        """What was told of the end of that one's executor."""
        told = self.told(ExecutorGone)
        return [event for event in told if (event.binding.task_id, event.binding.fence) == key]

    def started(self) -> list[Key]:
        return [action.key for action in self.all(StartLaunch)]

    def held(self) -> dict[Key, str]:
        """What the next heartbeat lists."""
        return {(each.task_id, each.fence): each.state for each in self._core.launches.pulse(self._core.now_ms).held}


def handle_of(key: Key) -> Handle:
    return Handle(launcher="test", name=f"tenure-{key[0]}-f{key[1]}")
