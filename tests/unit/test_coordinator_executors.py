"""Executors: who may be bound for whom, whose room it takes, and what remains of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.broker.base import Stream, WorkerAddress
from tenure.protocol.control_messages import Stop
from tenure.protocol.envelope import Requirements
from tenure.protocol.worker_messages import Cause
from tests.scripted_fleet import (
    EXPIRY_MS,
    Hand,
    ScriptedFleet,
    ScriptedWorker,
    drop,
    granted,
    leave,
    refusals,
    verdicts,
)
from tests.scripted_launcher import executor, launch, started, told

UNCLAIMED_MS = 15_000


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path, unclaimed_ms=UNCLAIMED_MS) as fleet:
        yield fleet


def stops(worker: ScriptedWorker) -> list[str]:
    worker.read()
    return [str(order.reason) for order in worker.orders if isinstance(order, Stop)]


def done(fleet: ScriptedFleet, worker: ScriptedWorker, hand: Hand) -> None:
    worker.finish(hand)
    worker.read()
    leave(worker, gone=True)
    worker.alive = False
    fleet.step()


# --- binding -------------------------------------------------------------------------------------


def test_an_executor_runs_what_its_parent_was_given(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit()
    _, worker, hand = started(fleet, parent)
    done(fleet, worker, hand)

    assert fleet.records.result(task) == ("w1.x0", 1, "1")
    assert (granted(worker), verdicts(worker)) == ([1], ["accepted"])
    assert "w1.x0, started for w1, got the lease on attempt 1 (fence 1)." in fleet.client.explain(task)


def test_it_is_told_who_has_taken_what_no_executor_has_claimed(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit()
    assert fleet.client.explain(task)[-1] == "It is OFFERED."
    launch(parent)
    fleet.live(1_000)
    last = fleet.client.explain(task)[-1]
    assert "w1 has taken it to be launched, and no executor has claimed it yet" in last
    assert "the log of that worker" in last


def test_the_second_executor_of_a_launch_is_refused(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit()
    launched, first, hand = started(fleet, parent)
    second_hand = executor(fleet, parent, launched, "x1")
    second = fleet.workers[-1]
    second.claim(second_hand)
    second.finish(second_hand, "2")
    first.finish(hand, "1")

    assert (refusals(second), granted(second)) == (["second_executor"], [])
    assert (verdicts(second), verdicts(first)) == (["second_executor"], ["accepted"])
    assert fleet.records.result(task) == ("w1.x0", 1, "1")
    assert ["w1.x1 was started too" in text for text in fleet.records.events("second_executor")] == [True]


def test_what_is_for_a_worker_is_for_its_executors_only(fleet: ScriptedFleet) -> None:
    parent, other = fleet.worker("w1", labels=(("room", "lab"),)), fleet.worker("w2")
    task = fleet.submit(requirements=Requirements(labels=(("room", "lab"),)))
    launched = launch(parent)
    theirs = executor(fleet, other, launched)
    stranger = fleet.workers[-1]
    stranger.claim(theirs)
    own = executor(fleet, parent, launched)
    fleet.workers[-1].claim(own)

    assert (refusals(stranger), granted(fleet.workers[-1])) == (["not_granted"], [1])
    assert fleet.records.leases(task) == ["ACTIVE"]


@pytest.mark.parametrize(
    ("parent_id", "name", "reason"),
    [("nobody", "stray", "not_granted"), ("w1", "lab.stray", "wrong_site"), ("w1.x0", "stray", "not_granted")],
)
def test_an_executor_needs_a_parent_at_its_site_that_is_none_itself(
    fleet: ScriptedFleet, parent_id: str, name: str, reason: str
) -> None:
    fleet.store.run("add_site", ("lab", "lab", 0))
    fleet.restart()
    parent = fleet.worker("w1", slots=2)
    fleet.submit()
    fleet.submit()
    started(fleet, parent)
    launched = launch(parent)
    hand = Hand(launched.ticket, "f" * 16)
    site = "lab" if name.startswith("lab.") else "default"
    worker = fleet.worker(name, site=site, executor_of=parent_id, window=0)
    worker.claim(hand)

    assert (refusals(worker), granted(worker)) == ([reason], [])


def test_a_worker_of_another_site_is_nobodys_executor(fleet: ScriptedFleet) -> None:
    fleet.store.run("add_site", ("lab", "lab", 0))
    fleet.restart()
    fleet.worker("w1")
    fleet.worker("lab.stray", site="lab", executor_of="w1", window=0)
    known = fleet.coordinator._memory.fleet
    stray = known.get("lab.stray")
    assert stray is not None
    assert stray.executor_of == "w1"
    assert known.parent(stray) is None


def test_a_worker_does_not_become_an_executor_nor_an_executor_another_ones(fleet: ScriptedFleet) -> None:
    parent, worker = fleet.worker("w1"), fleet.worker("w2")
    fleet.submit()
    _, child, _ = started(fleet, parent)
    worker.hello(executor_of="w1")
    child.hello(executor_of="w2")
    child.hello()
    parent.hello(executor_of="w1")
    fleet.step()

    assert len(fleet.records.events("refused")) == 3
    rows = fleet.records.rows("SELECT worker_id, executor_of FROM worker ORDER BY worker_id")
    assert rows == [("w1", ""), ("w1.x0", "w1"), ("w2", "")]


# --- room ----------------------------------------------------------------------------------------


def test_what_an_executor_runs_takes_its_parents_room(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1", slots=2)
    tasks = [fleet.submit() for _ in range(4)]
    assert len(parent.take()) == 2
    for number, hand in enumerate(parent.hands):
        hand.state = "launched"
        own = executor(fleet, parent, hand, f"x{number}")
        fleet.workers[-1].claim(own)
    fleet.live(3_000)
    assert parent.take() == []

    fleet.restart()
    fleet.live(3_000)
    assert parent.take() == []
    for worker in fleet.workers[1:]:
        done(fleet, worker, worker.hands[0])
    assert len(parent.take()) == 2
    assert [fleet.records.state(task) for task in tasks] == ["SUCCEEDED", "SUCCEEDED", "OFFERED", "OFFERED"]


def test_resources_stay_reserved_with_the_parent(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1", slots=4, resources=(("gpu", 1),))
    needs = Requirements(resources=(("gpu", 1),))
    fleet.submit(requirements=needs)
    _, worker, hand = started(fleet, parent)
    second = fleet.submit(requirements=needs)
    fleet.restart()
    fleet.live(3_000)

    assert (parent.take(), fleet.records.state(second)) == ([], "QUEUED")
    done(fleet, worker, hand)
    assert len(parent.take()) == 1


def test_nothing_is_given_to_an_executor_itself(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    fleet.submit()
    _, worker, _ = started(fleet, parent)
    worker.window = 5
    worker.report()
    second = fleet.submit()
    third = fleet.submit(requirements=Requirements(worker="w1.x0"))
    fleet.live(2_000)

    assert [fleet.records.state(task) for task in (second, third)] == ["QUEUED", "QUEUED"]
    assert "every slot for 'cpu' is taken" in fleet.client.explain(second)[-1]


# --- heartbeats of parents -----------------------------------------------------------------------


def test_a_parent_renews_the_offer_and_never_the_lease(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit()
    launched = launch(parent)
    fleet.live(10 * UNCLAIMED_MS)
    assert fleet.records.rows("SELECT outbox FROM lease") == [(1,)]

    own = executor(fleet, parent, launched)
    worker = fleet.workers[-1]
    worker.claim(own)
    worker.alive = False
    fleet.live(EXPIRY_MS + 2_000)
    assert (fleet.records.leases(task), stops(parent)[:1]) == (["EXPIRED"], ["superseded"])


def test_a_parent_is_told_to_stop_what_another_has(fleet: ScriptedFleet) -> None:
    parent, other = fleet.worker("w1"), fleet.worker("w2")
    fleet.submit()
    launched = launch(parent)
    other.claim(Hand(launched.ticket, "e" * 16))
    parent.beat()
    fleet.live(1_000)

    assert (granted(other), set(stops(parent))) == ([1], {"superseded"})


def test_a_cancel_stops_the_executor_and_tells_its_parent(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit()
    _, worker, hand = started(fleet, parent)
    fleet.client.cancel(task)
    assert (stops(parent), stops(worker)) == (["cancelled"], ["cancelled"])
    fleet.live(2_000)
    assert (len(stops(parent)) > 1, set(stops(parent))) == (True, {"cancelled"})

    worker.release(hand, Cause.CANCELLED, started=True)
    assert fleet.records.state(task) == "CANCELLED"


def test_a_launch_is_not_published_again_under_its_fence(fleet: ScriptedFleet) -> None:
    """Of two launches under one fence one is in vain."""
    parent = fleet.worker("w1")
    task = fleet.submit()
    launched = launch(parent)
    fleet.live(1_000)
    parent.alive = False
    other = fleet.worker("w2")
    fleet.live(UNCLAIMED_MS + 1_000)
    other.claim()
    late = executor(fleet, parent, launched)
    fleet.workers[-1].claim(late)

    assert (granted(other), refusals(fleet.workers[-1])) == ([2], ["stale_fence"])
    assert fleet.records.leases(task) == ["RELEASED", "ACTIVE"]


# --- what remains --------------------------------------------------------------------------------


def keys(fleet: ScriptedFleet, worker_id: str) -> list[bool]:
    address, own = WorkerAddress("default", worker_id), Stream("default", "", worker_id)
    named = (fleet.broker.keys.echo(address), fleet.broker.keys.heartbeat(address))
    streams = (fleet.broker.keys.control(address), fleet.broker.keys.assignments(own))
    return [fleet.server.get(key) is not None for key in named] + [
        fleet.server.stream(key) is not None for key in streams
    ]


def test_an_executor_that_has_left_leaves_no_row_and_no_keys(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit()
    _, worker, hand = started(fleet, parent)
    fleet.live(2_000)
    assert keys(fleet, "w1.x0") == [True, True, True, False]
    done(fleet, worker, hand)

    assert keys(fleet, "w1.x0") == [False] * 4
    assert [row["worker_id"] for row in fleet.client.query("workers", executor_of="*")] == ["w1"]
    (lease,) = fleet.client.query("leases", task_id=task)
    assert (lease["worker_id"], lease["parent"], lease["site"]) == ("w1.x0", "w1", "default")
    assert fleet.client.query("leases", worker_id="w1") == fleet.client.query("leases", worker_id="w1.x0") == [lease]


def test_an_executor_that_is_gone_is_forgotten_when_its_lease_is_over(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    fleet.submit()
    _, worker, _ = started(fleet, parent)
    executor(fleet, parent, parent.hands[0], "x1")
    worker.alive = fleet.workers[-1].alive = False
    fleet.live(EXPIRY_MS - 2_000)
    fleet.restart()
    fleet.live(EXPIRY_MS + 3_000)

    assert fleet.records.rows("SELECT worker_id FROM worker") == [("w1",)]
    assert (keys(fleet, "w1.x0"), keys(fleet, "w1.x1")) == ([False] * 4, [False] * 4)


def test_an_executor_that_leaves_with_a_lease_is_known_until_that_is_over(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit()
    launched, worker, _ = started(fleet, parent)
    leave(worker, gone=True)
    worker.alive = False
    assert fleet.records.worker("w1.x0") == "DRAINING"
    parent.report(told(launched))
    fleet.live(EXPIRY_MS + 2_000)

    assert fleet.records.directives(task) == [("PENDING", "oom_killed", "")]
    assert fleet.records.rows("SELECT worker_id FROM worker") == [("w1",)]


def test_an_executor_comes_back_with_its_late_result(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    task = fleet.submit()
    _, worker, hand = started(fleet, parent)
    worker.alive = False
    fleet.live(3 * EXPIRY_MS)
    drop(parent, parent.hands[0])
    worker.finish(hand)
    worker.hello(executor_of="w1")
    worker.finish(hand)

    assert (verdicts(worker), fleet.records.quarantined()) == (["lease_expired"], ["lease_expired"])
    assert fleet.records.state(task) == "LOST"


def test_executors_are_listed_when_they_are_asked_for(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    fleet.submit()
    started(fleet, parent)

    def listed(**where: str) -> list[tuple[str, int]]:
        return [(row["worker_id"], row["holding"]) for row in fleet.client.query("workers", **where)]

    assert listed() == [("w1", 1)]
    assert listed(executor_of="*") == [("w1", 1), ("w1.x0", 1)]
    assert listed(executor_of="w1") == listed(worker_id="w1.x0") == [("w1.x0", 1)]
    (status,) = fleet.client.query("status")
    assert (status["workers"], status["executors"], status["slots"]) == ({"w1": "ACTIVE"}, 1, 1)
