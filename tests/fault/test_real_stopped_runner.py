"""A runner that somebody has stopped cannot end its work by itself; its agent wakes it when that is needed."""

import signal

import psutil
import pytest

from tests import fixtures_fleet_handlers as handlers
from tests.fault.proxy import Proxy
from tests.fault.trial import CLOCK, Trials, long, noticed
from tests.fixtures_fleet import Fleet, Worker
from tests.waiting import wait_until


def stop_runner(pid: int) -> None:
    psutil.Process(psutil.Process(pid).ppid()).send_signal(signal.SIGSTOP)


@pytest.mark.parametrize("repeats", [1, long(6)])
def test_a_cut_off_worker_ends_what_its_stopped_runner_runs(trials: Trials, repeats: int) -> None:
    fault = "worker cut off while a runner is stopped"
    lines = {name: Proxy(0) for name in ("w1", "w2")}

    def connect(fleet: Fleet) -> None:
        for line in lines.values():
            line.target = fleet.server.port

    try:
        workers = [Worker(name, slots=1, url=line.url) for name, line in lines.items()]
        with trials.fleet(*workers, prepare=connect) as fleet:
            for _ in range(repeats):
                sweep = trials.sweep(fleet, count=1, seconds=7, handler=handlers.stubborn)
                (hit,) = sweep.wait_for_running(1)
                line = lines[fleet.worker_of(hit.pid)]
                stop_runner(hit.pid)
                struck_ms = CLOCK.now_ms()
                line.lead_nowhere()
                sweep.wait_for_next_attempt([hit])
                line.heal()
                trials.judge(fault, fleet, sweep)
                trials.of(fault).notice_ms += noticed(fleet, [hit], struck_ms)
    finally:
        for line in lines.values():
            line.close()


def test_a_task_is_cancelled_although_its_runner_is_stopped(trials: Trials) -> None:
    with trials.fleet(Worker("w1", slots=1)) as fleet:
        sweep = trials.sweep(fleet, count=1, seconds=30)
        (victim,) = sweep.wait_for_running(1)
        stop_runner(victim.pid)
        fleet.client.cancel(sweep.handles)
        wait_until(sweep.handles[0].cancelled, "it is cancelled", 10)

        assert not psutil.pid_exists(victim.pid)
        assert fleet.client.submit(handlers.count, 3).result(10) == 3
