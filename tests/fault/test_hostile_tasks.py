"""Commands that do harm: each ends with its own clear outcome, and leaves neither a process nor a folder behind."""

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tenure.clock import SystemClock
from tenure.protocol.worker_messages import FailureKind
from tests.fixtures_runner import RunnerBench
from tests.waiting import wait_until

MIB = 1 << 20


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[RunnerBench]:
    """A runner that must have no process and no folder left after each test."""
    bench = RunnerBench(tmp_path)
    yield bench
    if bench.reports:
        bench.clean()
        wait_until(lambda: list(tmp_path.glob("task-*")) == [], "the folder is gone", 30)
        assert psutil.Process(bench.process.pid).children(recursive=True) == []
    bench.close()


def test_a_daemon_that_was_forked_away_is_ended_and_noted(bench: RunnerBench, tmp_path: Path) -> None:
    script = (
        "import os, signal, time\n"
        "for _ in range(3):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "        if os.fork(): os._exit(0)\n"
        "        os.chdir('/'); time.sleep(600)\n"
        "open('result.json', 'w').write('1')\n"
    )
    bench.python(script, form="folder")
    ended = bench.ended()
    assert ended.outcome is not None
    assert ended.outcome.value == "1"
    assert ended.notes == ("3 processes were left behind by the program, and ended",)


@pytest.mark.parametrize("where", ["outputs/big", "/proc/self/fd/9"])
def test_a_command_that_fills_the_disk_is_ended_at_its_limit(bench: RunnerBench, where: str) -> None:
    """Also when the file that grows has no name any more."""
    script = f"exec 9> unnamed; rm unnamed; while :; do head -c 1000000 /dev/zero >> {where}; sleep 0.02; done"
    bench.start("sh", "-c", script, limits={"disk": 20 * MIB})
    assert bench.failure() is FailureKind.DISK_LIMIT
    assert bench.report()["allowed"] == 20 * MIB


def test_what_is_over_the_limit_at_the_end_counts_however_fast_it_was(bench: RunnerBench) -> None:
    bench.start("sh", "-c", "head -c 30000000 /dev/zero > outputs/big", limits={"disk": 20 * MIB})
    assert bench.failure() is FailureKind.DISK_LIMIT


@pytest.mark.parametrize(
    "script",
    [
        "open('outputs/big', 'wb').write(bytes(3 << 20))",
        "import signal; signal.signal(signal.SIGXFSZ, 0); open('outputs/big', 'wb').write(bytes(3 << 20))",
        "import subprocess; subprocess.run('head -c 9000000 /dev/zero > big', shell=True, check=True)",
    ],
)
def test_a_file_over_the_limit_is_cut_there(bench: RunnerBench, script: str) -> None:
    folder = bench.python(script, limits={"file": 2 * MIB})
    assert bench.failure() is FailureKind.FILE_TOO_LARGE
    assert max(file.stat().st_size for file in folder.rglob("*")) == 2 * MIB


def test_a_hundred_thousand_files_are_too_many(bench: RunnerBench) -> None:
    script = "import os\nfor n in range(100000): os.close(os.open(f'outputs/{n}', os.O_CREAT))"
    bench.python(script, limits={"files": 5_000})
    assert bench.failure(60) is FailureKind.TOO_MANY_FILES


def test_a_hundred_thousand_files_without_a_limit_are_removed(bench: RunnerBench) -> None:
    script = "import os\nfor n in range(100000): os.close(os.open(f'outputs/{n}', os.O_CREAT))"
    bench.python(script)
    assert bench.report(60)["code"] == 0


def test_folders_nested_without_end_are_too_many_and_are_removed(bench: RunnerBench) -> None:
    script = "import os\nfor n in range(1000): os.mkdir('d' * 20); os.chdir('d' * 20)\nopen('deep', 'w').write('x')"
    bench.python(script, limits={"files": 100_000})
    assert bench.failure() is FailureKind.TOO_MANY_FILES


def test_folders_that_nobody_may_read_or_change_are_counted_and_removed(bench: RunnerBench) -> None:
    script = "mkdir -p a/b; head -c 3000000 /dev/zero > a/b/big; echo x > a/b/c; chmod 0 a/b; chmod 500 a ."
    bench.start("sh", "-c", script, limits={"disk": MIB})
    assert bench.failure() is FailureKind.DISK_LIMIT


