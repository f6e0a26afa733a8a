"""Waiting for several handles, and the executor."""

import concurrent.futures
from collections.abc import Iterator

import pytest

from tenure.client.client import Client
from tenure.client.executor import FleetExecutor
from tenure.client.waiting import as_completed, wait
from tenure.errors import TaskFailed, UsageError, WaitTimedOut
from tenure.protocol.states import TaskState
from tenure.testing import ManualClock, SeededEntropy
from tests.fixtures_client import ScriptedFleet
from tests.fixtures_handlers import exponent, greet


@pytest.fixture
def fleet() -> ScriptedFleet:
    return ScriptedFleet(ManualClock(), time_passes=False)


@pytest.fixture
def client(fleet: ScriptedFleet) -> Iterator[Client]:
    with Client.over(fleet.connect, clock=fleet.clock, entropy=SeededEntropy(1)) as client:
        yield client


def test_handles_come_as_their_tasks_end(fleet: ScriptedFleet, client: Client) -> None:
    first, second = client.map(exponent, [1.0, 2.0])
    waiting = as_completed([first, second, first], timeout=10)
    fleet.end(second.task_id, value="2")
    assert next(waiting) is second
    fleet.end(first.task_id, TaskState.FAILED)
    assert next(waiting) is first
    assert list(waiting) == []


def test_what_has_not_ended_in_time_is_counted(fleet: ScriptedFleet, client: Client) -> None:
    first, second = client.map(exponent, [1.0, 2.0])
    fleet.end(first.task_id, value="1")
    first.result(10)
    with pytest.raises(WaitTimedOut, match="1 tasks have not ended"):
        list(as_completed([first, second], timeout=0.01))
    assert wait([second, first], timeout=0.01) == ([first], [second])
    fleet.end(second.task_id, value="2")
    assert wait([second, first]).done == [second, first]


def test_the_executor_submits_and_maps_in_order(fleet: ScriptedFleet, client: Client) -> None:
    fleet.work = lambda _: "0.5"
    with FleetExecutor(client) as executor:
        assert executor.submit(exponent, 1.0).result(10) == 0.5
        assert list(executor.map(exponent, [1.0, 2.0], [3, 4], timeout=10)) == [0.5, 0.5]
    assert [len(submit.items) for submit in fleet.submitted()] == [1, 2]


def test_the_executors_shutdown_waits_for_its_tasks(fleet: ScriptedFleet, client: Client) -> None:
    executor = FleetExecutor(client)
    handle = executor.submit(greet, "you")
    executor.shutdown(wait=False)
    assert not handle.done()
    fleet.end(handle.task_id, TaskState.FAILED)
    executor.shutdown()
    assert isinstance(handle.exception(0), TaskFailed)
    with pytest.raises(UsageError, match="shut down"):
        executor.submit(greet, "you")
    with pytest.raises(UsageError, match="shut down"):
        executor.map(greet, ["you"])


def test_the_executors_shutdown_can_cancel(client: Client) -> None:
    executor = FleetExecutor(client)
    handles = [executor.submit(greet, "you"), executor.submit(greet, "them")]
    executor.shutdown(cancel_futures=True)
    assert all(handle.cancelled() for handle in handles)


def test_a_value_that_comes_too_late_ends_the_executors_map(client: Client) -> None:
    executor = FleetExecutor(client, clock=ManualClock())
    with pytest.raises(TimeoutError):
        next(executor.map(exponent, [1.0], timeout=0.01))


def test_the_executor_is_one(client: Client) -> None:
    assert isinstance(FleetExecutor(client), concurrent.futures.Executor)
    handle = FleetExecutor(client).submit(greet, "you")
    assert handle.cancel()
    assert concurrent.futures.wait([handle], timeout=10).done == {handle}
