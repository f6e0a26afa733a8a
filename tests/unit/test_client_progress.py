"""What a handle tells of a running task."""

from collections.abc import Iterator
from typing import Any

import pytest

from tenure import Client, Progress
from tenure.client.progress import progress_of
from tenure.testing import ManualClock, SeededEntropy
from tests.fixtures_client import ScriptedFleet
from tests.fixtures_handlers import greet

ROW: dict[str, Any] = {"progress": 0.25, "message": "at 1", "metrics": '{"loss":0.5}', "attempt": 2, "cursor": 7}


@pytest.fixture
def fleet() -> ScriptedFleet:
    return ScriptedFleet(ManualClock(), time_passes=False)


@pytest.fixture
def client(fleet: ScriptedFleet) -> Iterator[Client]:
    with Client.over(fleet.connect, clock=fleet.clock, entropy=SeededEntropy(1)) as client:
        yield client


def test_a_handle_asks_the_fleet_until_the_task_is_over(fleet: ScriptedFleet, client: Client) -> None:
    handle = client.submit(greet, "ann")
    fleet.rows["tasks"] = [ROW]
    assert handle.progress() == Progress(0.25, "at 1", {"loss": 0.5}, 2, 7)
    assert client.handle(handle.task_id).progress() == handle.progress()

    fleet.rows["tasks"] = []
    assert handle.progress() is None
    fleet.end(handle.task_id, value='"x"')
    handle.result(10)
    asked = len(fleet.asks)
    assert handle.progress() is None
    assert len(fleet.asks) == asked


@pytest.mark.parametrize("row", [{}, {"progress": None, "message": "", "metrics": "", "cursor": None}])
def test_a_task_that_has_told_nothing_has_no_progress(row: dict[str, Any]) -> None:
    assert progress_of(row) is None


@pytest.mark.parametrize("metrics", ["", "[1]", "no json", None, "7"])
def test_metrics_that_are_no_object_are_none(metrics: object) -> None:
    found = progress_of({**ROW, "metrics": metrics})

    assert found is not None
    assert dict(found.metrics) == {}
