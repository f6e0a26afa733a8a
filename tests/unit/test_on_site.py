"""Executors that are started from inside a substrate's process."""

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from subprocess import Popen

import pytest

from tenure.launchers.on_site import start_on_site
from tests.waiting import wait_until

SLEEP = ["sleep", "600"]


@contextmanager
def started(*, apart: bool) -> Generator[Popen[bytes]]:
    process = start_on_site(SLEEP, {}, apart=apart)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("apart", [True, False])
def test_a_signal_to_the_substrates_processes_reaches_an_executor_that_is_not_apart(*, apart: bool) -> None:
    with started(apart=apart) as process:
        assert (os.getpgid(process.pid) == os.getpgid(0)) is not apart


def test_an_executor_that_is_apart_ends_with_its_substrates_process_all_the_same() -> None:
    script = (
        "import sys; from tenure.launchers.on_site import start_on_site; "
        f"print(start_on_site({SLEEP!r}, {{}}, apart=True).pid, flush=True); sys.stdin.read()"
    )
    with Popen([sys.executable, "-c", script], stdin=-1, stdout=-1) as substrate:
        assert substrate.stdout is not None
        executor = int(substrate.stdout.readline())
        substrate.send_signal(signal.SIGKILL)
        substrate.wait()
    wait_until(lambda: not _lives(executor), "it has ended")


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
