"""A worker's processes are killed, stopped and woken again in the middle of a sweep, on a real fleet."""

import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress

import psutil
import pytest

import tenure
from tests import fixtures_fleet_handlers as handlers
from tests.fault.figures import WAKINGS
from tests.fault.instrument import Execution, Records, check
from tests.fault.trial import CLOCK, Sweep, Trials, long, noticed, wait_for_loss, wait_for_time
from tests.fixtures_fleet import TTL_MS, Fleet, Worker, resume, tend

Target = Callable[[Fleet, Execution], list[psutil.Process]]


def agent(fleet: Fleet, victim: Execution) -> list[psutil.Process]:
    return [psutil.Process(fleet.processes[fleet.worker_of(victim.pid)].pid)]


def runner(_: Fleet, victim: Execution) -> list[psutil.Process]:
    return [psutil.Process(psutil.Process(victim.pid).ppid())]


def child(_: Fleet, victim: Execution) -> list[psutil.Process]:
    return [psutil.Process(victim.pid)]


def whole_worker(fleet: Fleet, victim: Execution) -> list[psutil.Process]:
    return fleet.everything_of(fleet.worker_of(victim.pid))


TARGETS: dict[str, Target] = {"agent": agent, "runner": runner, "child": child, "whole worker": whole_worker}
REPEATS = [1, long(5)]


def send(processes: Iterable[psutil.Process], number: int) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # it may end with the one before it
            process.send_signal(number)


def victims(sweep: Sweep, processes: Iterable[psutil.Process]) -> list[Execution]:
    """What these processes, or those below them, execute."""
    pids = {each.pid for process in processes for each in (process, *process.children(recursive=True))}
    return [each for each in sweep.running() if each.pid in pids]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("repeats", REPEATS)
def test_what_a_killed_process_ran_is_lost_noticed_and_run_again(trials: Trials, target: str, repeats: int) -> None:
    fault = f"SIGKILL of {target}"
    with trials.fleet() as fleet:
        for _ in range(repeats):
            sweep = trials.sweep(fleet, seconds=0.8, held=True)
            victim = sweep.wait_for_running(3)[0]
            name = fleet.worker_of(victim.pid)
            struck = TARGETS[target](fleet, victim)
            hit = victims(sweep, struck)
            struck_ms = CLOCK.now_ms()
            send(struck, signal.SIGKILL)
            if target in {"agent", "whole worker"}:
                fleet.processes[name].wait()
                fleet.start_worker(Worker(name))
            trials.judge(fault, fleet, sweep)
            trials.of(fault).notice_ms += noticed(fleet, hit, struck_ms)
    assert trials.of(fault).notice_ms, "nothing was hit"


@pytest.mark.parametrize("repeats", REPEATS)
def test_what_a_stopped_agent_held_has_ended_before_it_is_run_again(trials: Trials, repeats: int) -> None:
    """The runners end the work in time, although nobody tells them to."""
    fault = "SIGSTOP of agent past its lease"
    with trials.fleet() as fleet:
        for _ in range(repeats):
            sweep = trials.sweep(fleet, count=4, seconds=3.4, held=True)
            struck = agent(fleet, sweep.wait_for_running(3)[0])
            hit = victims(sweep, struck)
            struck_ms = CLOCK.now_ms()
            send(struck, signal.SIGSTOP)
            wait_for_loss(fleet, hit)
            sweep.wait_for_next_attempt(hit)
            resume(struck)
            trials.judge(fault, fleet, sweep)
            trials.of(fault).notice_ms += noticed(fleet, hit, struck_ms)


@pytest.mark.parametrize("repeats", REPEATS)
def test_a_suspended_host_that_wakes_ends_what_was_given_to_others(trials: Trials, repeats: int) -> None:
    """Its processes may go on for the moment that its runners need to see how late it is; nothing of it is accepted."""
    fault = "suspended host"
    with trials.fleet() as fleet:
        for _ in range(repeats):
            sweep = trials.sweep(fleet, count=4, seconds=3.4, held=True)
            # All of them: one that begins on this host a moment later would be taken for one that nobody had suspended.
            struck = whole_worker(fleet, sweep.wait_for_running(4)[0])
            hit = victims(sweep, struck)
            struck_ms = CLOCK.now_ms()
            send(struck, signal.SIGSTOP)
            stopped_ns = (CLOCK.elapsed_ms() + 1) * 1_000_000
            wait_for_loss(fleet, hit)
            sweep.wait_for_next_attempt(hit)
            pids = {each.pid for each in hit}
            woken_ms = CLOCK.elapsed_ms()
            resume(reversed(struck))
            findings = trials.judge(fault, fleet, sweep, suspended=pids, stopped_ns=stopped_ns)
            assert findings.executions >= len(sweep.ids) + len(hit)
            ends_ns = [each.ended_ns for each in trials.instrument.executions() if each.pid in pids]
            figures = trials.of(fault)
            figures.notice_ms += noticed(fleet, hit, struck_ms)
            figures.ran_on_ms = max(figures.ran_on_ms or 0, max(ends_ns) / 1e6 - woken_ms)
            assert 0 not in ends_ns
            assert figures.ran_on_ms < 1_000 + WAKINGS * trials.instrument.delay_ms()


@pytest.mark.parametrize(("target", "repeats"), [("child", 1), long("child", 5), long("runner", 5)])
def test_a_stopped_runner_or_child_does_not_kill_its_worker(trials: Trials, target: str, repeats: int) -> None:
    """The agent goes on renewing; the work is slow, not lost."""
    fault = f"SIGSTOP of {target} past its lease"
    with trials.fleet() as fleet:
        for _ in range(repeats):
            sweep = trials.sweep(fleet, count=6, seconds=0.6, held=True)
            struck = TARGETS[target](fleet, sweep.wait_for_running(3)[0])
            send(struck, signal.SIGSTOP)
            wait_for_time(3_500)
            resume(struck)
            trials.judge_alive(fault, fleet, sweep)


@pytest.mark.parametrize(("struck", "repeats"), [("runner", 1), long("runner", 5), long("agent", 5)])
def test_what_a_command_started_in_a_session_of_its_own_ends_with_it(trials: Trials, struck: str, repeats: int) -> None:
    """Nothing that belongs to an attempt is left when the next one starts, whichever process watched over it."""
    fault = f"SIGKILL of {struck} over a detached process"
    with trials.fleet() as fleet:
        for _ in range(repeats):
            said = fleet.client.using(lease_ttl=f"{TTL_MS}ms", retry=tenure.Retry(lost=5))
            argv = [sys.executable, handlers.__file__, str(trials.instrument.path), "5", "--detached"]
            sweep = Sweep([said.command(argv)], trials.instrument)
            (victim,) = sweep.wait_for_running(1)
            above = {each.pid: each for each in psutil.Process(victim.pid).parents()}
            name = fleet.worker_of(victim.pid)
            the_agent = fleet.processes[name].pid
            the_runner = next(each for each in above.values() if each.ppid() == the_agent)
            struck_ms = CLOCK.now_ms()
            os.kill(the_agent if struck == "agent" else the_runner.pid, signal.SIGKILL)
            wait_for_loss(fleet, [victim])
            sweep.wait_for_next_attempt([victim])
            trials.of(fault).notice_ms += noticed(fleet, [victim], struck_ms)
            assert not psutil.pid_exists(victim.pid)
            tend(fleet, name)
            assert sweep.results() == ["done"]
            findings = check(trials.instrument.executions(), Records(fleet.database), sweep.ids)
            trials.of(fault).add(findings)
            assert not findings.problems()
