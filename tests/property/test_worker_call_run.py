"""Whatever happens to a call with files in whatever order: the core hears of one end, and nothing is left behind."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.broker.base import LogChunk
from tenure.protocol.envelope import CallWork
from tenure.protocol.worker_messages import Failure, FailureKind, Outcome
from tenure.testing import ManualClock
from tenure.workers.actions import StartCall
from tenure.workers.call_run import CallRun, CallStep
from tenure.workers.calls import Call
from tenure.workers.freight import Freight, StoreAddress
from tenure.workers.gear import Gear
from tenure.workers.inputs import CallEnded, CheckpointSaved, Input, Recalled, TreeEnded
from tenure.workers.launching import Launch
from tenure.workers.options import WorkerOptions
from tenure.workers.provision import BARE
from tests.fixtures_command_run import BINDING, INPUTS, SlowPorter
from tests.waiting import wait_until

_BAD = Outcome(failure=Failure(kind=FailureKind.EXCEPTION, message="no"))
_PROBLEMS = ("", "", "", "artifact_store_full", "forbidden_path", "no_store")
_JOB_ENDS = st.tuples(st.just("job ends"), st.integers(0, 3), st.sampled_from(_PROBLEMS))
_EVENTS = st.one_of(
    st.sampled_from([("stop",), ("late stop",), ("recall",), ("tree ends",), ("porter dies",)]),
    st.just(("read",)),
    st.tuples(st.just("saved"), st.sampled_from(["a", "b"])),
    st.tuples(st.just("ends"), st.sampled_from(["well", "well", "badly", "dropped"])),
    _JOB_ENDS,
)


def _print_nothing(task_id: str, fence: int, chunks: Sequence[LogChunk]) -> None:
    """Nobody reads it."""


class Story:
    """A call, the child that has it, and the slot's tree."""

    def __init__(self, folder: Path, *, inputs: bool, takes: bool, leaves: bool) -> None:
        self.porter = SlowPorter()
        self.folder = folder / "one"
        self.freight = Freight(lambda _: self.porter, StoreAddress("memory:"), ManualClock())
        launch = Launch(WorkerOptions(state_dir=folder), folder, -1)
        work = CallWork(handler="m:f", files=True)
        action = StartCall(0, 1, BINDING, work, INPUTS if inputs else BARE)
        self.given: list[Call] = []
        self.takes = takes
        self.leaves = leaves
        self.run = CallRun(action, Gear(launch, self.freight, _print_nothing), self.folder, self.give)
        self.has_ended = False
        self.tree_is_there = True
        self.was_stopped = False
        self.inputs: list[Input] = self.run.begin()

    def give(self, call: Call) -> bool:
        self.given.append(call)
        if self.leaves:
            (self.folder / "outputs" / "x").write_text("x")
        return self.takes

    def happen(self, name: str, *details: object) -> None:
        match name, details:
            case "stop", _ if not self.ends():
                self.was_stopped = True
                self.inputs += self.run.stop() or []
            case "late stop", _ if not self.ends():
                self.was_stopped = self.was_stopped or self.run._step not in {CallStep.RUNNING, CallStep.COLLECTING}
                self.inputs += self.run.stop(is_late=True) or []
            case "tree ends", _ if self.tree_is_there:
                self.tree_is_there = False
                self.inputs += self.run.tree_ended(TreeEnded(0, gone=True))
            case "porter dies", _:
                self.porter.die()
            case "job ends", [int(index), str(problem)] if self.porter.jobs:
                numbers = list(self.porter.jobs)
                self.porter.finish(numbers[index % len(numbers)], problem)
            case _ if self.given and self.takes and not self.has_ended and self.tree_is_there:
                self._happen_to_call(name, *details)
            case _:
                self.inputs += self.freight.read()

    def _happen_to_call(self, name: str, *details: object) -> None:
        match name, details:
            case "recall", _:
                self.has_ended = True
                self.run.recalled()
                self.inputs.append(Recalled(0, [1]))
            case "saved", [str(checkpoint)]:
                self.run.saved(checkpoint)
            case "ends", [str(how)]:
                self.has_ended = True
                outcome = {"well": Outcome(value="1"), "badly": _BAD}.get(how)
                self.inputs += self.run.passed(CallEnded(0, 1, outcome, 5))
            case _:
                self.inputs += self.freight.read()

    def ends(self) -> list[Input]:
        """What ends the call for the core."""
        return [one for one in self.inputs if isinstance(one, CallEnded | TreeEnded | Recalled)]

    def come_to_rest(self) -> None:
        for _ in range(12):
            self.porter.die()
            self.inputs += self.freight.read()
        if self.tree_is_there:
            self.happen("tree ends")
        for _ in range(12):
            self.porter.die()
            self.inputs += self.freight.read()


@settings(max_examples=300, deadline=None)
@given(
    events=st.lists(_EVENTS, min_size=3, max_size=14),
    how=st.fixed_dictionaries(
        {"inputs": st.booleans(), "leaves": st.booleans(), "takes": st.sampled_from([True, True, True, False])}
    ),
)
def test_one_end_comes_out_whatever_happens(events: list[tuple[object, ...]], how: dict[str, bool]) -> None:
    with TemporaryDirectory(prefix="tenure-story-") as folder:
        play(Story(Path(folder), **how), events)


def play(story: Story, events: list[tuple[object, ...]]) -> None:
    for name, *details in events:
        story.happen(str(name), *details)
    story.come_to_rest()

    assert [type(one) for one in story.inputs if isinstance(one, TreeEnded)] == [TreeEnded], "the tree ends once"
    first = story.inputs.index(story.ends()[0])
    assert [one for one in story.inputs[first:] if isinstance(one, CallEnded)] in ([], [story.ends()[0]])
    assert not [one for one in story.inputs[first:] if isinstance(one, CheckpointSaved)]
    assert story.porter.jobs == {}
    results = [one for one in story.ends() if isinstance(one, CallEnded) and one.outcome is not None]
    for one in results:
        if one.outcome is not None and one.outcome.failure is None:
            assert (one.outputs is not None) == story.leaves, "no result comes without its files"
    if story.given and not story.was_stopped and story.has_ended:
        assert not isinstance(story.ends()[0], TreeEnded), "a call that came to its end is not lost with its child"
    wait_until(lambda: not story.folder.exists(), "the folder is cleared away")
