"""The options of a worker with a launcher: which launcher, its own options, and how its executors are started."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tenure.cli.desk import Desk, Session
from tenure.cli.execution import ExecutionForm
from tenure.cli.launching import LaunchForm, executor_command, launching
from tenure.errors import InvalidSettings, MissingExtra, TenureError, UnknownLauncher, UsageError
from tenure.launchers import catalog
from tenure.launchers.catalog import known_launchers, launcher_names
from tenure.settings import load_settings
from tests.fixtures_cli import CommandLine, FakeFleet

SECRET_URL = "redis://user:hidden@broker:6379"


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder without settings, and an environment that says little."""
    for name in ("TENURE_BROKER_URL", "TENURE_BROKER_URL_FILE", "LC_ALL", "LANG", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("PYTHONPATH", "/srv/code")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(launcher: str, folder: Path, table: dict[str, Any] | None = None, **settings: Any) -> Any:
    chosen = load_settings(data_dir=folder, **settings)
    execution = ExecutionForm(allow=("tasks", "more"), max_memory="2GiB", secrets_dir=folder)
    return executor_command(launcher, chosen, execution, folder, table or {})


def test_an_executor_gets_the_workers_own_options(alone: Path) -> None:
    file = alone / "broker"
    found = command("rq", alone, broker_url_file=file, artifacts="s3://b/p", artifacts_options_file=alone / "k.json")

    assert found.program == ("tenure",)
    assert found.arguments == (
        *("--broker-url-file", str(file)),
        *("--artifacts", "s3://b/p", "--artifacts-options-file", str(alone / "k.json")),
        *("--allow", "tasks", "--allow", "more"),
        *("--secrets-dir", str(alone), "--max-memory", "2GiB", "--max-outputs", "10000"),
    )
    assert dict(found.environment) == {"HOME": "/home/me", "PATH": "/bin", "PYTHONPATH": "/srv/code"}


def test_a_local_executor_is_this_very_program(alone: Path) -> None:
    found = command("local", alone, broker_url="redis://broker")
    assert found.program[0] == sys.executable
    assert found.program[-2:] == ("-m", "tenure")
    assert dict(found.environment)["PYTHONPATH"].startswith("/srv/code")


@pytest.mark.parametrize("launcher", ["local", "rq", "ray"])
def test_a_password_goes_into_a_private_file(alone: Path, launcher: str) -> None:
    found = command(launcher, alone, broker_url=SECRET_URL)
    again = command(launcher, alone, broker_url=SECRET_URL)

    assert found == again
    assert "hidden" not in str(found)
    path = Path(found.arguments[found.arguments.index("--broker-url-file") + 1])
    assert path.read_text() == f"{SECRET_URL}\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_executors_in_images_are_told_nothing_of_this_host(alone: Path) -> None:
    found = command("kubernetes", alone, broker_url=SECRET_URL, artifacts="s3://b/p")
    assert found.arguments[:4] == ("--artifacts", "s3://b/p", "--allow", "tasks")
    assert "hidden" not in str(found)
    assert str(alone) not in str(found)
    assert found.environment == ()


def test_an_address_without_a_password_may_be_told(alone: Path) -> None:
    assert command("rq", alone, broker_url="redis://broker:1").arguments[:2] == ("--broker-url", "redis://broker:1")


def test_the_file_says_what_is_different_where_executors_run(alone: Path) -> None:
    table = {"program": ["/opt/tenure"], "arguments": ["--allow", "x"], "environment": {"PATH": "/opt", "A": "b"}}
    found = command("rq", alone, table, broker_url="redis://broker")
    assert found.program == ("/opt/tenure",)
    assert found.arguments[-2:] == ("--allow", "x")
    assert dict(found.environment)["PATH"] == "/opt"
    assert dict(found.environment)["A"] == "b"


def desk(folder: Path) -> Desk:
    return Desk(Session(), {"broker_url": "redis://127.0.0.1:1"})


def made(form: LaunchForm, folder: Path) -> Any:
    """The launcher that follows from the options."""
    parent = launching(desk(folder), form, ExecutionForm())
    assert parent is not None
    return parent.make(folder)


def test_options_come_from_the_file_and_from_the_command_line(alone: Path) -> None:
    flat, tables = alone / "flat.toml", alone / "tables.toml"
    flat.write_text('grace = "3s"\n')
    tables.write_text('[executor]\nprogram = ["x"]\n[local]\ngrace = "4s"\n[ray]\nwhatever = 1\n')
    graces = [
        made(LaunchForm("local", file, option), alone)._grace_ms
        for file, option in ((None, ()), (flat, ()), (tables, ()), (tables, ("grace=5s",)))
    ]
    assert graces == [10_000, 3_000, 4_000, 5_000]


@pytest.mark.parametrize(
    ("form", "error", "words"),
    [
        (LaunchForm("nope"), UnknownLauncher, "Choose one of: kubernetes, local, ray, rq"),
        (LaunchForm("local", launcher_option=("x=1",)), InvalidSettings, "has no option 'x'"),
        (LaunchForm("local", launcher_option=("grace=soon",)), InvalidSettings, "grace"),
        (LaunchForm("local", launcher_option=("grace",)), UsageError, "key=value"),
        (LaunchForm("local", launcher_file=Path("absent.toml")), InvalidSettings, "cannot be read"),
        (LaunchForm("local", launch_timeout="soon"), UsageError, "--launch-timeout"),
        (LaunchForm("local", launch_timeout="0s"), UsageError, "--launch-timeout is less than a second"),
        (LaunchForm(launcher_option=("grace=1s",)), UsageError, "no launcher"),
        (LaunchForm(enable_writes=True), UsageError, "no launcher"),
        (LaunchForm(launch_timeout="7s"), UsageError, "no launcher"),
    ],
    ids=str,
)
def test_wrong_options_are_one_line(alone: Path, form: LaunchForm, error: type[TenureError], words: str) -> None:
    with pytest.raises(error) as raised:
        made(form, alone)
    assert words in str(raised.value)
    assert raised.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("executor = 1\n", "`executor` in wrong.toml is no table"),
        ("= 1\n", "is not TOML"),
        ("[executor]\nprogram = 1\n", "program: it must be a list"),
        ("[executor]\nenviroment = {A = 'b'}\n", "`executor` has no option 'enviroment'"),
        ("grace = 'soon'\n", "grace: it is not a duration: 'soon'"),
    ],
)
def test_a_file_that_does_not_fit_is_one_line(alone: Path, text: str, words: str) -> None:
    (alone / "wrong.toml").write_text(text)
    with pytest.raises(UsageError) as raised:
        made(LaunchForm("local", Path("wrong.toml")), alone)
    assert words in str(raised.value)


