"""Who is given what, when: credit, order, delays, and tasks that need a certain worker."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.coordinator.store.database import Database
from tenure.errors import StoreFull
from tenure.protocol.client_messages import Assign, BeatWorker, DrainWorker, RegisterWorker
from tenure.protocol.envelope import Requirements, Retry
from tenure.protocol.worker_messages import Cause
from tests.scripted_fleet import EXPIRY_MS, ScriptedFleet, envelope, granted, leave, verdicts


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path) as fleet:
        yield fleet


def offered(fleet: ScriptedFleet) -> int:
    ((count,),) = fleet.records.rows("SELECT COUNT(*) FROM lease WHERE state IN ('OFFERED', 'ACTIVE')")
    return int(count)


def submit(fleet: ScriptedFleet, count: int, **fields: Any) -> list[str]:
    reply = fleet.client.ask(fleet.client.submission(*[envelope(**fields)] * count))
    return [admitted.task_id for admitted in reply.admitted]


# --- credit and order ----------------------------------------------------------------------------


def test_no_more_is_published_than_the_workers_want_in_hand(fleet: ScriptedFleet) -> None:
    fleet.worker("w1", slots=2, window=3)
    fleet.worker("w2", slots=1)
    submit(fleet, 50)
    fleet.step(5)
    assert offered(fleet) == 4


def test_an_end_makes_room_for_the_next(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    first, second, third = submit(fleet, 3)
    worker.finish(worker.claim())
    assert [fleet.records.state(task) for task in (first, second, third)] == ["SUCCEEDED", "OFFERED", "QUEUED"]


def test_a_grown_window_is_filled(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    submit(fleet, 10)
    worker.window = 4
    fleet.live(1_000)
    assert offered(fleet) == 4


def test_a_shrunk_window_takes_nothing_back(fleet: ScriptedFleet) -> None:
    worker = fleet.worker(slots=4)
    submit(fleet, 10)
    worker.claim()
    worker.window = 1
    fleet.live(5_000)
    worker.finish(worker.hands[0])
    assert offered(fleet) == 3


def test_a_silent_worker_counts_for_no_credit(fleet: ScriptedFleet) -> None:
    fleet.worker(slots=4).alive = False
    fleet.live(15_000)
    submit(fleet, 2)
    fleet.step(3)
    assert offered(fleet) == 0


def test_a_higher_priority_goes_first_and_equals_go_in_order_of_submission(fleet: ScriptedFleet) -> None:
    low, first, second, high = (submit(fleet, 1, priority=priority)[0] for priority in (-1, 0, 0, 5))
    worker = fleet.worker(slots=4)
    fleet.step()
    assert [hand.ticket.task_id for hand in worker.take()] == [high, first, second, low]


def test_a_delayed_task_is_offered_when_its_time_has_come(fleet: ScriptedFleet) -> None:
    fleet.worker()
    task = fleet.submit(delay_ms=5_000)
    fleet.live(4_999)
    assert fleet.records.state(task) == "QUEUED"
    fleet.clock.advance_ms(1)
    fleet.step()
    assert fleet.records.state(task) == "OFFERED"


def test_a_delayed_task_holds_nobody_up(fleet: ScriptedFleet) -> None:
    fleet.worker()
    fleet.submit(delay_ms=5_000, priority=9)
    task = fleet.submit()
    assert fleet.records.state(task) == "OFFERED"


def test_a_delay_that_begins_as_the_wall_clock_is_set_forward_is_no_longer_for_that(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    hand = worker.claim()
    fleet.clock.jump_wall_ms(600_000)
    worker.release(hand, Cause.REFUSED, started=False)
    fleet.live(3_000)
    assert fleet.records.leases(task) == ["RELEASED", "OFFERED"]


def test_a_jump_of_the_wall_clock_is_not_forgotten_with_a_turn_that_was_undone(
    fleet: ScriptedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.worker(slots=2)
    task = fleet.submit(delay_ms=5_000)
    fleet.clock.jump_wall_ms(-600_000)
    with monkeypatch.context() as disk:
        disk.setattr(Database, "run_many", _no_space)
        fleet.client.send(fleet.client.submission(envelope()))
        with pytest.raises(StoreFull):
            fleet.step()
    fleet.step()
    fleet.live(6_000)
    assert fleet.records.state(task) == "OFFERED"


def _no_space(*_: object) -> int:
    raise StoreFull("the disk is full")


def test_a_repeat_without_backoff_is_ready_at_once_when_the_wall_clock_is_set_back(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit(retry=Retry(lost=1))
    hand = worker.claim()
    worker.window = 0
    worker.release(hand, Cause.PROCESS_DIED, started=True)
    fleet.clock.jump_wall_ms(-600_000)
    worker.window = 1
    fleet.live(1_000)
    assert fleet.records.state(task) == "OFFERED"


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ((("no", "such"),), "has no=such"),
        ((("secret:token", "yes"),), "has the secret token"),
        ((("os", "linux"), ("secret:token", "yes")), "has the secret token"),
        ((("os", "linux"), ("room", "b12")), "has os=linux and room=b12 together"),
        (
            (("a", "1"), ("b", "1"), ("os", "linux"), ("room", "b12")),
            "has a=1 and b=1 and os=linux and room=b12 together",
        ),
    ],
)
def test_a_submitter_is_told_what_no_worker_has(fleet: ScriptedFleet, labels: Any, words: str) -> None:
    both = (("a", "1"), ("b", "1"))
    fleet.worker("w1", labels=(*both, ("os", "linux")))
    fleet.worker("w2", labels=(*both, ("room", "b12")))
    reply = fleet.client.ask(fleet.client.submission(envelope(requirements=Requirements(labels=labels))))
    assert reply.warnings == (
        f"no active worker that offers capability 'cpu' {words}; its tasks are stored and wait until one does",
    )


def test_what_some_worker_has_needs_no_words(fleet: ScriptedFleet) -> None:
    fleet.worker("w1", labels=(("os", "linux"),))
    needs = Requirements(labels=(("os", "linux"),))
    assert fleet.client.ask(fleet.client.submission(envelope(requirements=needs))).warnings == ()


def test_a_task_whose_capability_nobody_offers_waits_and_the_submitter_is_told(fleet: ScriptedFleet) -> None:
    reply = fleet.client.ask(fleet.client.submission(envelope(capability="gpu")))
    assert reply.warnings == ("no active worker offers capability 'gpu'; its tasks are stored and wait until one does",)
    fleet.live(3_600)
    worker = fleet.worker(capabilities=("gpu",))
    fleet.step()
    worker.claim()
    assert granted(worker) == [1]


def test_a_draining_worker_is_given_nothing_and_is_offline_when_it_says_so(fleet: ScriptedFleet) -> None:
    worker = fleet.worker(slots=2)
    task = fleet.submit()
    hand = worker.claim()
    leave(worker, gone=False)
    other = fleet.submit()
    assert (fleet.records.worker("w1"), fleet.records.state(other)) == ("DRAINING", "QUEUED")
    worker.finish(hand)
    leave(worker, gone=True)
    assert (fleet.records.worker("w1"), fleet.records.state(task)) == ("OFFLINE", "SUCCEEDED")


def test_a_draining_worker_that_dies_is_offline_after_its_leases(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    worker.claim()
    leave(worker, gone=False)
    worker.alive = False
    fleet.live(EXPIRY_MS + 3_000)
    assert (fleet.records.worker("w1"), fleet.records.state(task)) == ("OFFLINE", "LOST")


def test_a_new_generation_of_an_offline_worker_is_active(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    leave(worker, gone=True)
    worker.generation = 2
    worker.hello()
    fleet.step()
    assert fleet.records.worker("w1") == "ACTIVE"


# --- tasks that need a certain worker ------------------------------------------------------------


@pytest.mark.parametrize(
    "needs",
    [
        Requirements(worker="w2"),
        Requirements(labels=(("room", "b12"),)),
        Requirements(resources=(("gpu", 2),)),
        Requirements(worker="w2", labels=(("room", "b12"),), resources=(("gpu", 1),)),
    ],
    ids=["name", "labels", "resources", "all"],
)
def test_a_directed_task_goes_to_the_worker_that_fits(fleet: ScriptedFleet, needs: Requirements) -> None:
    first = fleet.worker("w1", labels=(("room", "a1"),), resources=(("gpu", 1),))
    second = fleet.worker("w2", labels=(("room", "b12"),), resources=(("gpu", 2),))
    fleet.submit(requirements=needs)
    second.claim()
    assert (granted(second), first.take()) == ([1], [])


def test_a_directed_task_that_fits_nobody_waits(fleet: ScriptedFleet) -> None:
    fleet.worker("w1")
    task = fleet.submit(requirements=Requirements(labels=(("room", "b12"),)))
    assert fleet.records.state(task) == "QUEUED"
    fleet.worker("w2", labels=(("room", "b12"),))
    fleet.step()
    assert fleet.records.state(task) == "OFFERED"


def test_of_two_workers_that_fit_the_one_with_more_room_is_chosen(fleet: ScriptedFleet) -> None:
    for name, slots in (("w1", 1), ("w2", 2), ("w3", 2)):
        fleet.worker(name, slots=slots, labels=(("room", "b12"),))
    task = fleet.submit(requirements=Requirements(labels=(("room", "b12"),)))
    assert fleet.records.rows("SELECT directed_to FROM lease WHERE task_id = ?", task) == [("w2",)]


def test_resources_are_used_up_and_given_back(fleet: ScriptedFleet) -> None:
    worker = fleet.worker(slots=4, resources=(("gpu", 2),))
    first, second = submit(fleet, 2, requirements=Requirements(resources=(("gpu", 2),)))
    hand = worker.claim()
    fleet.step(2)
    assert (fleet.records.state(first), fleet.records.state(second)) == ("RUNNING", "QUEUED")
    worker.finish(hand)
    assert fleet.records.state(second) == "OFFERED"


def test_resources_stay_used_over_a_restart(fleet: ScriptedFleet) -> None:
    worker = fleet.worker(slots=4, resources=(("gpu", 1),))
    submit(fleet, 2, requirements=Requirements(resources=(("gpu", 1),)))
    hand = worker.claim()
    fleet.restart()
    fleet.step(3)
    assert offered(fleet) == 1
    worker.finish(hand)
    assert offered(fleet) == 1


def test_a_directed_task_cannot_be_claimed_by_another_worker(fleet: ScriptedFleet) -> None:
    fleet.worker("w1")
    liar = fleet.worker("w2")
    task = fleet.submit(requirements=Requirements(worker="w1"))
    ((fence, digest),) = fleet.records.rows("SELECT fence, digest FROM lease WHERE task_id = ?", task)
    fleet.worker("w3").take()
    other = fleet.submit(requirements=Requirements(worker="w2"))
    hand = liar.take()[0]
    hand.ticket = hand.ticket.model_copy(update={"task_id": task, "fence": fence, "digest": digest})
    liar.claim(hand)
    assert granted(liar) == []
    assert [fleet.records.state(each) for each in (task, other)] == ["OFFERED", "OFFERED"]


def test_hundreds_of_directed_tasks_that_fit_nobody_hold_up_no_task_that_fits(fleet: ScriptedFleet) -> None:
    fleet.worker()
    submit(fleet, 1_200, requirements=Requirements(labels=(("room", "b12"),)))
    task = fleet.submit(requirements=Requirements(worker="w1"))
    fleet.step(4)
    assert fleet.records.state(task) == "OFFERED"


def test_more_directed_tasks_than_one_turn_looks_at_are_all_offered(fleet: ScriptedFleet) -> None:
    fleet.worker(slots=1_200)
    submit(fleet, 1_200, requirements=Requirements(worker="w1"))
    fleet.step(4)
    assert offered(fleet) == 1_200


# --- by hand -------------------------------------------------------------------------------------


def test_a_worker_registered_by_hand_gets_only_what_it_is_assigned(fleet: ScriptedFleet) -> None:
    fleet.client.ask(RegisterWorker(worker_id="robot", capabilities=("cpu",)))
    task = fleet.submit()
    directed = fleet.submit(requirements=Requirements(resources=(("gpu", 1),)))
    fleet.live(3_000)
    assert [fleet.records.state(each) for each in (task, directed)] == ["QUEUED", "QUEUED"]
    reply = fleet.client.ask(Assign(task_id=task, worker_id="robot"))
    assert reply.rows == ({"task_id": task, "worker_id": "robot", "attempt": 1, "fence": 1},)


def test_a_task_that_names_a_worker_registered_by_hand_goes_to_it(fleet: ScriptedFleet) -> None:
    fleet.client.ask(RegisterWorker(worker_id="robot", capabilities=("cpu",)))
    task = fleet.submit(requirements=Requirements(worker="robot"))
    assert fleet.records.state(task) == "OFFERED"


def test_a_worker_registered_by_hand_keeps_its_leases_by_beats_by_hand(fleet: ScriptedFleet) -> None:
    fleet.client.ask(RegisterWorker(worker_id="robot", capabilities=("cpu",)))
    task = fleet.submit(requirements=Requirements(worker="robot"))
    robot = fleet.worker("w9")
    robot.worker_id, robot.face = "robot", fleet.broker.worker(site="default", worker_id="robot")
    robot.alive = False
    hand = robot.claim()
    for _ in range(5):
        fleet.live(10_000)
        fleet.client.ask(BeatWorker(worker_id="robot"))
    assert fleet.records.state(task) == "RUNNING"
    robot.finish(hand)
    assert verdicts(robot) == ["accepted"]


def test_a_worker_registered_by_hand_that_holds_nothing_is_offline_when_it_is_drained(fleet: ScriptedFleet) -> None:
    fleet.client.ask(RegisterWorker(worker_id="robot", capabilities=("cpu",)))
    reply = fleet.client.ask(DrainWorker(worker_id="robot"))
    assert reply.rows == ({"worker_id": "robot", "state": "OFFLINE"},)


@pytest.mark.parametrize(
    ("worker", "reason"),
    [("w1", "w1 has no free slot"), ("w2", "w2 does not offer cpu"), ("w3", "w3 is DRAINING")],
)
def test_a_task_is_not_assigned_to_a_worker_that_is_not_eligible(
    fleet: ScriptedFleet, worker: str, reason: str
) -> None:
    fleet.worker("w1", window=0)
    fleet.worker("w2", capabilities=("gpu",))
    leave(fleet.worker("w3", window=0), gone=False)
    task = fleet.submit()
    refusal = fleet.client.ask(Assign(task_id=task, worker_id=worker)).refusal
    assert refusal is not None
    assert (refusal.code, refusal.message) == ("not_eligible", f"task {task} cannot be given to {worker}: {reason}")
