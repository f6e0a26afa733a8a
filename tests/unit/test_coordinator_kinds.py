"""Workers of one id and two kinds: one runs tasks itself, the other has executors started."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.protocol.client_messages import RegisterWorker
from tenure.protocol.control_messages import HelloRefused, Reason, Registered
from tests.scripted_fleet import EXPIRY_MS, ScriptedFleet, ScriptedWorker, drop, granted, leave, refusals
from tests.scripted_launcher import executor, launch, started

UNCLAIMED_MS = 15_000


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path, unclaimed_ms=UNCLAIMED_MS) as fleet:
        yield fleet


def answers(worker: ScriptedWorker) -> list[Registered | HelloRefused]:
    return [order for order in worker.read() if isinstance(order, Registered | HelloRefused)]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("launches", [True, False])
def test_a_worker_stays_of_its_kind(fleet: ScriptedFleet, *, launches: bool, restarted: bool) -> None:
    fleet.worker("w1", launches=launches).alive = False
    if restarted:
        fleet.restart()
    other = fleet.worker("w1", generation=2, launches=not launches, ordinal=3)
    again = HelloRefused(generation=2, ordinal=3, reason=Reason.OTHER_KIND)
    assert answers(other) == [Registered(generation=1), again]
    other.hello(launches=not launches, ordinal=4)
    fleet.step()
    assert answers(other) == [again.model_copy(update={"ordinal": 4})]

    assert fleet.records.rows("SELECT generation, launches FROM worker") == [(1, int(launches))]
    kinds = ("runs tasks itself", "has executors started")
    assert fleet.records.events("refused") == [
        f"w1 {kinds[launches]}, and an agent under its id that {kinds[not launches]} was refused."
    ]


@pytest.mark.parametrize("said", [False, True])
def test_what_a_worker_may_have_begun_no_executor_begins(fleet: ScriptedFleet, *, said: bool) -> None:
    """It took the task, began it on its claim, and died before anybody was told. Its folder is another one now."""
    plain = fleet.worker("w1", launches=False)
    task = fleet.submit(start="claimed")
    plain.take()
    plain.alive = False
    parent = fleet.worker("w1", generation=2, launches=True) if said else plain
    hand = executor(fleet, parent, plain.hands[0])
    child = fleet.workers[-1]
    child.claim(hand)
    assert (granted(child), refusals(child)) == ([], [Reason.NOT_GRANTED])

    drop(child, hand)
    fleet.live(UNCLAIMED_MS + EXPIRY_MS + 3_000)
    assert fleet.records.leases(task) == ["EXPIRED"]
    assert fleet.records.directives(task) == [("PENDING", "lease_expired", "")]


@pytest.mark.parametrize("launches", [True, None])
def test_a_parent_that_starts_again_goes_on(fleet: ScriptedFleet, *, launches: bool | None) -> None:
    parent = fleet.worker("w1", launches=launches)
    fleet.submit()
    launched = launch(parent)
    parent.alive = False
    again = fleet.worker("w1", generation=2, launches=launches)
    again.hands.append(launched)
    child = executor(fleet, again, launched)
    fleet.workers[-1].claim(child)
    assert granted(fleet.workers[-1]) == [1]


@pytest.mark.parametrize("launches", [True, False])
def test_a_registration_by_hand_changes_no_kind(fleet: ScriptedFleet, *, launches: bool) -> None:
    leave(fleet.worker("w1", launches=launches), gone=True)
    fleet.client.ask(RegisterWorker(worker_id="w1", capabilities=("cpu",)))
    other = fleet.worker("w1", generation=3, launches=not launches)
    assert isinstance(answers(other)[-1], HelloRefused)


def test_a_worker_that_was_registered_by_hand_is_of_neither_kind(fleet: ScriptedFleet) -> None:
    fleet.client.ask(RegisterWorker(worker_id="w1", capabilities=("cpu",)))
    parent = fleet.worker("w1", generation=2, launches=True)
    fleet.submit()
    started(fleet, parent)
    assert granted(fleet.workers[-1]) == [1]
