"""Programs that do harm, on a whole fleet: each has its own clear outcome, and leaves nothing but the worker's log."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.fixtures_files_fleet import MIB, RUNNER, FilesFleet, files_fleet, part_of, peaks
from tests.fixtures_fleet import Worker
from tests.fixtures_services import unavailable
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(120)

DAEMONS = """
import os, signal, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork(): os._exit(0)
        os.chdir("/"); time.sleep(600)
open("result.json", "w").write('"daemons were begun"')
"""
SMALL_FILES = "import os\nfor n in range(100000): os.close(os.open(f'outputs/{n}', os.O_CREAT))"
FILL = "while :; do head -c 1000000 /dev/zero >> outputs/big || exit 1; done"
STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.1; done"


@dataclass(frozen=True)
class Harm:
    """A program, how it is submitted, and how that must end."""

    program: tuple[str, ...]
    options: tuple[str, ...] = ()
    kind: str = ""
    """The kind of its failure; "" when it is to succeed."""
    words: str = ""
    """What people must be told."""


HARM = {
    "daemon": Harm((sys.executable, "-c", DAEMONS), ("--form", "folder"), "", "3 processes were left behind"),
    "disk": Harm(("sh", "-c", FILL), ("--disk", "20MiB"), "disk_limit", "its folder grew over the limit of 20971520"),
    "file": Harm(("sh", "-c", FILL), ("--file-size", "20MiB"), "file_too_large", "20971520"),
    "printing": Harm(
        ("sh", "-c", "yes | head -c 10000000000"), ("--printed", "50MB"), "printed_too_much", "limit of 50000000"
    ),
    "link": Harm(("ln", "-s", "/etc/passwd", "outputs/x"), (), "forbidden_path", "'x' is a link"),
    "device": Harm(("mkfifo", "outputs/pipe"), (), "forbidden_path", "'pipe' is a pipe"),
    "link as result": Harm(
        ("ln", "-s", "/etc/passwd", "result.json"), ("--form", "folder"), "forbidden_path", "result.json"
    ),
    "many files": Harm((sys.executable, "-c", SMALL_FILES), (), "too_many_files", "10000"),
    "many files, limited": Harm(
        (sys.executable, "-c", SMALL_FILES), ("--file-count", "5000"), "too_many_files", "5000"
    ),
    "garbage": Harm(
        ("sh", "-c", "head -c 3000 /dev/urandom > result.json; echo x > outputs/x"),
        ("--form", "folder"),
        "invalid_result",
        "result.json is not UTF-8",
    ),
    "half a result": Harm(
        ("sh", "-c", "printf '{' > result.json"), ("--form", "folder"), "invalid_result", "result.json is not JSON"
    ),
    "stubborn": Harm(("sh", "-c", STUBBORN), ("--timeout", "1s"), "timeout", "1000 ms"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Generator[FilesFleet]:
    with files_fleet(tmp_path_factory.mktemp("fleet"), [Worker("w1", slots=1)]) as files:
        yield files


@contextmanager
def nothing_left(files: FilesFleet, state: Path | None = None) -> Generator[None]:
    """See that what runs inside leaves no process, folder or file; the worker takes the next task."""
    before, runner = files.depot.digests(), part_of(files.fleet, "w1", RUNNER)
    assert runner is not None
    yield
    assert files.fleet.client.command(["echo", "next"]).result(30) == "next\n"
    tasks = (state or files.fleet.folder) / "workers" / "w1" / "tasks"
    wait_until(lambda: not tasks.exists() or not any(tasks.iterdir()), "no task folder is left", 30)
    wait_until(lambda: not runner.children(recursive=True), "no process is left", 10)
    assert part_of(files.fleet, "w1", RUNNER) == runner, "the runner is still the same"
    wait_until(lambda: files.depot.places() == [], "nothing is staged", 10)
    wait_until(
        lambda: files.depot.digests() - before <= logs(files), "nothing but what was printed is in the store", 10
    )


def logs(files: FilesFleet) -> set[str]:
    """What programs have printed is kept as the attempt's log."""
    return {row["manifest"] for row in files.rows("artifacts", kind="log")}


def ended(files: FilesFleet, task_id: str, timeout_s: float = 60) -> dict[str, Any]:
    """The task, when it is over."""
    wait_until(lambda: files.task(task_id)["state"] in {"SUCCEEDED", "FAILED", "CANCELLED"}, "it is over", timeout_s)
    return files.task(task_id)


