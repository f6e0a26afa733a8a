"""Processes that `tenure up` looks after: how they end, what they said, and that they go when their owner goes."""

import json
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tenure.cli.broker import memory_mb
from tenure.cli.execution import ExecutionForm
from tenure.cli.launching import LaunchForm
from tenure.cli.lifetime import LifetimeForm, with_lifetime
from tenure.cli.local_fleet import DataInUse, FleetPlan, LocalFleet
from tenure.cli.owner import end_with_owner
from tenure.cli.parts import Part, PartPlan
from tenure.cli.signals import Signals
from tenure.cli.status import summary
from tenure.cli.up import UpForm
from tenure.cli.worker import WorkerForm, worker_options
from tenure.errors import InvalidSettings, UsageError
from tenure.settings import load_settings
from tenure.testing import ManualClock
from tenure.workers.options import WorkerOptions
from tests.fixtures_cli import CommandLine, FakeFleet
from tests.waiting import wait_until


@pytest.fixture
def part(tmp_path: Path) -> Part:
    return Part(PartPlan("worker-1", ["explain"], tmp_path / "log"), 0, ManualClock())


def log(part: Part, text: str) -> None:
    part._plan.log.write_text(text)


def test_what_a_part_said_last_is_its_error(part: Part) -> None:
    log(part, "noise\n" + json.dumps({"error": {"code": "x", "message": "it is full", "remedy": "Free it"}}) + "\n")
    error = part.error()
    assert (error.message, error.remedy) == ("it is full", "Free it")


@pytest.mark.parametrize(("text", "words"), [("", "said nothing"), ("Segmentation fault\n", "Segmentation fault")])
def test_a_part_that_said_anything_else_is_quoted(part: Part, text: str, words: str) -> None:
    log(part, text)
    assert words in part.error().message
    assert str(part._plan.log) in part.error().remedy


def test_ends_in_short_order_wait_longer(part: Part) -> None:
    clock = part._clock
    pauses = [part.due_again_ms() - clock.elapsed_ms() for _ in range(8)]
    assert pauses == [250, 500, 1000, 2000, 4000, 8000, 10000, 10000]
    clock.sleep_ms(60_000)
    assert part.due_again_ms() - clock.elapsed_ms() == 250


def test_a_process_that_never_started_can_be_ended(part: Part) -> None:
    part.kill()
    part.signal(signal.SIGTERM)
    assert not part.running
    assert part.exit_code() is None


def test_signals_are_kept_until_somebody_looks() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Signals() as signals:
        assert signals.asked_to_end == 0
        os.kill(os.getpid(), signal.SIGTERM)
        signals.wait(5_000)
        os.kill(os.getpid(), signal.SIGINT)
        wait_until(lambda: signals.asked_to_end == 2, "both have arrived")
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_end_of_the_owner_is_noticed() -> None:
    reading, writing = os.pipe()
    ended, waited = threading.Event(), threading.Event()

    class Patient:
        """Holds the thread that would kill this process next."""

        def now_ms(self) -> int:
            return 0

        def elapsed_ms(self) -> int:
            return 0

        def sleep_ms(self, duration_ms: int) -> None:
            waited.set()
            threading.Event().wait()

    os.set_inheritable(reading, True)  # noqa: FBT003
    end_with_owner(reading, ended.set, Patient())
    assert not os.get_inheritable(reading)
    assert not ended.is_set()
    os.close(writing)
    assert ended.wait(5)
    assert waited.wait(5)


def test_without_an_owner_nothing_is_watched() -> None:
    before = threading.active_count()
    end_with_owner(None, lambda: None, ManualClock())
    assert threading.active_count() == before


@pytest.mark.parametrize(("text", "expected"), [("16MiB", 16), ("2GiB", 2048), ("1.5GiB", 1536), ("100M", 95)])
def test_a_brokers_memory_is_a_size(text: str, expected: int) -> None:
    assert memory_mb(text) == expected


