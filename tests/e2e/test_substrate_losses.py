"""What is lost on RQ and Ray, on whole fleets: one execution, one released lease with its cause, one directive."""

from __future__ import annotations

import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from tenure.client.handle import Handle
from tenure.clock import SystemClock
from tenure.protocol.launch import launch_name
from tenure.protocol.worker_messages import Cause
from tests.fault.instrument import Instrument
from tests.fixtures_parity import PARENT, PATIENCE_S, Parity, open_fleet_of_nobody, open_parity
from tests.launcher_ray import RayBench
from tests.launcher_rq import RqBench
from tests.ray_cluster import ray_cluster, start_cluster
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("launcher ray")]

TTL = "30s"
NOTICED_WITHIN_MS = 15_000


@pytest.fixture
def instrument(tmp_path: Path) -> Iterator[Instrument]:
    instrument = Instrument(tmp_path / "marks")
    yield instrument
    instrument.close()


# One fleet at a time: each claims every process that starts while it is there.
@pytest.fixture
def ray(tmp_path: Path) -> Iterator[Parity]:
    with open_parity("ray", tmp_path) as parity:
        yield parity


@pytest.fixture
def rq(tmp_path: Path) -> Iterator[Parity]:
    with open_parity("rq", tmp_path) as parity:
        yield parity


@contextmanager
def running(parity: Parity, instrument: Instrument) -> Generator[tuple[Handle[Any], psutil.Process]]:
    """A task whose loss is held for a person's decision, and its executor; it runs until the end of the block."""
    instrument.hold()
    handle = parity.work(instrument, 0, lease_ttl=TTL)
    parity.wait_for_start(instrument, handle)
    executor = parity.executor(handle)
    yield handle, executor
    assert len(instrument.executions()) == 1
    instrument.let_go()


def released(parity: Parity, handle: Handle[Any], instrument: Instrument, since_ms: int) -> str:
    """The cause of the one lease, which is over long before its ttl, with one directive, and nothing that runs."""

    def is_over() -> bool:
        return bool(parity.leases(handle)[0]["state"] == "RELEASED")

    wait_until(is_over, "its lease is released", PATIENCE_S)
    (lease,) = parity.leases(handle)
    assert lease["ended_at_ms"] - since_ms < NOTICED_WITHIN_MS
    assert len(parity.records.rows("SELECT reason FROM directive WHERE task_id = ?", handle.task_id)) == 1
    wait_until(lambda: not instrument.running(), "nothing runs any more")
    return str(lease["cause"])


EAT = """
import os, sys
with open(sys.argv[1], "a") as marks:
    marks.write("started\\n")
eaten = [os.urandom(1024) * 20_000 for _ in range(400)]
"""


@pytest.mark.slow
def test_memory_runs_low_on_a_ray_node(tmp_path: Path, instrument: Instrument) -> None:
    """Ray's monitor kills the Ray worker whose executor's task has eaten it, when 2 GiB more are used than now."""
    memory = psutil.virtual_memory()
    least = 1 - (memory.available - 2 * 1024**3) / memory.total
    cluster = start_cluster(RAY_memory_usage_threshold=f"{least:.4f}", RAY_memory_monitor_refresh_ms="50")
    marks = tmp_path / "marks.txt"
    try:
        with open_fleet_of_nobody(tmp_path) as fleet:
            parity = Parity("ray", fleet, RayBench(cluster.options()), tmp_path)
            parity.start_parent()
            argv = [sys.executable, "-c", EAT, str(marks)]
            handle = fleet.client.using(lease_ttl=TTL).command(argv)
            wait_until(marks.exists, "it has started", PATIENCE_S)
            assert released(parity, handle, instrument, SystemClock().now_ms()) == Cause.OOM_KILLED
            assert marks.read_text() == "started\n"
            fleet.processes[PARENT].signal(15)
            assert fleet.processes[PARENT].wait(60) == 0
    finally:
        cluster.close()


def host_of(executor: psutil.Process) -> psutil.Process:
    """The substrate's own process that has started the executor."""
    return cast("psutil.Process", executor.parent())


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)], ids=["killed", "sys.exit"]
)
def test_a_ray_worker_is_lost(ray: Parity, instrument: Instrument, number: signal.Signals) -> None:
    """Ray answers SIGTERM with `sys.exit` in its worker."""
    with running(ray, instrument) as (handle, executor):
        host_of(executor).send_signal(number)
        assert released(ray, handle, instrument, SystemClock().now_ms()) == Cause.EXECUTOR_DIED


@pytest.mark.slow
def test_a_placement_group_is_removed(ray: Parity, instrument: Instrument) -> None:
    with running(ray, instrument) as (handle, _):
        ray_cluster().remove_group(launch_name(handle.task_id, ray.leases(handle)[0]["fence"], PARENT))
        assert released(ray, handle, instrument, SystemClock().now_ms()) == Cause.EXECUTOR_REMOVED


def test_a_work_horse_is_killed(rq: Parity, instrument: Instrument) -> None:
    with running(rq, instrument) as (handle, executor):
        host_of(executor).kill()
        assert released(rq, handle, instrument, SystemClock().now_ms()) == Cause.EXECUTOR_DIED


@pytest.mark.slow
def test_an_rq_worker_is_killed_and_nothing_is_lost(rq: Parity, instrument: Instrument) -> None:
    """Its work-horse lives on, and so does the executor, whatever RQ's records say."""
    with running(rq, instrument) as (handle, executor):
        cast("psutil.Process", host_of(executor).parent()).kill()
        cast("RqBench", rq.bench).fleet.start_worker()
    assert handle.result(PATIENCE_S) == 1
    assert [lease["state"] for lease in rq.leases(handle)] == ["COMPLETED"]


@pytest.mark.slow
def test_rqs_database_is_flushed_and_nothing_is_lost(rq: Parity, instrument: Instrument) -> None:
    with running(rq, instrument) as (handle, _):
        cast("RqBench", rq.bench).fleet.server.admin("FLUSHALL")
    assert handle.result(PATIENCE_S) == 1
    assert [lease["state"] for lease in rq.leases(handle)] == ["COMPLETED"]