def kind_of(row: dict[str, Any]) -> str:
    """The kind of its failure; "" when there is none."""
    failure: dict[str, str] | None = row["failure"]
    return failure["kind"] if failure is not None else ""


@pytest.mark.parametrize("name", HARM)
def test_harm_has_a_clear_outcome_and_leaves_nothing(files: FilesFleet, name: str) -> None:
    harm = HARM[name]
    with nothing_left(files):
        task_id = files.submit(*harm.options, "--", *harm.program)
        row = ended(files, task_id)
        assert row["state"] == ("FAILED" if harm.kind else "SUCCEEDED")
        assert kind_of(row) == harm.kind
        story = files.explained(task_id)
        assert harm.words in story
        assert f"FAILED ({harm.kind}): " in story or not harm.kind
        assert not harm.kind or harm.words in row["failure"]["message"]
        assert row["attempt"] == 1


def test_programs_are_told_the_kind_of_failure(files: FilesFleet) -> None:
    task_id = files.submit("--", "ln", "-s", "/etc/passwd", "outputs/x")
    ended(files, task_id)
    error = files.run("result", task_id, "--json").error()
    assert error["code"] == "task_failed"
    assert "'x' is a link" in error["message"]
    assert files.fine("tasks", "show", task_id, "--json").json()["failure"]["kind"] == "forbidden_path"
    story = files.fine("explain", task_id, "--json").json()["story"]
    (told,) = [line["text"] for line in story if line["kind"] == "accepted"]
    assert "FAILED (forbidden_path): its outputs: 'x' is a link" in told


def test_files_of_the_host_are_not_in_the_store(files: FilesFleet) -> None:
    passwd = hashlib.sha256(Path("/etc/passwd").read_bytes()).hexdigest()
    with nothing_left(files):
        for link in ("/etc/passwd", "../../../../../../../etc/passwd"):
            task_id = files.submit("--", "ln", "-s", link, "outputs/x")
            assert ended(files, task_id)["failure"]["kind"] == "forbidden_path"
        task_id = files.submit("--", "ln", "-s", "/etc", "outputs/folder")
        assert ended(files, task_id)["failure"]["kind"] == "forbidden_path"
    assert passwd not in files.depot.digests()


def test_a_cancelled_program_that_ignores_it_is_killed(files: FilesFleet) -> None:
    with nothing_left(files):
        task_id = files.submit("--", "sh", "-c", STUBBORN)
        wait_until(lambda: "ready" in files.fine("logs", task_id).out, "it runs", 30)
        files.fine("cancel", task_id)
        assert ended(files, task_id)["state"] == "CANCELLED"
        assert "CANCELLED" in files.explained(task_id)


@pytest.mark.parametrize(
    ("size", "kind"), [(300_000_000, "result_too_large"), (10_000_000_000, "printed_too_much")], ids=str
)
def test_any_amount_may_be_printed_and_little_is_kept(files: FilesFleet, size: int, kind: str) -> None:
    """Without a limit of its own: a value that is too large, or the worker's limit; and the newest MiB of the log."""
    with nothing_left(files):
        task_id = files.submit("--", "sh", "-c", f"yes | head -c {size}")
        row = ended(files, task_id, 300)
        assert kind_of(row) == kind
        assert len(files.fine("logs", task_id).out) <= MIB
        assert max(peaks(files.fleet, "coordinator", "w1").values()) < 150


@contextmanager
def small_disk(folder: Path) -> Generator[Path]:
    """A file system of 32 MiB."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m", "tenure-test", str(folder)], check=False, capture_output=True
    )
    if mounted.returncode:
        unavailable(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        wait_until(lambda: not subprocess.run(["umount", str(folder)], check=False).returncode, "it is unmounted")


def test_a_program_that_fills_the_worker_s_disk_fails_alone(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk, files_fleet(tmp_path, [Worker("w1", slots=1, state=disk)]) as files:
        with nothing_left(files, disk):
            task_id = files.submit("--", "sh", "-c", FILL)
            row = ended(files, task_id)
            assert row["failure"]["kind"] == "disk_limit"
            assert "disk" in files.explained(task_id)
        assert psutil.disk_usage(str(disk)).used < MIB
