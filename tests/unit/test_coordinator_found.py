"""Histories that the simulation found, as short as they get; each names the seed that it was found with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.protocol.envelope import Requirements
from tests.scripted_fleet import ScriptedFleet


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path) as fleet:
        yield fleet


def test_the_end_of_any_task_makes_room_for_a_directed_one(fleet: ScriptedFleet) -> None:
    # Seed 44: the only worker that fitted was busy with a task of its capability's stream; when that had ended, the
    # directed task waited for ever.
    worker = fleet.worker()
    fleet.submit()
    hand = worker.claim()
    directed = fleet.submit(requirements=Requirements(worker="w1"))
    assert fleet.records.state(directed) == "QUEUED"
    worker.finish(hand)
    assert fleet.records.state(directed) == "OFFERED"
