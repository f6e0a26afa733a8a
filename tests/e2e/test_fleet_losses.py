"""`tenure up` loses a worker, its coordinator, its broker or the broker's data in the middle of a real sweep."""

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

import tenure
from tenure.broker.redis_connection import RedisConnection
from tenure.broker.url import BrokerUrl
from tenure.client.client import Client
from tenure.client.options import ClientOptions
from tests import fixtures_fleet_handlers as handlers
from tests.fault.instrument import Instrument, Records, check
from tests.fault.trial import Sweep
from tests.fixtures_e2e import Up, up
from tests.waiting import wait_until

TASKS = 24


@contextmanager
def fleet_under_sweep(folder: Path, retry: tenure.Retry) -> Generator[tuple[Up, Sweep]]:
    """A fleet of two workers in the middle of a sweep of `TASKS` tasks."""
    instrument = Instrument(folder / "marks")
    try:
        with up(folder, "--allow", handlers.__name__, "--slots", "2") as fleet:
            url = (folder / "data" / "up" / "broker.url").read_text().strip()
            with Client(url, options=ClientOptions(lost="wait", patience_ms=60_000)) as client:
                said = client.using(lease_ttl="2s", retry=retry)
                marks = [str(instrument.path)] * TASKS
                sweep = Sweep(said.map(handlers.work, marks, range(TASKS), [0.3] * TASKS), instrument)
                sweep.wait_for_results(4)
                instrument.hold()
                sweep.wait_for_running(3)
                yield fleet, sweep
    finally:
        instrument.close()


def records(folder: Path) -> Records:
    return Records(folder / "data" / "up" / "tenure.db")


def kill_a_busy_worker(sweep: Sweep) -> None:
    child = psutil.Process(sweep.running()[0].pid)
    agent = next(each for each in child.parents() if "worker" in each.cmdline())
    agent.send_signal(signal.SIGKILL)


def test_a_killed_workers_tasks_are_run_again_under_directives(tmp_path: Path) -> None:
    with fleet_under_sweep(tmp_path, tenure.Retry(lost=1)) as (_, sweep):
        kill_a_busy_worker(sweep)
        assert sweep.results() == list(range(TASKS))
        again = [each for each in sweep.instrument.executions() if each.attempt > 1]
        decided = records(tmp_path).rows("SELECT task_id, next_attempt, state, decided_by FROM directive")
        assert again
        assert {(each.task_id, 2, "APPROVED", "policy: the submitter's retry budget") for each in again} == set(decided)
        assert not check(sweep.instrument.executions(), records(tmp_path), sweep.ids).problems()


def test_without_retries_they_are_lost_explained_and_run_when_somebody_approves(tmp_path: Path) -> None:
    with fleet_under_sweep(tmp_path, tenure.Retry()) as (fleet, sweep):
        kill_a_busy_worker(sweep)
        wait_until(lambda: fleet.rows("tasks", "list", "--state", "LOST"), "tasks are LOST", 20)
        wait_until(lambda: len(fleet.rows("directives", "list", "--state", "PENDING")) > 0, "a directive waits")
        lost = fleet.rows("tasks", "list", "--state", "LOST")[0]["task_id"]
        said = fleet.run("explain", lost).out

        assert "was restarted, and what it ran is gone" in said or "was not heard for" in said
        assert "held for a person to decide" in said
        assert f"tenure directives approve {lost}" in said
        over = {"SUCCEEDED", "LOST"}
        wait_until(lambda: {row["state"] for row in fleet.rows("tasks", "list")} <= over, "nothing else runs", 20)
        assert fleet.run("directives", "approve", "--all", "--note", "seen").code == 0
        assert sweep.results() == list(range(TASKS))
        assert not check(sweep.instrument.executions(), records(tmp_path), sweep.ids).problems()


def kill_the_coordinator(fleet: Up) -> None:
    coordinator = next(each for each in fleet.family() if "coordinator" in each.cmdline())
    coordinator.send_signal(signal.SIGKILL)


def kill_the_broker(fleet: Up) -> None:
    server = next(each for each in fleet.family() if "server" in each.name())
    server.send_signal(signal.SIGKILL)


def flush_the_broker(fleet: Up) -> None:
    connection = RedisConnection(BrokerUrl((fleet.folder / "data" / "up" / "broker.url").read_text().strip()))
    try:
        assert connection.call("FLUSHALL") == b"OK"
    finally:
        connection.close()


@pytest.mark.parametrize(
    "strike", [kill_the_coordinator, flush_the_broker, pytest.param(kill_the_broker, marks=pytest.mark.slow)]
)
def test_nothing_is_lost_and_nothing_runs_twice(tmp_path: Path, strike: Callable[[Up], None]) -> None:
    with fleet_under_sweep(tmp_path, tenure.Retry()) as (fleet, sweep):
        strike(fleet)
        assert sweep.results() == list(range(TASKS))
        executions = sweep.instrument.executions()
        assert len(executions) == TASKS
        assert not check(executions, records(tmp_path), sweep.ids).problems()
