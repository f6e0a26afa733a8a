"""A site cannot fill the tables that only grow; what counts is taken from it all the same."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.coordinator.quotas import SiteQuotas
from tenure.protocol.client_messages import DrainWorker
from tenure.protocol.envelope import Requirements
from tenure.protocol.principal_messages import IssueSite
from tenure.protocol.worker_messages import Cause, Leaving
from tests.scripted_fleet import ScriptedFleet, ScriptedWorker, verdicts

ROOM = (("room", "any"),)
DAY_MS = 86_400_000
PLENTY = 1_000


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path, site_quotas=SiteQuotas(records_per_day=40)) as fleet:
        fleet.client.ask(IssueSite(site="wild", capabilities=("cpu",), secret_digest="0" * 64))
        yield fleet


@pytest.fixture
def wild(fleet: ScriptedFleet) -> ScriptedWorker:
    return fleet.worker("wild.w1", site="wild", slots=2, labels=ROOM)


def remarks(fleet: ScriptedFleet) -> list[str]:
    return [text for text in fleet.records.events("refused") if "quota" in text]


def give_back(fleet: ScriptedFleet, worker: ScriptedWorker, rounds: int) -> None:
    for _ in range(rounds):
        for hand in worker.take():
            worker.release(hand, Cause.UNSTARTED, started=False)
        fleet.live(1_000)


def count(fleet: ScriptedFleet) -> tuple[int, int]:
    """How many leases and events there are."""
    ((number, events),) = fleet.records.rows("SELECT (SELECT COUNT(*) FROM lease), (SELECT COUNT(*) FROM event)")
    return int(number), int(events)


def test_a_site_that_gives_everything_back_is_offered_no_more(fleet: ScriptedFleet, wild: ScriptedWorker) -> None:
    fleet.submit()
    give_back(fleet, wild, 20)
    before = count(fleet)
    give_back(fleet, wild, 20)

    assert before[0] == 9  # three records were for its name and its hello
    assert count(fleet) == before
    assert remarks(fleet) == [
        "Site wild has used up its quota of records: it is offered nothing until some have come back."
    ]


@pytest.mark.parametrize("needs", [Requirements(), Requirements(labels=ROOM)])
def test_it_is_offered_something_again_when_some_have_come_back(
    fleet: ScriptedFleet, wild: ScriptedWorker, needs: Requirements
) -> None:
    task = fleet.submit(requirements=needs)
    give_back(fleet, wild, 20)
    assert fleet.records.state(task) == "QUEUED"
    fleet.clock.advance_ms(DAY_MS // 2)
    fleet.live(3_000)

    assert fleet.records.state(task) == "OFFERED"


def test_why_a_task_waits_for_it_is_said(fleet: ScriptedFleet, wild: ScriptedWorker) -> None:
    task = fleet.submit(requirements=Requirements(labels=ROOM))
    give_back(fleet, wild, 20)

    assert "site wild has used up its quota of records" in fleet.client.explain(task)[-1]


def test_what_a_site_without_records_holds_goes_on_and_its_result_is_taken(
    fleet: ScriptedFleet, wild: ScriptedWorker
) -> None:
    kept = fleet.submit()
    hand = wild.claim()
    fleet.submit()
    give_back(fleet, wild, 20)
    wild.finish(hand, "7")

    assert verdicts(wild)[-1] == "accepted"
    assert fleet.records.result(kept) == ("wild.w1", hand.ticket.fence, "7")


def test_new_generations_are_answered_and_recorded_only_up_to_the_quota(
    fleet: ScriptedFleet, wild: ScriptedWorker
) -> None:
    task = fleet.submit()
    for generation in range(2, 60):
        wild.generation = generation
        wild.hello()
        fleet.step()
    before = count(fleet)
    wild.generation += 1
    wild.hello()
    fleet.step()

    assert len(fleet.records.events("worker_hello")) == 18  # and two for its name
    assert count(fleet) == before
    assert remarks(fleet)[0].endswith("that its workers come and go is not recorded.")
    hand = wild.claim()
    wild.finish(hand)
    assert fleet.records.state(task) == "SUCCEEDED"


def test_coming_and_going_is_recorded_only_up_to_the_quota(fleet: ScriptedFleet, wild: ScriptedWorker) -> None:
    for _ in range(30):
        wild.report(Leaving(gone=True))
        wild.hello()
        fleet.step()

    own = fleet.records.rows("SELECT COUNT(*) FROM event WHERE worker_id = 'wild.w1'")
    assert own == [(18,)]
    assert fleet.records.worker("wild.w1") == "ACTIVE"


def test_what_a_person_does_to_a_worker_is_recorded_in_any_case(fleet: ScriptedFleet, wild: ScriptedWorker) -> None:
    for generation in range(2, 60):
        wild.generation = generation
        wild.hello()
        fleet.step()
    fleet.client.ask(DrainWorker(worker_id="wild.w1"))

    assert fleet.records.events("worker_state") == ["Worker wild.w1 became DRAINING."]


def test_an_executor_that_comes_back_as_a_worker_uses_up_a_name(fleet: ScriptedFleet, wild: ScriptedWorker) -> None:
    """Else its row, which an executor's leaves with it, would stay for nothing."""
    for number in range(40):
        name = f"wild.x{number}"
        worker = ScriptedWorker(fleet, name, "wild", 1, fleet.broker.worker(site="wild", worker_id=name))
        worker.hello(executor_of="wild.w1")
        worker.send(Leaving(gone=True))
        worker.hello()
        fleet.step()

    assert len(fleet.records.rows("SELECT worker_id FROM worker")) < 12


def test_a_flood_of_refusals_does_not_hide_that_a_quota_is_used_up(fleet: ScriptedFleet, wild: ScriptedWorker) -> None:
    for number in range(PLENTY + 10):
        fleet.coordinator._memory.refused.setdefault("site:wild", set()).add(("x", str(number)))
    for number in range(20):
        fleet.worker(f"wild.n{number}", site="wild")

    assert "Site wild tells of more new workers than its quota allows: some are not answered." in remarks(fleet)


def test_how_much_is_left_is_shown(fleet: ScriptedFleet, wild: ScriptedWorker) -> None:
    fleet.submit()
    give_back(fleet, wild, 1)
    (row,) = fleet.client.query("sites", site="wild")

    assert row["records_left"] == 40 - 3 - 4
    assert row["events_not_recorded"] == 0
