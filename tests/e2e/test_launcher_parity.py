"""What a task's author relies on, on every launcher: the same cases, with the same outcome.

A case that cannot be on some substrate is named with its reason in the bench of that launcher; the table in
docs/launchers.md is made from this (`tests/parity_table.py`), and a test compares it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

import tenure
from tenure.client.progress import Progress
from tenure.clock import SystemClock
from tenure.errors import TaskCancelled, TaskFailed
from tenure.protocol.client_messages import Query
from tenure.protocol.worker_messages import Cause
from tests import fixtures_launched_handlers as handlers
from tests.fault.instrument import Instrument, check
from tests.fixtures_fleet_handlers import count
from tests.fixtures_launchers import COLUMNS, bench_module
from tests.fixtures_parity import PATIENCE_S, SECRET, Parity, holders, open_parity, ticket_of, zombies
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)

LOST_TTL = "30s"
NOTICED_WITHIN_MS = 15_000
GONE = frozenset({Cause.EXECUTOR_DIED, Cause.EXECUTOR_REMOVED})
LEAVE = 'echo kept > outputs/made.txt; echo "$TENURE_ATTEMPT"'


@pytest.fixture(scope="module")
def fleets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Parity]]:
    """The fleet of a launcher, which all its cases share: one fleet at a time, for each adopts every orphan.

    The cases are in an order in which each launcher comes up once (`conftest.py`).
    """
    with ExitStack() as stack:
        opened: dict[str, Parity] = {}

        def fleet_of(name: str) -> Parity:
            if name not in opened:
                stack.close()
                opened.clear()
                opened[name] = stack.enter_context(open_parity(name, tmp_path_factory.mktemp(name)))
            return opened[name]

        yield fleet_of


@pytest.fixture(params=COLUMNS)
def parity(request: pytest.FixtureRequest, fleets: Callable[[str], Parity]) -> Parity:
    module = bench_module(request.param)
    case = request.node.originalname.removeprefix("test_")
    if module is not None and case in module.EXEMPT:
        pytest.skip(module.EXEMPT[case])
    return fleets(request.param)


@pytest.fixture
def instrument(tmp_path: Path) -> Iterator[Instrument]:
    instrument = Instrument(tmp_path / "marks")
    yield instrument
    instrument.close()


def test_success(parity: Parity) -> None:
    """A value comes back, from an executor of the parent."""
    handle = parity.submit(count, 42)

    assert handle.result(PATIENCE_S) == 42
    (lease,) = parity.leases(handle)
    assert lease["state"] == "COMPLETED"
    assert lease["worker_id"].startswith(f"{parity.seat.parent}.x")


def test_failure(parity: Parity) -> None:
    """What a handler raises is the task's end, and no loss."""
    handle = parity.submit(handlers.fail, retry=tenure.Retry(lost=3))

    with pytest.raises(TaskFailed, match="no good"):
        handle.result(PATIENCE_S)
    assert len(parity.leases(handle)) == 1


def test_timeout(parity: Parity, instrument: Instrument) -> None:
    """A task that runs too long is ended by its executor."""
    handle = parity.work(instrument, 60, timeout="1s")

    with pytest.raises(TaskFailed) as failed:
        handle.result(PATIENCE_S)
    assert failed.value.kind == "timeout"
    wait_until(lambda: not instrument.running(), "nothing runs any more")


def test_cancel_running(parity: Parity, instrument: Instrument) -> None:
    """The process is gone when the task is said to be cancelled."""
    handle = parity.work(instrument, 60)
    pid = parity.wait_for_start(instrument, handle)

    handle.cancel()
    with pytest.raises(TaskCancelled):
        handle.result(PATIENCE_S)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert len(parity.leases(handle)) == 1


def test_cancel_waiting(parity: Parity, instrument: Instrument) -> None:
    """A task that waits on the substrate never runs once it is cancelled."""
    parity.bench.hold()
    try:
        handle = parity.work(instrument, 0)
        wait_until(lambda: _is_launched(parity, handle.task_id), "it was launched", PATIENCE_S)
        handle.cancel()
        with pytest.raises(TaskCancelled):
            handle.result(PATIENCE_S)
    finally:
        parity.bench.let_go()
    assert parity.submit(count, 1).result(PATIENCE_S) == 1
    assert not instrument.executions()


def test_progress(parity: Parity, tmp_path: Path) -> None:
    """How far a task says that it is can be read while it runs."""
    handle = parity.submit(handlers.tell, str(tmp_path / "gate"))
    seen: list[Progress] = []

    def told() -> bool:
        seen[:] = filter(None, [handle.progress()])
        return bool(seen)

    wait_until(told, "it has said how far it is", PATIENCE_S)
    (tmp_path / "gate").touch()
    assert (seen[0].fraction, seen[0].message, seen[0].metrics) == (0.25, "a quarter", {"rows": 7})
    handle.result(PATIENCE_S)


def test_outputs(parity: Parity, tmp_path: Path) -> None:
    """Files that a program leaves are in the store, and can be fetched."""
    handle = parity.fleet.client.using().command(["/bin/sh", "-c", LEAVE])

    assert handle.result(PATIENCE_S).strip() == "1"
    assert (handle.download(tmp_path / "fetched", timeout=PATIENCE_S) / "made.txt").read_text() == "kept\n"


