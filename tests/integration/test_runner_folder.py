"""The folder of a command: what it finds there, what is read from it, and that it goes away."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.protocol.worker_messages import FailureKind
from tests.fixtures_runner import LIMIT, RunnerBench
from tests.waiting import wait_until

LOOK = "import os, json; open('result.json', 'w').write(json.dumps(sorted(os.listdir())))"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[RunnerBench]:
    bench = RunnerBench(tmp_path)
    yield bench
    bench.close()


def result_of(bench: RunnerBench, script: str) -> object:
    bench.python(script, form="folder")
    return json.loads(bench.value())


def test_a_program_finds_what_the_protocol_names(bench: RunnerBench) -> None:
    assert result_of(bench, LOOK) == ["checkpoint", "inputs", "outputs", "result.json", "secrets", "task.json"]


def test_the_task_is_in_its_file_and_only_its_owner_may_read_it(bench: RunnerBench) -> None:
    folder = bench.python("import shutil; shutil.copy('task.json', 'result.json')", form="folder")
    task = json.loads(bench.value())
    assert task["parameters"] == {"steps": 10}
    assert stat.S_IMODE((folder / "task.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_what_was_fetched_before_is_still_there(bench: RunnerBench, tmp_path: Path) -> None:
    (tmp_path / "task-1" / "inputs").mkdir(parents=True)
    (tmp_path / "task-1" / "inputs" / "a").write_text("fetched")
    assert result_of(bench, "open('result.json', 'w').write('\"' + open('inputs/a').read() + '\"')") == "fetched"


def test_a_folder_stays_until_it_is_said_that_nobody_needs_it(bench: RunnerBench) -> None:
    folder = bench.python("open('outputs/x', 'w').write('1')")
    bench.report()
    assert (folder / "outputs" / "x").exists()
    bench.send({"op": "clean", "run": 0})
    bench.clean()
    wait_until(lambda: not folder.exists(), "the folder is gone")


def test_the_next_start_removes_the_folder_before_it(bench: RunnerBench) -> None:
    first = bench.start("true")
    bench.report()
    second = bench.start("true")
    bench.report()
    wait_until(lambda: not first.exists(), "the first folder is gone")
    assert second.exists()


def test_a_folder_that_is_kept_moves_and_loses_its_secrets(bench: RunnerBench, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hush-hush\n")
    kept = tmp_path / "kept" / "one"
    secrets = [["token", str(tmp_path / "token")]]
    folder = bench.start("sh", "-c", "echo done > outputs/x", keep=str(kept), secrets=secrets)
    bench.report()
    bench.clean()
    wait_until(lambda: kept.exists() and not (kept / "secrets").exists(), "the folder is kept, without secrets")
    assert (kept / "outputs" / "x").read_text() == "done\n"
    assert not folder.exists()


# --- secrets ------------------------------------------------------------------------------------


def test_a_secret_is_a_file_that_can_only_be_read(bench: RunnerBench, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"hush-\xff-hush\n")
    folder = bench.start("true", secrets=[["db.password", str(tmp_path / "token")]])
    bench.report()
    copy = folder / "secrets" / "db.password"
    assert copy.read_bytes() == b"hush-\xff-hush\n"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o400


@pytest.mark.parametrize("name", ["gone", "link", "folder", "pipe", "huge", "../x"])
def test_what_is_no_secret_file_is_not_followed(bench: RunnerBench, tmp_path: Path, name: str) -> None:
    (tmp_path / "token").write_text("hush-hush")
    (tmp_path / "link").symlink_to("token")
    (tmp_path / "folder").mkdir()
    (tmp_path / "huge").write_bytes(bytes(100_000))
    os.mkfifo(tmp_path / "pipe")
    bench.start("true", secrets=[[name, str(tmp_path / name.replace("../x", "token"))]])
    assert bench.failure() is FailureKind.UNKNOWN_SECRET


def test_nothing_that_leaves_the_runner_holds_a_secret(bench: RunnerBench, tmp_path: Path) -> None:
    (tmp_path / "token").write_text('hush"\\hush\n')
    script = (
        "import json, sys; s = open('secrets/token').read()\n"
        "print('out', s); print('err', s, file=sys.stderr, flush=True)\n"
        "sys.stdout.write(s[:5]); sys.stdout.flush(); sys.stdout.write(s[5:]); sys.stdout.flush()\n"
        "print(json.dumps({'message': s}), file=open('progress.jsonl', 'w'))\n"
        "json.dump([s.strip()], open('result.json', 'w'))\n"
    )
    bench.python(script, form="folder", secrets=[["token", str(tmp_path / "token")]])
    assert bench.value() == '["[secret token]"]'
    said = json.dumps([bench.reports, bench.printed, bench.lines])
    assert said.count("[secret token]") >= 5
    assert "hush" not in said


# --- result.json --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ("true", FailureKind.INVALID_RESULT),
        ("echo '{garbage' > result.json", FailureKind.INVALID_RESULT),
        ("echo NaN > result.json", FailureKind.INVALID_RESULT),
        ("printf '\"\\377\"' > result.json", FailureKind.INVALID_RESULT),
        ("head -c 20000 /dev/zero | tr '\\0' 1 > result.json", FailureKind.RESULT_TOO_LARGE),
        ("ln -s /etc/passwd result.json", FailureKind.FORBIDDEN_PATH),
        ("mkfifo result.json", FailureKind.FORBIDDEN_PATH),
        ("mkdir result.json", FailureKind.FORBIDDEN_PATH),
        ("echo 1 > result.json; exit 3", FailureKind.EXIT_CODE),
    ],
)
def test_each_bad_result_has_its_own_outcome(bench: RunnerBench, script: str, kind: FailureKind) -> None:
    bench.start("sh", "-c", script, form="folder")
    assert bench.failure() is kind


def test_a_result_of_the_largest_size_is_read(bench: RunnerBench) -> None:
    text = '"' + "x" * (LIMIT - 2) + '"'
    bench.python(f"open('result.json', 'w').write({text!r})", form="folder")
    assert bench.value() == text


def test_a_folder_that_was_swapped_for_another_is_read_and_removed_where_it_is(
    bench: RunnerBench, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "result.json").write_text('"stolen"')
    script = (
        "import os; here = os.getcwd(); open('result.json', 'w').write('\"own\"')\n"
        f"os.rename(here, here + '-moved'); os.symlink({str(other)!r}, here)"
    )
    folder = bench.python(script, form="folder")
    assert bench.value() == '"own"'
    bench.clean()
    moved = folder.with_name("task-1-moved")
    wait_until(lambda: not moved.exists() and not folder.is_symlink(), "both are gone")
    assert (other / "result.json").exists()
