"""Histories that the simulation found, as short as they get; each names the seed that it was found with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.broker.base import WorkerAddress
from tenure.protocol.client_messages import DrainWorker
from tenure.protocol.control_messages import Drain, Registered
from tenure.protocol.envelope import Requirements, Retry
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


def test_a_delay_is_as_long_as_it_was_when_the_wall_clock_is_set(fleet: ScriptedFleet) -> None:
    # Seed 50: a delayed task came due while nobody could take it, then the clock was set back, and it waited for ever.
    task = fleet.submit(delay_ms=2_000, requirements=Requirements(worker="w1"))
    fleet.live(2_500)
    fleet.clock.jump_wall_ms(-600_000)
    fleet.worker()
    fleet.live(1_000)
    assert fleet.records.state(task) == "OFFERED"


def test_a_delay_is_not_shortened_when_the_wall_clock_is_set_forward(fleet: ScriptedFleet) -> None:
    fleet.worker()
    task = fleet.submit(delay_ms=20_000)
    fleet.clock.jump_wall_ms(600_000)
    fleet.live(10_000)
    assert fleet.records.state(task) == "QUEUED"
    fleet.live(11_000)
    assert fleet.records.state(task) == "OFFERED"


def test_a_task_that_comes_due_in_the_turn_that_stores_another_delayed_one_is_not_passed_over(
    fleet: ScriptedFleet,
) -> None:
    fleet.worker(slots=2)
    task = fleet.submit(delay_ms=2_000)
    fleet.step()
    fleet.clock.advance_ms(2_000)
    fleet.submit(delay_ms=60_000, capability="gpu")
    assert fleet.records.state(task) == "OFFERED"


def test_a_drain_order_that_was_lost_is_given_again(fleet: ScriptedFleet) -> None:
    # Seed 11123: the broker lost the order; the worker wanted work and was given none, for ever.
    worker = fleet.worker()
    fleet.client.ask(DrainWorker(worker_id="w1"))
    fleet.server.remove(fleet.broker.keys.control(WorkerAddress("default", "w1")))
    fleet.live(1_000)
    assert any(isinstance(order, Drain) for order in worker.read())
    worker.window = 0
    fleet.live(1_000)
    worker.read()
    fleet.live(1_000)
    assert worker.read() == []


def test_an_older_agent_that_goes_on_is_told_that_there_is_a_newer_one(fleet: ScriptedFleet) -> None:
    # Seed 10412: the order that tells it was lost with its stream; its results were refused without an answer for ever.
    older = fleet.worker()
    fleet.submit()
    hand = older.claim()
    fleet.worker(generation=2).alive = False
    fleet.server.remove(fleet.broker.keys.control(WorkerAddress("default", "w1")))
    fleet.clock.advance_ms(1)
    older.finish(hand)
    assert Registered(generation=2) in older.read()
    fleet.live(1_000)
    assert Registered(generation=2) in older.read(), "its heartbeats are noticed, too"
    assert fleet.records.quarantined() == ["old_generation"]


def test_an_agent_speaks_for_its_own_predecessor_only(fleet: ScriptedFleet) -> None:
    # Seed 50473: two machines under one id. What one proves about its predecessor says nothing about the other's work.
    one = fleet.worker(generation=5)
    task = fleet.submit(retry=Retry(lost=1))
    one.claim()
    fleet.worker(generation=7, predecessor=3)
    assert fleet.records.leases(task) == ["ACTIVE"]
    fleet.worker(generation=9, predecessor=5)
    assert fleet.records.leases(task) == ["RELEASED", "OFFERED"]