@pytest.mark.parametrize(("text", "words"), [("512", "Give 16MiB or more, with the unit"), ("much", "is not a size")])
def test_a_brokers_memory_needs_a_unit_and_has_a_least(text: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        memory_mb(text)
    assert words in f"{refused.value.message} {refused.value.remedy}"
    assert "--max-memory" in refused.value.message


def test_a_folder_is_taken_by_one_at_a_time(tmp_path: Path) -> None:
    from tenure.cli.local_fleet import _take

    held = _take(tmp_path / "up.lock")
    with pytest.raises(DataInUse, match=f"process {os.getpid()}"):
        _take(tmp_path / "up.lock")
    os.close(held)
    os.close(_take(tmp_path / "up.lock"))


def test_a_refused_start_leaves_the_other_ones_address(tmp_path: Path) -> None:
    from tenure.cli.desk import Desk, Session
    from tenure.cli.local_fleet import _take

    held = _take(tmp_path / "up.lock")
    (tmp_path / "broker.url").write_text("unix:///somewhere")
    with Signals() as signals:
        fleet = LocalFleet(Desk(Session(), {}), FleetPlan(tmp_path), print, signals)
        with pytest.raises(DataInUse):
            fleet.open()
        fleet.close()
    assert (tmp_path / "broker.url").read_text() == "unix:///somewhere"
    os.close(held)


def test_workers_of_up_have_the_same_names_at_every_start() -> None:
    form = UpForm(workers=2, slots=3, allow=("tasks",), capability=(), data=None, secrets_dir=None)
    assert form.names() == ["worker-1", "worker-2"]
    assert form.worker_options() == ["--slots", "3", "--allow", "tasks", "--capability", "default"]
    knowing = replace(form, secrets_dir=Path("/srv/secrets"))
    assert knowing.worker_options()[-2:] == ["--secrets-dir", "/srv/secrets"]


def test_all_parts_of_up_keep_files_in_one_place() -> None:
    own = FleetPlan(Path("/srv/up"))
    assert own.store() == ["--artifacts", "/srv/up/artifacts"]
    other = FleetPlan(Path("/srv/up"), "main", "s3://bucket/x", Path("/k.json"))
    assert other.store() == ["--artifacts", "s3://bucket/x", "--artifacts-options-file", "/k.json"]


def test_the_status_line_leaves_out_what_is_nought() -> None:
    assert summary({"tasks": {"QUEUED": 12_000, "RUNNING": 2, "LOST": 0}}) == "tasks: 12,000 queued, 2 running"
    assert summary({}) == "tasks: none so far"


@pytest.mark.parametrize("given", [("--data", "x"), ("--port", "0"), ("--unix-socket", "s"), ("--max-memory", "1GiB")])
def test_what_a_broker_of_ones_own_is_told_is_not_taken_for_securing_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, given: tuple[str, str]
) -> None:
    tenure = CommandLine(FakeFleet(), capsys)
    printed = tenure("broker", *given, "secure", "--broker-url", "nonsense", "--out", str(tmp_path))
    assert printed.code == 2
    assert f"`tenure broker secure` runs no broker and takes no {given[0]}" in printed.err


def worker_form(execution: ExecutionForm = ExecutionForm(), **changes: object) -> WorkerForm:  # noqa: B008 - frozen
    fields: dict[str, object] = {
        "capability": (),
        "slots": 1,
        "label": (),
        "resource": (),
        "ttl": "30s",
        "state_dir": None,
        "worker_id": None,
        "site": None,
        "owner_pipe": None,
        "execution": execution,
        "lifetime": LifetimeForm(),
    }
    return WorkerForm(**(fields | changes))  # type: ignore[arg-type]


def test_worker_options_are_checked_and_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:/elsewhere")
    monkeypatch.setenv("TENURE_BROKER_URL", "redis://:secret@h")
    monkeypatch.chdir(tmp_path)
    settings = load_settings(data_dir=tmp_path)
    options = worker_options(worker_form(label=("a=b",), resource=("gb=8",), ttl="3s"), settings)
    assert (options.capabilities, options.labels, options.resources) == (("default",), (("a", "b"),), (("gb", 8),))
    assert (options.ttl_ms, options.site, options.state_dir) == (3_000, "default", tmp_path)
    assert options.import_path == (str(tmp_path), str(tmp_path), "/elsewhere")
    assert "TENURE_BROKER_URL" not in dict(options.environment)
    with pytest.raises(UsageError, match="--ttl"):
        worker_options(worker_form(ttl="soon"), settings)