def test_lost_executor(parity: Parity, instrument: Instrument) -> None:
    """A killed executor's lease is released with its cause long before it runs out, and the task runs once more."""
    instrument.hold()
    handle = parity.work(instrument, 0.2, lease_ttl=LOST_TTL, retry=tenure.Retry(lost=1))
    parity.wait_for_start(instrument, handle)
    executor = parity.executor(handle)
    executor.send_signal(signal.SIGKILL)
    killed_ms = SystemClock().now_ms()
    wait_until(lambda: parity.leases(handle)[0]["state"] == "RELEASED", "its lease is released", PATIENCE_S)
    instrument.let_go()

    assert handle.result(PATIENCE_S) == 1
    first, second = parity.leases(handle)
    assert first["cause"] in GONE
    assert first["ended_at_ms"] - killed_ms < NOTICED_WITHIN_MS
    assert (first["attempt"], second["attempt"], second["state"]) == (1, 2, "COMPLETED")
    directives = parity.records.rows("SELECT reason FROM directive WHERE task_id = ?", handle.task_id)
    assert len(directives) == 1
    wait_until(lambda: not instrument.running(), "nothing runs any more")
    wait_until(lambda: not zombies(parity), "the worker has collected whatever has ended", PATIENCE_S)
    assert len(instrument.executions()) == 2
    assert not check(instrument.executions(), parity.records, [handle.task_id]).problems()


def test_second_executor(parity: Parity, instrument: Instrument) -> None:
    """A second executor of the same ticket ends in good order, and runs nothing."""
    instrument.hold()
    handle = parity.work(instrument, 0)
    parity.wait_for_start(instrument, handle)
    ticket = ticket_of(parity.executor(handle).cmdline(), handle.task_id)

    second = parity.run_by_hand(ticket)
    assert second.returncode == 0, second.stderr
    instrument.let_go()
    assert handle.result(PATIENCE_S) == 1
    late = parity.run_by_hand(ticket)
    assert late.returncode == 0, late.stderr
    assert len(instrument.executions()) == 1


def test_stale_result(parity: Parity, instrument: Instrument) -> None:
    """An executor that slept past its lease brings a result that is not taken."""
    instrument.hold()
    handle = parity.work(instrument, 0, lease_ttl="2s", retry=tenure.Retry(lost=1))
    parity.wait_for_start(instrument, handle)
    executor = parity.executor(handle)
    executor.suspend()
    try:
        instrument.let_go()
        wait_until(lambda: parity.leases(handle)[0]["state"] == "EXPIRED", "its lease has run out", PATIENCE_S)
    finally:
        executor.resume()

    assert handle.result(PATIENCE_S) == 1
    first, second = parity.leases(handle)
    assert (first["state"], second["state"], handle.fence) == ("EXPIRED", "COMPLETED", second["fence"])
    accepted = parity.records.count("SELECT count(*) FROM result WHERE task_id = ?", handle.task_id)
    assert accepted == 1
    quarantined = parity.fleet.client.ask(Query(what="quarantine", where=(("task_id", handle.task_id),))).rows
    assert [row["fence"] for row in quarantined] == [first["fence"]]


def test_environment(parity: Parity, instrument: Instrument) -> None:
    """Neither a task nor its executor is given what the worker or the substrate has in its environment."""
    instrument.hold()
    handle = parity.work(instrument, 0)
    parity.wait_for_start(instrument, handle)
    executor = parity.executor(handle)
    for process in (executor, *executor.children(recursive=True)):
        assert parity.seat.password not in " ".join(process.cmdline())
        assert not holders(process.environ(), parity.seat.password, SECRET)
        assert "HOST_SECRET" not in process.environ()
    instrument.let_go()
    handle.result(PATIENCE_S)

    found = parity.submit(handlers.environment).result(PATIENCE_S)
    assert "HOST_SECRET" not in found
    assert not [name for name in found if name.startswith("TENURE_BROKER")]
    assert not holders(found, parity.seat.password, SECRET)


def test_worker_killed(parity: Parity, instrument: Instrument) -> None:
    """An executor outlives its worker, whose next agent looks after it again and starts no second one."""
    instrument.hold()
    handle = parity.work(instrument, 0)
    parity.wait_for_start(instrument, handle)
    executor = parity.executor(handle)
    parity.fleet.processes[parity.seat.parent].kill()
    parity.start_parent()

    assert parity.executor(handle).pid == executor.pid
    instrument.let_go()
    assert handle.result(PATIENCE_S) == 1
    assert len(instrument.executions()) == 1
    assert len(parity.leases(handle)) == 1


def test_nothing_left(parity: Parity) -> None:
    """Once a task is over, neither its executor, nor the worker's note of it, nor a key at the broker is left."""
    handle = parity.submit(count, 1)
    assert handle.result(PATIENCE_S) == 1

    wait_until(lambda: not parity.executors(handle), "its executor has ended", PATIENCE_S)
    wait_until(lambda: handle.task_id not in parity.journal(), "the worker has forgotten it", PATIENCE_S)
    (lease,) = parity.leases(handle)
    assert any(parity.seat.parent in key for key in parity.broker_keys())

    def left() -> list[str]:
        return [key for key in parity.broker_keys() if lease["worker_id"] in key]

    wait_until(lambda: not left(), "no key is left", PATIENCE_S)


def _is_launched(parity: Parity, task_id: str) -> bool:
    return any('"handle"' in line and task_id in line for line in parity.journal().splitlines())
