"""Workers that get little of the processor, or whose tasks hold the interpreter's lock or stand still, are not dead.

The long form compresses time: four minutes at a ttl of 2 s stand for an hour at the default ttl of 30 s.
"""

import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psutil
import pytest

from tests import fixtures_fleet_handlers as handlers
from tests.fault.instrument import Execution, Records
from tests.fault.trial import CLOCK, Sweep, Trials, long, wait_for_time
from tests.fixtures_fleet import TTL_MS, Fleet, Worker

HOGS_PER_CORE = 4
LETTERS = 26
"""A regular expression that backtracks over so many letters takes longer than a ttl, in one call."""
STALL_MS = TTL_MS + TTL_MS // 2
NS = 1_000_000
SECONDS = [3, long(240)]


@contextmanager
def busy_processors() -> Generator[None]:
    """Several endless loops per processor, with the same right to it as the fleet."""
    count = HOGS_PER_CORE * (psutil.cpu_count() or 1)
    hogs = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def mixed_sweeps(trials: Trials, fleet: Fleet) -> list[Sweep]:
    """One round of tasks of every kind, each longer than a ttl."""
    return [
        trials.sweep(fleet, 2, 1.5 * TTL_MS / 1000, handlers.work),
        trials.sweep(fleet, 2, 1.5 * TTL_MS / 1000, handlers.work_async),
        trials.sweep(fleet, 2, 1.5 * TTL_MS / 1000, handlers.hold_the_lock),
        trials.sweep(fleet, 1, LETTERS, handlers.hold_the_lock_once),
    ]


@dataclass(frozen=True)
class Stall:
    """Which children stood still, from when to when: not a moment less. What ends after `waking_ns` has been woken."""

    pids: frozenset[int]
    began_ns: int
    waking_ns: int
    ended_ns: int

    def of(self, execution: Execution) -> int:
        """For how long this execution stood still, in nanoseconds."""
        met = execution.pid in self.pids and execution.started_ns < self.ended_ns and execution.ended_ns > self.began_ns
        return self.ended_ns - self.began_ns if met else 0


def stall(sweeps: Sequence[Sweep]) -> Stall:
    """Stop every child that works now for longer than a ttl: the work stands still, the worker does not."""
    pids = {each.pid for sweep in sweeps for each in sweep.running()}
    began_ms = CLOCK.elapsed_ms()
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            psutil.Process(pid).send_signal(signal.SIGSTOP)
    wait_for_time(STALL_MS)
    waking_ms = CLOCK.elapsed_ms()
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            psutil.Process(pid).resume()
    return Stall(frozenset(pids), began_ms * NS, waking_ms * NS, (CLOCK.elapsed_ms() + 1) * NS)


def check_strikes(stalled: Stall, sweeps: Sequence[Sweep]) -> None:
    """Each strike outlasted a ttl: one call that holds the lock, and a stall in the middle of what then went on."""
    ids = {task_id for sweep in sweeps for task_id in sweep.ids}
    executions = [each for each in sweeps[0].instrument.executions() if each.task_id in ids]
    calls = [each for each in executions if each.task_id in sweeps[-1].ids]
    held_ms = [(each.ended_ns - each.started_ns - stalled.of(each)) / NS for each in calls]
    assert min(held_ms) > TTL_MS, f"the lock was held for {held_ms} ms"
    assert stalled.waking_ns - stalled.began_ns > TTL_MS * NS
    met = [each for each in executions if stalled.of(each) and each.started_ns < stalled.began_ns]
    assert any(each.finished and each.ended_ns > stalled.waking_ns for each in met), "nothing that was stalled went on"


@pytest.mark.xdist_group("takes all processors")
@pytest.mark.parametrize("seconds", SECONDS)
def test_nobody_is_taken_for_dead_who_is_only_slow(trials: Trials, seconds: int) -> None:
    fault = "starved, GIL-held and stalled workers"
    workers = [Worker(f"w{number}", slots=3) for number in (1, 2, 3)]
    with trials.fleet(*workers) as fleet, busy_processors():
        until_ms = CLOCK.elapsed_ms() + seconds * 1000
        while CLOCK.elapsed_ms() < until_ms:
            sweeps = mixed_sweeps(trials, fleet)
            sweeps[0].wait_for_running(1)
            stalled = stall(sweeps)
            for sweep in sweeps:
                trials.judge(fault, fleet, sweep)
            check_strikes(stalled, sweeps)
        records = Records(fleet.database)
        trials.of(fault).add_false_deaths(records.count("SELECT count(*) FROM directive"))
        lost = records.rows("SELECT text FROM event WHERE kind IN ('lost', 'worker_state')")
        assert not lost, lost
