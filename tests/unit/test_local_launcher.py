"""What the end of a local executor is said to be, and how processes are known again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tenure.clock import SystemClock, SystemEntropy
from tenure.errors import LaunchRefused, SubstrateUnreachable
from tenure.launchers.base import ExecutorCommand, Handle, LauncherSettings, Phase
from tenure.launchers.local_ends import ending
from tenure.launchers.local_launcher import create
from tenure.launchers.local_process import LocalProcess
from tenure.processes.trees import children
from tenure.processes.watching import ProcessMark, mark_of, started_with, this_place
from tenure.protocol.worker_messages import Cause
from tests.stand_in import order

ABSENT = ProcessMark(4_000_000, 1)


@pytest.mark.parametrize(
    ("code", "out_of_memory", "cause", "words"),
    [
        (0, False, None, "has ended with exit code 0"),
        (3, False, Cause.EXECUTOR_DIED, "has ended with exit code 3: the last words"),
        (-signal.SIGKILL, False, Cause.EXECUTOR_DIED, "was ended by SIGKILL: the last words"),
        (-signal.SIGKILL, True, Cause.OOM_KILLED, "was ended by SIGKILL"),
        (-signal.SIGTERM, True, Cause.EXECUTOR_DIED, "was ended by SIGTERM"),
        (None, True, None, "while nobody waited for it"),
    ],
)
def test_the_cause_of_an_end_is_no_more_than_what_is_known(
    tmp_path: Path, code: int | None, *, out_of_memory: bool, cause: Cause | None, words: str
) -> None:
    (tmp_path / "printed").write_text("much\nthe last words\n\n")
    process = LocalProcess(ABSENT)
    process.code, process.out_of_memory = code, out_of_memory
    seen = ending(process, tmp_path / "printed")

    assert (seen.phase, seen.cause, seen.proved) == (Phase.ENDED, cause, True)
    assert words in seen.detail


def test_an_end_that_was_ordered_has_no_cause_of_its_own(tmp_path: Path) -> None:
    process = LocalProcess(ABSENT)
    process.end(0, 1_000)
    process.code = -signal.SIGTERM
    assert ending(process, tmp_path / "absent").cause is None


def test_a_process_is_known_by_when_it_started() -> None:
    mark = mark_of(os.getpid())
    assert mark is not None
    assert mark.is_alive()
    assert not mark._replace(start_ticks=mark.start_ticks + 1).is_alive()
    assert mark_of(ABSENT.pid) is None
    assert started_with("no process has this among its words", os.getuid()) is None


def settings(folder: Path, *program: str) -> LauncherSettings:
    return LauncherSettings(ExecutorCommand(program), folder, SystemClock(), SystemEntropy())


@pytest.mark.parametrize("program", ["no-such-program", "/etc/passwd"])
def test_a_program_that_cannot_be_started_is_refused(tmp_path: Path, program: str) -> None:
    launcher = create(settings(tmp_path, program))
    with pytest.raises(LaunchRefused, match=program):
        launcher.launch(launcher.render(order()))
    assert not list((tmp_path / "local").iterdir())


def test_a_process_of_another_boot_is_missing_and_nothing_is_proved(tmp_path: Path) -> None:
    mark = mark_of(os.getpid())
    assert mark is not None
    launcher = create(settings(tmp_path, "tenure"))
    for address in (f"{mark.pid}/{mark.start_ticks}@another:1", f"{mark.pid}@{this_place()}", "a/b@c", ""):
        seen = launcher.probe(Handle(launcher="local", name="tenure-x-f1", address=address))
        assert (seen.phase, seen.proved) == (Phase.MISSING, False)


def test_a_record_that_cannot_be_read_now_is_kept_and_proves_nothing(tmp_path: Path) -> None:
    """It may be of an executor that runs: a host may be short of open files for a moment."""
    launcher = create(settings(tmp_path, "no-such-program"))
    plan = launcher.render(order())
    record = tmp_path / "local" / plan.name / "address"
    record.mkdir(parents=True)  # reading it fails, whoever this test runs as
    with pytest.raises(SubstrateUnreachable, match="cannot be read"):
        launcher.launch(plan)
    assert record.exists()


def test_a_process_whose_record_cannot_be_written_is_ended_and_waited_for(tmp_path: Path) -> None:
    launcher = create(settings(tmp_path, sys.executable, "-c", "import signal; signal.pause()"))
    plan = launcher.render(order())
    (tmp_path / "local" / plan.name / "address.new").mkdir(parents=True)  # writing it fails, whoever runs this
    before = children(os.getpid())
    with pytest.raises(LaunchRefused, match=r"address\.new"):
        launcher.launch(plan)
    assert set(children(os.getpid())) == set(before)


def test_what_another_account_runs_is_not_taken_for_an_executor() -> None:
    """Command lines can be read by everybody, and so can be repeated by everybody."""
    word = f"a word that is nowhere else: {os.getpid()}"
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", word],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        own, another = started_with(word, os.getuid()), started_with(word, os.getuid() + 1)
        process.communicate()
    assert (own and own.pid, another) == (process.pid, None)
