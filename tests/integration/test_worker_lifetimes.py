"""Workers that end by themselves, with real runners: gone before the wall, and nothing of theirs is left running."""

from pathlib import Path

from tenure.clock import SystemClock
from tenure.protocol.worker_messages import Cause, Leaving
from tenure.workers.lifetime import Lifetime
from tests.fixtures_worker import Bench, call, python
from tests.waiting import wait_until

WALL_MS = 8_000
FOREVER = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(600)"


def runs(pid: Path) -> bool:
    return Path(f"/proc/{pid.read_text()}").exists()


def test_a_worker_is_gone_before_its_wall_with_all_that_it_ran_and_has_told_it(tmp_path: Path) -> None:
    clock, pid = SystemClock(), tmp_path / "pid"
    wall_ms = clock.elapsed_ms() + WALL_MS
    bench = Bench(tmp_path / "state", wall_ms=wall_ms, ttl_ms=2_000)
    try:
        long, endless = bench.publish(call("add", 1, 2, timeout_ms=3_600_000), python(FOREVER, str(pid)))
        refused = bench.released(long)
        assert (refused.cause, refused.started) == (Cause.REFUSED, False)
        assert refused.detail == "it may run 1 h, and this worker ends before that"
        bench.until(pid.exists, "the program runs")
        assert runs(pid)
        beat = bench.beat()
        assert beat is not None
        assert beat.remaining_ms is not None
        assert 0 < beat.remaining_ms < WALL_MS
        told = bench.released(endless, timeout_s=20)
        assert (told.cause, told.started, told.tree_gone) == (Cause.DRAINED, True, True)
        bench.until(lambda: not bench._thread.is_alive(), "the agent has ended")
        assert not runs(pid)
        assert clock.elapsed_ms() < wall_ms
        assert [event.gone for event in bench.events if isinstance(event, Leaving)] == [False, True]
    finally:
        bench.close()


def test_a_worker_with_nothing_to_do_leaves_by_itself(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "state", lifetime=Lifetime(max_idle_ms=1_500))
    try:
        (ticket,) = bench.publish(call("add", 1, 2))
        bench.result(ticket)
        bench.until(lambda: Leaving(gone=True) in bench.events, "it has left")
        bench.until(lambda: not bench._thread.is_alive(), "the agent has ended")
    finally:
        bench.close()


def test_what_runs_when_a_worker_is_asked_to_end_is_given_so_long_and_no_longer(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    bench = Bench(tmp_path / "state", lifetime=Lifetime(drain_ms=300))
    try:
        (ticket,) = bench.publish(python(FOREVER, str(pid)))
        bench.until(pid.exists, "the program runs")
        bench.drain()
        assert bench.released(ticket).cause is Cause.DRAINED
        wait_until(lambda: not runs(pid), "the program has ended")
    finally:
        bench.close()