@pytest.mark.parametrize("stream", ["1", "2"])
def test_ten_gigabytes_of_output_are_ended_at_the_limit(bench: RunnerBench, stream: str) -> None:
    """The runner takes them as fast as they come, keeps next to nothing, and passes on little."""
    bench.start("sh", "-c", f"yes | head -c 10000000000 >&{stream}", limits={"printed": 50_000_000})
    assert bench.failure(60) is FailureKind.PRINTED_TOO_MUCH
    assert len(bench.text(int(stream))) < 5_000_000
    assert psutil.Process(bench.process.pid).memory_info().rss < 100 * MIB


def test_a_result_that_is_a_link_gives_nothing_away(bench: RunnerBench) -> None:
    bench.start("sh", "-c", "ln -s /etc/passwd result.json; ln -s /etc/passwd outputs/x", form="folder")
    assert bench.failure() is FailureKind.FORBIDDEN_PATH
    assert "root:" not in str(bench.reports)


def test_a_command_that_ignores_sigterm_is_killed_after_the_grace(bench: RunnerBench) -> None:
    clock = SystemClock()
    bench.start("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done")
    bench.until(lambda: bench.printed, "it runs")
    began_ms = clock.elapsed_ms()
    bench.send({"op": "stop", "run": bench.run, "grace": 300})
    report = bench.report()
    assert (report["reason"], report["code"]) == ("stop", -9)
    assert 300 <= clock.elapsed_ms() - began_ms < 5_000


def test_a_command_that_takes_too_much_memory_is_ended(bench: RunnerBench) -> None:
    bench.python("import time; held = bytearray(200 << 20); time.sleep(600)", limits={"memory": 100 * MIB})
    assert bench.failure() is FailureKind.OUT_OF_MEMORY


def test_memory_counts_for_all_processes_together(bench: RunnerBench) -> None:
    script = "import os, time\nfor _ in range(3): os.fork()\nheld = bytearray(os.urandom(20 << 20)); time.sleep(600)"
    bench.python(script, limits={"memory": 100 * MIB})
    assert bench.failure() is FailureKind.OUT_OF_MEMORY


def test_memory_that_processes_share_counts_once(bench: RunnerBench) -> None:
    script = (
        "import os, time; held = bytearray(os.urandom(60 << 20))\n"
        "for _ in range(3):\n"
        "    if os.fork() == 0: time.sleep(1.5); os._exit(0)\n"
        "for _ in range(3): os.wait()\n"
    )
    bench.python(script, limits={"memory": 120 * MIB})
    assert bench.value() == '""'


@pytest.mark.xdist_group("takes all processors")
def test_a_command_that_forks_without_end_is_ended_and_proved_gone(bench: RunnerBench) -> None:
    script = (
        "import os, time\nprint('x', flush=True)\n"
        "for _ in range(20):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        while True:\n"
        "            if os.fork() != 0: os._exit(0)\n"
        "            time.sleep(0.001)\n"
        "time.sleep(600)\n"
    )
    bench.python(script, limits={"memory": 4_000 * MIB, "files": 1_000})
    bench.until(lambda: bench.printed, "it runs")
    bench.send({"op": "stop", "run": bench.run, "grace": 100})
    assert bench.report()["reason"] == "stop"


def test_no_core_is_dumped(bench: RunnerBench) -> None:
    bench.python("import resource; print(resource.getrlimit(resource.RLIMIT_CORE))")
    assert bench.value() == '"(0, 0)\\n"'


def test_watching_a_task_that_does_little_costs_next_to_nothing(bench: RunnerBench) -> None:
    """Less than one per cent of a processor, with every limit set, half a hundred files and a few processes."""
    limits = {"memory": 1_000 * MIB, "disk": 1_000 * MIB, "file": 100 * MIB, "files": 1_000, "printed": 100 * MIB}
    script = "for i in $(seq 50); do echo $i > outputs/$i; done; sleep 600 & sleep 600 & echo x; wait"
    bench.start("sh", "-c", script, limits=limits)
    bench.until(lambda: bench.printed, "it runs")
    clock, runner = SystemClock(), psutil.Process(bench.process.pid)
    began_ms, began_s = clock.elapsed_ms(), sum(runner.cpu_times()[:2])
    wait_until(lambda: clock.elapsed_ms() - began_ms > 4_000, "four seconds have passed")
    used_s = sum(runner.cpu_times()[:2]) - began_s
    bench.send({"op": "stop", "run": bench.run, "grace": 100})
    bench.report()
    assert used_s < 0.01 * 4 + 2 / os.sysconf("SC_CLK_TCK")
