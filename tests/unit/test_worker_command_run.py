"""The steps of one command: fetch, run, collect; and what becomes of it when something goes wrong in each of them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tenure.artifacts.jobs import Collect, Fetch, Save
from tenure.protocol.envelope import CommandWork, Limits
from tenure.protocol.worker_messages import FailureKind
from tenure.workers.command_run import STEPS, Step
from tenure.workers.freight import clear_away
from tenure.workers.inputs import TreeEnded
from tenure.workers.provision import Provision, lower
from tests.fixtures_command_run import BINDING, BUNDLE, CHECKPOINT, INPUTS, Trial, limited
from tests.waiting import wait_until

LINES = CommandWork(argv=("true",), form="lines")


def failure(end: TreeEnded) -> FailureKind:
    assert end.outcome is not None
    assert end.outcome.failure is not None, end
    return end.outcome.failure.kind


def test_every_step_can_be_reached_and_left() -> None:
    assert set(STEPS) == set(Step)
    assert {step for after in STEPS.values() for step in after} == set(Step) - {Step.NEW}
    assert [step for step, after in STEPS.items() if not after] == [Step.OVER]


def test_a_command_without_files_starts_at_once_and_needs_no_porter(tmp_path: Path) -> None:
    trial = Trial(tmp_path).begin()
    assert len(trial.host.orders) == 1
    trial.end_program()

    assert trial.seen.end().outcome is not None
    assert (trial.made, trial.seen.end().outputs) == ([], None)
    assert trial.host.cleared == [("one", "")]
    assert trial.log_ends == 1


def test_inputs_and_the_checkpoint_are_there_before_the_program_starts(tmp_path: Path) -> None:
    trial = Trial(tmp_path, replace(INPUTS, checkpoint=CHECKPOINT)).begin()
    (job,) = trial.porter.jobs.values()
    assert isinstance(job, Fetch)
    assert [one.path for one in job.wanted] == ["inputs/data/a.txt", "checkpoint"]
    assert not trial.host.orders

    trial.finish("fetch")
    (order,) = trial.host.orders
    assert order["task"]["inputs"] == ["inputs/data/a.txt"]
    assert order["task"]["checkpoint"] == {"name": "step-6", "path": "checkpoint/step-6", "attempt": 1, "fence": 3}


def test_outputs_are_staged_under_the_fence_before_the_end_is_told(tmp_path: Path) -> None:
    trial = Trial(tmp_path, limited(files=30), output_files=20, site="lab").begin()
    trial.leave_output()
    trial.end_program(left=1)
    assert not trial.seen.ends()
    (job,) = trial.porter.jobs.values()
    assert isinstance(job, Collect)
    assert (job.place.site, job.place.fence, job.place.nonce) == ("lab", BINDING.fence, BINDING.nonce)
    assert job.most_files == 20
    assert not trial.host.cleared

    trial.finish("collect")
    assert (trial.seen.end().outputs, trial.seen.end().gone) == (BUNDLE, True)
    assert len(trial.seen.end().notes) == 1
    assert trial.host.cleared


@pytest.mark.parametrize("broken", ["link", "file"])
def test_what_is_no_plain_folder_of_outputs_is_left_to_the_porter(tmp_path: Path, broken: str) -> None:
    trial = Trial(tmp_path).begin()
    trial.folder.mkdir(parents=True)
    outputs = trial.folder / "outputs"
    if broken == "link":
        outputs.symlink_to("/nowhere")
    else:
        outputs.write_text("x")
    trial.end_program()
    trial.finish("collect", "forbidden_path")

    assert failure(trial.seen.end()) is FailureKind.FORBIDDEN_PATH


def test_an_empty_folder_of_outputs_needs_no_porter(tmp_path: Path) -> None:
    trial = Trial(tmp_path).begin()
    (trial.folder / "outputs").mkdir(parents=True)
    trial.end_program()
    assert trial.seen.end().outcome is not None
    assert not trial.made


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        ("forbidden_path", FailureKind.FORBIDDEN_PATH),
        ("too_many_files", FailureKind.TOO_MANY_FILES),
        ("payload_too_large", FailureKind.TOO_MANY_FILES),
        ("artifact_store_full", FailureKind.OUTPUTS_NOT_STORED),
    ],
)
def test_outputs_that_cannot_be_staged_fail_the_task(tmp_path: Path, problem: str, kind: FailureKind) -> None:
    trial = Trial(tmp_path).begin()
    trial.leave_output()
    trial.end_program()
    trial.finish("collect", problem)
    assert failure(trial.seen.end()) is kind
    assert trial.seen.end().outputs is None


def test_a_store_that_is_away_for_a_while_costs_no_finished_work(tmp_path: Path) -> None:
    trial = Trial(tmp_path, INPUTS).begin()
    for kind in ("fetch", "collect"):
        trial.finish(kind, "artifact_store_unreachable")
        assert not trial.seen.ends()
        trial.clock.advance_ms(1_000)
        trial.read()
        trial.finish(kind)
        if kind == "fetch":
            trial.leave_output()
            trial.end_program()
    assert trial.seen.end().outputs == BUNDLE
    assert trial.seen.words().count("does not answer") == 2


def test_what_waits_for_the_store_can_be_stopped(tmp_path: Path) -> None:
    trial = Trial(tmp_path).begin()
    trial.leave_output()
    trial.end_program()
    trial.finish("collect", "artifact_store_unreachable")
    trial.stop()
    assert trial.seen.end().outcome is None
    trial.read()
    assert trial.host.cleared == [("one", "")]


def test_a_failed_program_leaves_no_outputs(tmp_path: Path) -> None:
    trial = Trial(tmp_path).begin()
    trial.leave_output()
    trial.end_program(code=3)
    assert failure(trial.seen.end()) is FailureKind.EXIT_CODE
    assert not trial.made


def test_inputs_that_cannot_be_fetched_fail_the_task_before_it_begins(tmp_path: Path) -> None:
    trial = Trial(tmp_path, replace(INPUTS, keep_folder=True)).begin()
    trial.finish("fetch", "artifact_damaged")
    assert failure(trial.seen.end()) is FailureKind.INPUT_UNAVAILABLE
    assert not trial.seen.end().begun
    assert not trial.host.orders
    assert trial.host.cleared == [("one", "")]


@pytest.mark.parametrize(("provision", "kind"), [(INPUTS, "input_unavailable"), (None, "outputs_not_stored")])
def test_without_a_store_the_failure_says_what_to_set(tmp_path: Path, provision: Provision | None, kind: str) -> None:
    trial = Trial(tmp_path, provision or Provision(), has_porter=False).begin()
    trial.leave_output()
    trial.end_program()
    trial.read()
    assert failure(trial.seen.end()) == kind
    outcome = trial.seen.end().outcome
    assert outcome is not None
    assert outcome.failure is not None
    assert "--artifacts" in outcome.failure.message
    assert "TENURE_ARTIFACTS" in outcome.failure.message


# --- stopping -----------------------------------------------------------------------------------


def test_stopping_a_fetch_gives_it_up_and_says_that_nothing_began(tmp_path: Path) -> None:
    trial = Trial(tmp_path, INPUTS).begin()
    trial.stop()
    assert (trial.seen.end().gone, trial.seen.end().begun, trial.seen.end().outcome) == (True, False, None)
    assert trial.porter.cancelled
    assert not trial.host.cleared, "the porter may still be writing there"

    trial.finish("fetch")
    assert trial.host.cleared == [("one", "")]
    assert len(trial.seen.ends()) == 1


def test_stopping_a_program_is_the_runners_business(tmp_path: Path) -> None:
    trial = Trial(tmp_path).begin()
    trial.stop()
    assert trial.host.stops == [500]
    assert not trial.seen.ends()
    trial.end_program(code=-15, reason="stop")
    assert trial.seen.end().outcome is None


def test_a_program_that_ends_well_although_it_was_stopped_is_not_collected(tmp_path: Path) -> None:
    trial = Trial(tmp_path).begin()
    trial.leave_output()
    trial.stop()
    trial.end_program()
    assert trial.seen.end().outcome is None
    assert not trial.made


def test_what_has_ended_well_before_its_right_to_run_was_over_is_staged_as_evidence(tmp_path: Path) -> None:
    """A worker that slept past its lease tells what it has, with its files: a person may want it."""
    for stops_first in (True, False):
        trial = Trial(tmp_path / str(stops_first)).begin()
        trial.leave_output()
        if stops_first:
            trial.stop(is_late=True)
        trial.end_program()
        if not stops_first:
            trial.stop(is_late=True)
        assert not trial.seen.ends()
        trial.finish("collect")
        assert trial.seen.end().outputs == BUNDLE
        assert trial.seen.end().outcome is not None


def test_stopping_a_collection_gives_the_result_up(tmp_path: Path) -> None:
    trial = Trial(tmp_path).begin()
    trial.leave_output()
    trial.end_program()
    trial.stop()
    assert (trial.seen.end().outcome, trial.seen.end().begun) == (None, True)
    trial.finish("collect")
    assert len(trial.seen.ends()) == 1
    assert trial.host.cleared


def test_a_runner_that_dies_over_the_program_proves_nothing(tmp_path: Path) -> None:
    trial = Trial(tmp_path, replace(Provision(), keep_folder=True)).begin()
    trial.lose_runner()
    assert not trial.seen.end().gone
    assert trial.host.cleared == [("one", str(tmp_path / "kept" / f"{BINDING.task_id}-7"))]


@pytest.mark.parametrize("step", ["fetching", "collecting"])
def test_a_runner_that_dies_beside_the_porter_costs_nothing(tmp_path: Path, step: str) -> None:
    trial = Trial(tmp_path, INPUTS).begin()
    if step == "fetching":
        trial.lose_runner()
    trial.finish("fetch")
    trial.leave_output()
    trial.end_program()
    if step == "collecting":
        trial.lose_runner()
    trial.finish("collect")
    assert (trial.seen.end().gone, trial.seen.end().outputs) == (True, BUNDLE)


# --- what the program tells ---------------------------------------------------------------------


def test_lines_become_progress_with_what_earlier_lines_said(tmp_path: Path) -> None:
    trial = Trial(tmp_path).begin()
    trial.tell('{"fraction": 0.25, "message": "a"}', '{"metrics": {"loss": 0.5}}')
    trial.tell('{"fraction": 0.5}', "", '{"checkpoint": "none"}')
    assert [(one.fraction_ppm, one.message, one.metrics) for one in trial.seen.progress()] == [
        (250_000, "a", '{"loss":0.5}'),
        (500_000, "a", '{"loss":0.5}'),
    ]


def test_bad_lines_are_left_out_and_said_once(tmp_path: Path) -> None:
    trial = Trial(tmp_path).begin()
    trial.tell("no json", '{"fraction": "much"}', "[1]", '{"fraction": 1}')
    assert [one.fraction_ppm for one in trial.seen.progress()] == [1_000_000]
    assert len(trial.log) == 1
    assert trial.log[0].stream == 0


def test_the_last_result_line_counts(tmp_path: Path) -> None:
    trial = Trial(tmp_path, work=LINES).begin()
    trial.tell('{"result": 1}', '{"result": {"a": [2]}}', '{"log": "hello"}')
    trial.end_program(result=None)
    outcome = trial.seen.end().outcome
    assert outcome is not None
    assert outcome.value == '{"a":[2]}'
    assert [(chunk.stream, chunk.text) for chunk in trial.log] == [(1, "hello\n")]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"result": NaN}', "NaN"),
        ('{"result": "\\ud800"}', "half of a surrogate pair"),
        ('{"result": ' + "1" * 5_000 + "}", "more than 4300 digits"),
        ('{"result": ' + "[" * 20_000 + "]" * 20_000 + "}", "nested too deeply"),
        ('{"result": ', "no valid JSON"),
    ],
    ids=["nan", "half-pair", "digits", "nested", "cut-off"],
)
def test_a_result_that_cannot_be_read_is_told_with_what_is_wrong(tmp_path: Path, line: str, words: str) -> None:
    trial = Trial(tmp_path, work=LINES).begin()
    trial.tell(line, '{"message": 3}')
    trial.end_program(result=None)
    outcome = trial.seen.end().outcome
    assert outcome is not None
    assert outcome.failure is not None
    assert outcome.failure.kind is FailureKind.INVALID_RESULT
    assert "its line with the result cannot be read: " in outcome.failure.message
    assert words in outcome.failure.message


@pytest.mark.parametrize("line", ['{"message": 3}', '{"log": "\\"result\\"", "fraction": "x"}'])
def test_a_bad_line_without_a_result_is_not_taken_for_one(tmp_path: Path, line: str) -> None:
    trial = Trial(tmp_path, work=LINES).begin()
    trial.tell(line)
    trial.end_program(result=None)
    outcome = trial.seen.end().outcome
    assert outcome is not None
    assert outcome.failure is not None
    assert "it printed no line with a result" in outcome.failure.message


def test_words_of_two_writers_share_one_line_of_positions(tmp_path: Path) -> None:
    trial = Trial(tmp_path, work=LINES).begin()
    trial.run.printed([(2, 0, "abc")])
    trial.tell('{"log": "x"}')
    trial.run.printed([(2, 3, "de"), (2, 10, "f")])
    assert [(chunk.position, chunk.text) for chunk in trial.log] == [(0, "abc"), (3, "x\n"), (5, "de"), (12, "f")]


# --- checkpoints --------------------------------------------------------------------------------


def test_checkpoints_are_saved_one_at_a_time_and_of_those_that_wait_only_the_newest(tmp_path: Path) -> None:
    trial = Trial(tmp_path).begin()
    trial.tell(*(f'{{"checkpoint": "step-{number}"}}' for number in range(1, 6)))
    assert trial.seen.jobs() == ["save"]
    trial.finish("save")
    (job,) = trial.porter.jobs.values()
    assert isinstance(job, Save)
    assert (job.path, job.folder) == ("step-5", str(trial.folder / "checkpoint"))
    trial.finish("save")
    assert trial.seen.saved() == ["step-1", "step-5"]
    assert trial.seen.jobs() == []


def test_a_checkpoint_that_cannot_be_saved_is_said_in_the_log(tmp_path: Path) -> None:
    trial = Trial(tmp_path).begin()
    trial.tell('{"checkpoint": "a"}')
    trial.finish("save", "forbidden_path")
    assert trial.seen.saved() == []
    assert "checkpoint a was not kept: it is forbidden_path" in trial.seen.words()


def test_a_failed_program_waits_for_its_last_checkpoints(tmp_path: Path) -> None:
    trial = Trial(tmp_path).begin()
    trial.tell('{"checkpoint": "a"}', '{"checkpoint": "b"}')
    trial.end_program(code=1)
    assert not trial.seen.ends()
    trial.finish("save")
    assert not trial.seen.ends()
    trial.finish("save")
    assert trial.seen.saved() == ["a", "b"]
    assert failure(trial.seen.end()) is FailureKind.EXIT_CODE
    assert isinstance(trial.inputs[-1], TreeEnded)


def test_a_program_that_ended_well_needs_no_checkpoint(tmp_path: Path) -> None:
    trial = Trial(tmp_path).begin()
    trial.tell('{"checkpoint": "a"}', '{"checkpoint": "b"}')
    trial.end_program()
    assert trial.seen.end().outcome is not None
    assert not trial.host.cleared, "the porter still reads there"
    trial.finish("save")
    assert (trial.seen.jobs(), trial.seen.saved()) == ([], [])
    assert trial.host.cleared


def test_stopping_gives_the_last_checkpoints_of_a_failed_program_up(tmp_path: Path) -> None:
    trial = Trial(tmp_path).begin()
    trial.tell('{"checkpoint": "a"}')
    trial.end_program(code=1)
    trial.stop()
    assert failure(trial.seen.end()) is FailureKind.EXIT_CODE
    trial.finish("save")
    assert trial.seen.saved() == []


def test_a_told_state_is_saved_as_a_file_and_given_to_the_next_attempt(tmp_path: Path) -> None:
    trial = Trial(tmp_path, work=LINES).begin()
    trial.tell('{"checkpoint": "step-6", "state": {"sum": 21}}')
    (job,) = trial.porter.jobs.values()
    assert isinstance(job, Save)
    state = Path(job.folder) / job.path
    assert json.loads(state.read_text()) == {"sum": 21}
    trial.finish("save")
    trial.end_program(result=None)
    assert [name for name, _ in trial.host.cleared] == ["one", "one.states"]

    after = Trial(tmp_path / "after", replace(Provision(), checkpoint=CHECKPOINT), LINES).begin()
    (after.folder / "checkpoint").mkdir(parents=True)
    (after.folder / "checkpoint" / "step-6.json").write_text(state.read_text())
    after.finish("fetch")
    (order,) = after.host.orders
    assert order["task"]["checkpoint"]["path"] == "checkpoint/step-6.json"
    assert json.loads(order["stdin"])["checkpoint"]["state"] == {"sum": 21}
    assert order["stdin"].endswith("}\n")


# --- the order ----------------------------------------------------------------------------------


def test_the_order_names_secrets_limits_and_where_to_keep_the_folder(tmp_path: Path) -> None:
    provision = Provision(
        secrets=("key",), limits=Limits(memory_bytes=10, printed_bytes=7), keep_folder=True, label="x", timeout_ms=9
    )
    caps = Limits(memory_bytes=20, printed_bytes=5, disk_bytes=3)
    secrets = tmp_path / "secrets"
    (order,) = Trial(tmp_path, provision, secrets_dir=secrets, limits=caps).begin().host.orders
    assert order["secrets"] == [["key", str(secrets / "key")]]
    assert order["limits"] == {"memory": 10, "disk": 3, "file": 0, "files": 0, "printed": 5}
    assert order["keep"] == str(tmp_path / "kept" / f"{BINDING.task_id}-7")
    assert order["task"] == {
        "task_id": BINDING.task_id,
        "attempt": 2,
        "fence": 7,
        "label": "x",
        "parameters": None,
        "inputs": [],
        "checkpoint": None,
        "secrets": {"key": "secrets/key"},
        "limits": {"memory_bytes": 10, "printed_bytes": 5, "disk_bytes": 3},
        "timeout_ms": 9,
    }


def test_parameters_that_are_no_json_fail_the_task(tmp_path: Path) -> None:
    trial = Trial(tmp_path, work=CommandWork(argv=("true",), parameters="{")).begin()
    assert failure(trial.seen.end()) is FailureKind.INVALID_ARGUMENTS
    assert not trial.host.orders


def test_the_smaller_limit_counts() -> None:
    assert lower(Limits(files=3), Limits(files=5, disk_bytes=9)) == Limits(files=3, disk_bytes=9)
    assert lower(Limits(), Limits()) == Limits()


def test_a_folder_that_nobody_looks_after_is_cleared_away_or_kept_without_its_secrets(tmp_path: Path) -> None:
    for name in ("gone", "kept"):
        (tmp_path / name / "secrets").mkdir(parents=True)
        (tmp_path / name / "file").write_text("x")
    clear_away(tmp_path / "gone", "")
    clear_away(tmp_path / "kept", str(tmp_path / "there" / "kept"))
    wait_until(lambda: not (tmp_path / "gone").exists(), "the folder is gone")
    wait_until(lambda: not (tmp_path / "there/kept/secrets").exists(), "the secrets are gone")
    wait_until((tmp_path / "there/kept/file").exists, "the folder is kept")