def test_a_worker_that_could_call_nothing_of_an_allowed_module_does_not_start(tmp_path: Path) -> None:
    settings = load_settings(data_dir=tmp_path, broker_url="redis://h")
    form = worker_form(ExecutionForm(allow=("json", "nosuchmodule")))
    with pytest.raises(UsageError, match="no module nosuchmodule"):
        worker_options(form, settings)
    parent = worker_options(replace(form, launch=LaunchForm(launcher="rq")), settings)
    assert parent.allow == ("json", "nosuchmodule")
    assert not parent.adopts


def test_a_site_s_name_is_no_part_of_anybody_else_s_keys(tmp_path: Path) -> None:
    for name in ("a.b", "a:b", "a*", "", "x" * 33):
        with pytest.raises(InvalidSettings, match="name of a site"):
            WorkerOptions(tmp_path, site=name)
        with pytest.raises(InvalidSettings, match="site does not fit"):
            load_settings(site=name)


def test_what_tasks_may_use_at_most_is_what_was_said_and_else_the_default(tmp_path: Path) -> None:
    settings = load_settings(
        data_dir=tmp_path, broker_url="redis://h", artifacts="s3://bucket/x", artifacts_options_file=tmp_path / "k.json"
    )
    plain = worker_options(worker_form(), settings)
    assert plain.limits == WorkerOptions(tmp_path).limits
    said = worker_form(ExecutionForm(max_memory="2GiB", max_file_count=9, max_outputs=5, secrets_dir=tmp_path))
    options = worker_options(said, settings)
    assert options.limits == plain.limits.model_copy(update={"memory_bytes": 2**31, "files": 9})
    assert (options.output_files, options.secrets_dir) == (5, tmp_path)
    assert (options.artifacts, options.artifacts_options) == ("s3://bucket/x", tmp_path / "k.json")
    with pytest.raises(UsageError, match="--max-disk is not a size"):
        worker_options(worker_form(ExecutionForm(max_disk="much")), settings)


@pytest.mark.parametrize(
    ("form", "wall_ms", "max_idle_ms"),
    [
        (LifetimeForm(), None, None),
        (LifetimeForm(max_idle="10m"), None, 600_000),
        (LifetimeForm(drain_for="10m"), None, None),
        (LifetimeForm(walltime="2h"), 7_205_000, None),
        (LifetimeForm(gone_by=1_700_000_065), 65_000, None),
        (LifetimeForm(gone_by=1_700_000_065, walltime="30s"), 35_000, None),
    ],
    ids=["none", "idle", "drain", "walltime", "moment", "the earlier"],
)
def test_a_worker_s_own_end_is_the_earliest_that_was_said(
    tmp_path: Path, form: LifetimeForm, wall_ms: int | None, max_idle_ms: int | None
) -> None:
    clock = ManualClock(1_700_000_000_000)
    clock.advance_ms(5_000)
    options = with_lifetime(WorkerOptions(tmp_path), form, clock)
    assert (options.wall_ms, options.lifetime.max_idle_ms) == (wall_ms, max_idle_ms)


def test_a_lifetime_that_is_none_is_said_to_be_none(tmp_path: Path) -> None:
    for form, option in ((LifetimeForm(walltime="long"), "--walltime"), (LifetimeForm(max_idle="-1"), "--max-idle")):
        with pytest.raises(UsageError, match=option):
            with_lifetime(WorkerOptions(tmp_path), form, ManualClock())


def test_a_moment_in_smaller_units_than_seconds_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    tenure = CommandLine(FakeFleet(), capsys)
    printed = tenure("worker", "--gone-by", "1764518400000000")
    assert printed.code == 2
    assert "--gone-by" in printed.err


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (LifetimeForm(gone_by=5), "--gone-by 5 is in the past"),
        (LifetimeForm(gone_by=5, walltime="2h"), "--gone-by 5 is in the past"),
        (LifetimeForm(walltime="1s"), "no time for any task: it is to be gone in 1 s"),
        (LifetimeForm(gone_by=1_700_000_001, walltime="2h"), "no time for any task"),
    ],
)
def test_a_worker_that_could_do_nothing_before_its_end_is_a_mistake(
    tmp_path: Path, form: LifetimeForm, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        with_lifetime(WorkerOptions(tmp_path), form, ManualClock(1_700_000_000_000))
