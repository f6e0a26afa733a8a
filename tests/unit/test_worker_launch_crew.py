"""The thread that calls the launcher: one answer for each action, whatever the launcher does, the urgent ones first."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Event, get_ident

import pytest

from tenure.errors import InvalidSettings, LaunchRefused, SubstrateUnreachable
from tenure.launchers.base import Handle, LaunchOrder, Phase, Sighting
from tenure.workers.launch_actions import CancelLaunch, ClearLaunch, CrewAction, ProbeLaunch, StartLaunch
from tenure.workers.launch_crew import LaunchCrew
from tenure.workers.launch_inputs import CancelTried, ClearTried, CrewInput, Launched, NotLaunched, Sighted
from tests.fixtures_launch_core import handle_of
from tests.stand_in import order
from tests.waiting import wait_until

ORDER = order("0" * 25 + "1")
KEY = (ORDER.ticket.task_id, ORDER.ticket.fence)
HANDLE = handle_of(KEY)


@dataclass(frozen=True)
class PlainPlan:
    name: str

    def shown(self) -> str:
        return self.name


@dataclass
class ObedientLauncher:
    """Notes what it is asked, and raises what it is told to."""

    name: str = HANDLE.launcher
    error: Exception | None = None
    calls: list[str] = field(default_factory=list[str])
    threads: set[int] = field(default_factory=set[int])
    gate: Event = field(default_factory=Event)

    def render(self, order: LaunchOrder) -> PlainPlan:
        if isinstance(self.error, InvalidSettings):
            raise self.error
        return PlainPlan(order.ticket.name)

    def launch(self, plan: PlainPlan) -> Handle:
        self._note("launch")
        return HANDLE

    def probe(self, handle: Handle) -> Sighting:
        self._note("probe")
        return Sighting(Phase.RUNNING)

    def cancel(self, handle: Handle) -> None:
        self._note("cancel")

    def clear(self, handle: Handle) -> None:
        self._note("clear")

    def close(self) -> None:
        self.calls.append("close")

    def _note(self, what: str) -> None:
        self.gate.wait(10)
        self.calls.append(what)
        self.threads.add(get_ident())
        if self.error is not None:
            raise self.error


@dataclass
class Bench:
    launcher: ObedientLauncher
    crew: LaunchCrew
    answers: list[CrewInput]

    def answer(self, *actions: CrewAction, waiting: int = 0) -> list[CrewInput]:
        """What it answers when it has all of these before it begins; so many others wait for their answer already."""
        before = len(self.answers)
        for action in actions:
            self.crew.perform(action)
        self.launcher.gate.set()
        wait_until(lambda: len(self.answers) == before + waiting + len(actions), "each has its answer")
        return self.answers[before:]


@pytest.fixture
def bench() -> Iterator[Bench]:
    launcher, answers = ObedientLauncher(), list[CrewInput]()
    crew = LaunchCrew(launcher, answers.append)
    crew.start()
    yield Bench(launcher, crew, answers)
    launcher.gate.set()
    crew.close(5)
    assert launcher.calls[-1] == "close"


def test_each_action_has_one_answer(bench: Bench) -> None:
    assert bench.answer(StartLaunch(KEY, ORDER)) == [Launched(KEY, HANDLE)]
    assert bench.answer(ProbeLaunch(KEY, HANDLE)) == [Sighted(KEY, Sighting(Phase.RUNNING))]
    assert bench.answer(CancelLaunch(KEY, HANDLE)) == [CancelTried(KEY, done=True)]
    assert bench.answer(ClearLaunch(KEY, HANDLE)) == [ClearTried(KEY, done=True)]
    assert len(bench.launcher.threads) == 1
    assert get_ident() not in bench.launcher.threads


def test_ends_come_before_starts_and_those_before_looks(bench: Bench) -> None:
    first = ProbeLaunch(KEY, HANDLE)
    late = (ClearLaunch(KEY, HANDLE), ProbeLaunch(KEY, HANDLE), StartLaunch(KEY, ORDER), CancelLaunch(KEY, HANDLE))
    bench.answer(first, *late)
    # The first may have begun before the others came.
    calls = bench.launcher.calls
    assert [call for call in calls if call != "probe"] == ["cancel", "launch", "clear"]
    assert calls[-1] == "clear"


def test_looks_that_wait_for_a_start_come_before_the_next_one(bench: Bench) -> None:
    """A substrate without room may keep each of many starts waiting, and an executor may be lost meanwhile."""
    start, look = StartLaunch(KEY, ORDER), ProbeLaunch(KEY, HANDLE)
    bench.crew.perform(start)
    wait_until(bench.crew._queue.empty, "the first start is being done")
    bench.answer(start, start, look, look, waiting=1)
    assert bench.launcher.calls == ["launch", "probe", "probe", "launch", "launch"]


def test_starts_do_not_wait_for_looks_that_came_later(bench: Bench) -> None:
    start, look = StartLaunch(KEY, ORDER), ProbeLaunch(KEY, HANDLE)
    bench.crew.perform(look)
    wait_until(bench.crew._queue.empty, "the first look is being done")
    bench.answer(look, look, start, look, start, waiting=1)
    assert bench.launcher.calls == ["probe", "launch", "probe", "probe", "probe", "launch"]


@pytest.mark.parametrize(
    ("error", "is_known"),
    [
        (LaunchRefused("no", "Go away"), True),
        (SubstrateUnreachable("away"), False),
        (InvalidSettings("an option does not fit this order"), True),
        (ZeroDivisionError("a fault of the launcher"), False),
    ],
)
def test_a_launch_that_fails_is_known_not_to_be_or_unknown(
    bench: Bench, caplog: pytest.LogCaptureFixture, error: Exception, *, is_known: bool
) -> None:
    bench.launcher.error = error
    with caplog.at_level(logging.WARNING):
        (answer,) = bench.answer(StartLaunch(KEY, ORDER))
        bench.answer(StartLaunch(KEY, ORDER))
    assert isinstance(answer, NotLaunched)
    assert answer.is_known is is_known
    assert answer.detail
    assert len(caplog.records) == 1


def test_what_cannot_be_done_is_answered_too(bench: Bench) -> None:
    bench.launcher.error = SubstrateUnreachable("away")
    assert bench.answer(CancelLaunch(KEY, HANDLE)) == [CancelTried(KEY, done=False)]
    assert bench.answer(ClearLaunch(KEY, HANDLE)) == [ClearTried(KEY, done=False)]
    bench.launcher.error = KeyError("a fault of the launcher")
    (seen,) = bench.answer(ProbeLaunch(KEY, HANDLE))
    assert isinstance(seen, Sighted)
    assert seen.sighting.phase is Phase.UNKNOWN


def test_what_another_launcher_has_launched_is_missing_and_nothing_is_proved(bench: Bench) -> None:
    """A worker may be started again with another launcher, which would take the address for one of its own."""
    other = HANDLE.model_copy(update={"launcher": "before"})
    answers = bench.answer(ProbeLaunch(KEY, other), CancelLaunch(KEY, other), ClearLaunch(KEY, other))
    (seen,) = (each.sighting for each in answers if isinstance(each, Sighted))
    assert (seen.phase, seen.proved) == (Phase.MISSING, False)
    assert seen.detail == "it was launched with before, and this worker has test now"
    assert CancelTried(KEY, done=True) in answers
    assert ClearTried(KEY, done=True) in answers
    assert bench.launcher.calls == []


def test_one_that_was_never_started_is_closed() -> None:
    launcher = ObedientLauncher()
    LaunchCrew(launcher, list[CrewInput]().append).close(1)
    assert launcher.calls == ["close"]
