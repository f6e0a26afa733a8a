"""Workers that come back, stay away, or are strangers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from tenure.errors import NamespaceTaken
from tenure.protocol.client_messages import DrainWorker
from tenure.protocol.control_messages import Drain, Registered
from tenure.protocol.message import MAX_INT
from tenure.protocol.worker_messages import Failure, FailureKind, Held, Leaving, Outcome
from tests.scripted_fleet import ScriptedFleet, envelope

HOUR_MS = 3_600_000


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path) as fleet:
        yield fleet


def test_a_repeated_hello_of_a_draining_worker_does_not_make_it_take_work_again(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    fleet.connect("c9").ask(DrainWorker(worker_id="w1"))
    worker.read()
    worker.hello()
    fleet.step()

    assert fleet.records.worker("w1") == "DRAINING"
    assert [type(order) for order in worker.read()] == [Registered, Drain]


def test_a_new_agent_of_a_draining_worker_takes_work_again(fleet: ScriptedFleet) -> None:
    fleet.worker()
    fleet.connect("c9").ask(DrainWorker(worker_id="w1"))
    fleet.worker(generation=2)

    assert fleet.records.worker("w1") == "ACTIVE"


def test_a_worker_that_is_silent_for_long_and_holds_nothing_counts_as_gone(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    worker.alive = False
    fleet.live(HOUR_MS // 2)
    states = [fleet.records.worker("w1")]
    fleet.live(HOUR_MS)

    assert [*states, fleet.records.worker("w1")] == ["STALE", "OFFLINE"]


def test_a_worker_that_counted_as_gone_is_welcome_back(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    worker.alive = False
    fleet.live(2 * HOUR_MS)
    worker.alive = True
    worker.hello()
    fleet.step()

    assert fleet.records.worker("w1") == "ACTIVE"


def test_a_stranger_that_repeats_itself_is_recorded_once(fleet: ScriptedFleet) -> None:
    old = fleet.worker()
    fleet.worker(generation=2)
    for _ in range(5):
        old.report(Leaving(gone=False))

    assert len(fleet.records.events("refused")) == 1


@pytest.mark.parametrize("fields", [{}, {"value": "1", "failure": Failure(kind=FailureKind.EXCEPTION, message="x")}])
def test_an_outcome_is_a_value_or_a_failure(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="a value or a failure"):
        Outcome.model_validate(fields)


def test_a_generation_that_no_database_can_hold_is_malformed(fleet: ScriptedFleet) -> None:
    with pytest.raises(ValidationError, match="less than or equal"):
        fleet.worker(generation=MAX_INT + 1)


def test_a_restarted_agent_that_proves_its_predecessor_gone_is_not_waited_for(fleet: ScriptedFleet) -> None:
    old = fleet.worker()
    task = fleet.submit()
    old.claim()
    fleet.worker(generation=2, predecessor=1)

    assert fleet.records.state(task) == "LOST"
    assert fleet.records.leases(task) == ["RELEASED"]


def test_without_that_proof_the_lease_runs_out_by_itself(fleet: ScriptedFleet) -> None:
    old = fleet.worker()
    task = fleet.submit()
    old.claim()
    fleet.worker(generation=2)

    assert fleet.records.leases(task) == ["ACTIVE"]


def test_what_is_in_the_restarted_agents_spool_is_still_accepted(fleet: ScriptedFleet) -> None:
    old = fleet.worker()
    task = fleet.submit()
    hand = old.claim()
    spooled = (Held(task_id=hand.ticket.task_id, fence=hand.ticket.fence, state="finished"),)
    new = fleet.worker(generation=2, predecessor=1, held=spooled)
    new.report(old.finished(hand, "42"))

    assert fleet.records.state(task) == "SUCCEEDED"


def test_a_task_is_found_by_its_key(fleet: ScriptedFleet) -> None:
    client = fleet.connect("c9")
    task = client.submit(envelope(), key="mine")
    client.submit(envelope(), key="yours")

    assert [row["task_id"] for row in client.query("tasks", key="mine")] == [task]


def test_a_namespace_that_belongs_to_another_database_is_refused(fleet: ScriptedFleet) -> None:
    """Two coordinators on two databases would take each other's requests."""
    broker = fleet.broker.coordinator()
    broker.mark("0-of-another-database")

    fleet.restart()

    with pytest.raises(NamespaceTaken, match="belongs to another database"):
        fleet.step()
