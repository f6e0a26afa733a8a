"""A site that gives back what it is offered, or loses it, does not keep it from others."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.protocol.envelope import Requirements, Retry
from tenure.protocol.principal_messages import IssueSite
from tenure.protocol.worker_messages import Cause, ExecutorGone
from tests.scripted_fleet import ScriptedFleet, ScriptedWorker, drop, granted

ROOM = (("room", "any"),)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path) as fleet:
        for number, site in enumerate(("bad", "good")):
            fleet.client.ask(IssueSite(site=site, capabilities=("cpu",), secret_digest=f"{number}" * 64))
        yield fleet


@pytest.fixture
def bad(fleet: ScriptedFleet) -> ScriptedWorker:
    return fleet.worker("bad.w1", site="bad", slots=4, labels=ROOM)


def sites(fleet: ScriptedFleet, task: str) -> list[str]:
    """The sites that a task was offered to, in order."""
    return [row[0] for row in fleet.records.rows("SELECT site_id FROM lease WHERE task_id = ? ORDER BY fence", task)]


def good(fleet: ScriptedFleet, slots: int = 4) -> ScriptedWorker:
    return fleet.worker("good.w1", site="good", slots=slots, labels=ROOM)


@pytest.mark.parametrize("cause", [Cause.UNSTARTED, Cause.REFUSED])
@pytest.mark.parametrize("when", ["unclaimed", "claimed"])
def test_what_a_site_gives_back_goes_to_another_one(
    fleet: ScriptedFleet, bad: ScriptedWorker, cause: Cause, when: str
) -> None:
    task = fleet.submit()
    good(fleet)
    (hand,) = bad.take()
    if when == "claimed":
        bad.claim(hand)
    bad.release(hand, cause, started=False)
    fleet.live(2_000)

    assert sites(fleet, task) == ["bad", "good"]


def test_what_a_site_could_not_launch_goes_to_another_one(fleet: ScriptedFleet, bad: ScriptedWorker) -> None:
    task = fleet.submit()
    good(fleet)
    (hand,) = bad.take()
    drop(bad, hand)
    bad.report(ExecutorGone(binding=hand.binding, cause=Cause.LAUNCH_REFUSED, proved=True))
    fleet.live(3_000)

    assert sites(fleet, task) == ["bad", "good"]


def test_what_a_site_has_lost_is_repeated_at_another_one(fleet: ScriptedFleet, bad: ScriptedWorker) -> None:
    task = fleet.submit(retry=Retry(lost=1))
    good(fleet)
    bad.release(bad.claim(), Cause.PROCESS_DIED, started=True)
    fleet.live(2_000)

    assert sites(fleet, task) == ["bad", "good"]


def test_what_was_directed_to_a_site_that_gives_it_back_goes_to_another_one(
    fleet: ScriptedFleet, bad: ScriptedWorker
) -> None:
    good(fleet, slots=2)
    task = fleet.submit(requirements=Requirements(labels=ROOM))
    (hand,) = bad.take()
    bad.release(hand, Cause.UNSTARTED, started=False)
    fleet.live(2_000)

    assert sites(fleet, task) == ["bad", "good"]


def test_a_site_that_says_it_has_endless_room_is_not_directed_all(fleet: ScriptedFleet) -> None:
    fleet.worker("bad.w1", site="bad", slots=1_000, labels=ROOM)
    good(fleet)
    tasks = [fleet.submit(requirements=Requirements(labels=ROOM)) for _ in range(8)]

    assert sorted(site for task in tasks for site in sites(fleet, task)) == ["bad"] * 4 + ["good"] * 4


def test_what_a_site_gives_back_waits_whatever_it_says(fleet: ScriptedFleet, bad: ScriptedWorker) -> None:
    """Where no other site has room, the same one is asked again, and not in a loop."""
    task = fleet.submit()
    for _ in range(3):
        for hand in bad.take():
            bad.release(hand, Cause.UNSTARTED, started=False)
    assert sites(fleet, task) == ["bad"]
    fleet.live(1_000)
    assert sites(fleet, task) == ["bad", "bad"]


def test_without_credentials_what_did_not_start_is_offered_at_once(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    worker.release(worker.take()[0], Cause.SELF_FENCED, started=False)

    assert sites(fleet, task) == ["default", "default"]


def test_taking_another_task_makes_up_for_nothing_and_a_result_does(fleet: ScriptedFleet, bad: ScriptedWorker) -> None:
    first = fleet.submit()
    (hand,) = bad.take()
    bad.release(hand, Cause.UNSTARTED, started=False)
    fleet.live(1_000)
    second = bad.claim()
    honest = good(fleet)
    later = [fleet.submit() for _ in range(2)]
    assert [sites(fleet, task) for task in (first, *later)] == [["bad", "bad"], ["good"], ["good"]]
    bad.finish(second)

    assert sites(fleet, fleet.submit()) == ["bad"]
    assert len(honest.take()) == 2


def test_a_long_task_makes_up_for_what_came_back_before_it(fleet: ScriptedFleet, bad: ScriptedWorker) -> None:
    fleet.submit()
    (hand,) = bad.take()
    bad.release(hand, Cause.UNSTARTED, started=False)
    fleet.live(1_000)
    bad.claim()
    good(fleet, slots=9)
    fleet.live(59_000)
    before = [sites(fleet, fleet.submit()) for _ in range(2)]
    fleet.live(2_000)

    assert before == [["good"], ["good"]]
    assert sites(fleet, fleet.submit()) == ["bad"]
    assert granted(bad) == [2]


def test_a_cancelled_task_that_is_given_back_is_no_fault(fleet: ScriptedFleet, bad: ScriptedWorker) -> None:
    task = fleet.submit()
    hand = bad.claim()
    fleet.client.cancel(task)
    bad.release(hand, Cause.UNSTARTED, started=False)
    good(fleet)

    assert fleet.records.state(task) == "CANCELLED"
    assert sites(fleet, fleet.submit()) == ["bad"]
