"""Whatever happens to a command in whatever order: one `TreeEnded`, nothing after it, and nothing left behind."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.protocol.envelope import CommandWork
from tenure.workers.inputs import CheckpointSaved, TreeEnded
from tenure.workers.provision import BARE
from tests.fixtures_command_run import INPUTS, Trial

_PROBLEMS = ("", "", "", "artifact_store_full", "forbidden_path", "no_store")
_EVENTS = st.one_of(
    st.sampled_from([("stop",), ("late stop",), ("runner dies",), ("porter dies",)]),
    st.sampled_from([("output",), ("read",), ("read",)]),
    st.tuples(st.just("told"), st.sampled_from(["a", "b", "c"])),
    st.tuples(st.just("program ends"), st.sampled_from([0, 0, 1, -9])),
    st.tuples(st.just("job ends"), st.integers(0, 3), st.sampled_from(_PROBLEMS)),
)


class Story:
    """A trial with a runner that reports one end of what it was given, and none of what it was not."""

    def __init__(self, folder: Path, *, inputs: bool, form: str) -> None:
        work = CommandWork(argv=("true",), form="lines" if form == "lines" else "folder")
        self.trial = Trial(folder, INPUTS if inputs else BARE, work)
        self.trial.begin()
        self.reported = False

    def happen(self, name: str, *details: object) -> None:
        trial = self.trial
        runs = bool(trial.host.orders) and not self.reported
        match name, details:
            case ("stop" | "late stop") as how, _ if not trial.run.is_over:
                trial.stop(is_late=how == "late stop")
            case "runner dies", _:
                self.reported = self.reported or runs
                trial.lose_runner()
            case "porter dies", _:
                trial.porter.die()
            case "output", _ if runs:
                trial.leave_output()
            case "told", [str(checkpoint)] if runs:
                trial.tell(f'{{"checkpoint": "{checkpoint}"}}', '{"fraction": 0.5}')
            case "program ends", [int(code)] if runs:
                self.reported = True
                reason = "stop" if trial.host.stops and code else "exit"
                trial.end_program(code, reason)
            case "job ends", [int(index), str(problem)] if trial.porter.jobs:
                numbers = list(trial.porter.jobs)
                trial.porter.finish(numbers[index % len(numbers)], problem)
            case _:
                trial.read()

    def come_to_rest(self) -> None:
        """Everything that is still outstanding ends."""
        for _ in range(16):
            self.happen("program ends", 0)
            self.trial.porter.die()
            self.trial.read()


@settings(max_examples=400, deadline=None)
@given(
    events=st.lists(_EVENTS, min_size=5, max_size=16), inputs=st.booleans(), form=st.sampled_from(["folder", "lines"])
)
def test_one_end_comes_out_whatever_happens(events: list[tuple[object, ...]], inputs: bool, form: str) -> None:  # noqa: FBT001 - hypothesis passes by keyword
    with TemporaryDirectory(prefix="tenure-story-") as folder:
        play(Story(Path(folder), inputs=inputs, form=form), events)


def play(story: Story, events: list[tuple[object, ...]]) -> None:
    trial = story.trial
    for name, *details in events:
        story.happen(str(name), *details)
        assert len(trial.seen.ends()) == int(trial.run.is_over)
    story.come_to_rest()

    assert len(trial.seen.ends()) == 1
    after = trial.inputs[trial.inputs.index(trial.seen.end()) + 1 :]
    assert not [one for one in after if isinstance(one, TreeEnded | CheckpointSaved)]
    assert trial.porter.jobs == {}
    assert [name for name, _ in trial.host.cleared].count("one") == 1
    assert trial.log_ends == 1
    if trial.seen.end().outputs is not None:
        outcome = trial.seen.end().outcome
        assert outcome is not None
        assert outcome.failure is None