@pytest.mark.parametrize("words", ['"--broker-url-file", "/run/x"', '"--broker-url=redis://h"'])
def test_a_broker_that_pods_would_not_be_told_of_is_refused(alone: Path, words: str) -> None:
    (alone / "wrong.toml").write_text(f"[executor]\narguments = [{words}]\n[local]\n")
    form = LaunchForm("kubernetes", Path("wrong.toml"), enable_writes=True)
    with pytest.raises(InvalidSettings, match="read the broker's address from the mounted Secret"):
        made(form, alone)
    made(LaunchForm("local", Path("wrong.toml")), alone)


def test_without_a_launcher_it_is_a_worker_like_any_other(alone: Path) -> None:
    assert launching(desk(alone), LaunchForm(), ExecutionForm()) is None


def test_a_missing_library_is_told_before_anything_else(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find_nothing(_: str) -> None:
        return None

    monkeypatch.setattr(catalog, "find_spec", find_nothing)
    for name in ("rq", "ray", "kubernetes"):
        form = LaunchForm(name, launcher_option=("no_such_option=1",))
        with pytest.raises(MissingExtra, match=f"pip install 'tenure.{name}.'"):
            launching(desk(alone), form, ExecutionForm())


@pytest.mark.parametrize(("name", "code"), [("rq", 2), ("ray", 2), ("kubernetes", 0)])
def test_rendering_asks_for_a_library_only_where_it_needs_one(
    alone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, code: int
) -> None:
    def find_nothing(_: str) -> None:
        return None

    monkeypatch.setattr(catalog, "find_spec", find_nothing)
    printed = CommandLine(FakeFleet(), capsys)("workers", "render-launch", "--launcher", name, "--example")

    assert printed.code == code, printed
    assert (f"pip install 'tenure[{name}]'" in printed.err) == (code != 0)


# --- the list ------------------------------------------------------------------------------------


def test_the_list_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    tenure = CommandLine(FakeFleet(), capsys)
    rows = {row["name"]: row for row in tenure("launchers", "--json").json()}
    assert rows.keys() >= {"kubernetes", "local", "ray", "rq"}
    assert rows["local"] == {"name": "local", "origin": "tenure", "ready": True, "needs": ""}
    for name, row in rows.items():
        assert row["ready"] == (row["needs"] == ""), name
    assert "local" in tenure("launchers").out


def test_a_launcher_of_another_package_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tenure.launchers]\nmine = mine:create\nlocal = mine:create\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    assert "mine" in launcher_names()
    found = {each.name: each.origin for each in known_launchers()}
    assert (found["mine"], found["local"]) == ("mine", "tenure")
    with pytest.raises(InvalidSettings, match="the launcher 'mine' cannot be loaded: No module named 'mine'"):
        made(LaunchForm("mine"), tmp_path)
