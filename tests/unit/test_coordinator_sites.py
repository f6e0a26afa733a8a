"""What keeps sites apart: an assignment goes to one of them, and nobody else is bound to it or ends it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.broker.base import Stream
from tenure.protocol.client_messages import Adopt, Assign, RegisterWorker
from tenure.protocol.envelope import Requirements
from tenure.protocol.principal_messages import IssueSite
from tenure.protocol.worker_messages import Binding, Cause, ExecutorGone
from tests.scripted_fleet import Hand, ScriptedFleet, ScriptedWorker, granted, refusals, verdicts

UNCLAIMED_MS = 15_000


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path) as fleet:
        yield fleet


def issue(
    fleet: ScriptedFleet, site: str = "north", *capabilities: str, devices: tuple[str, ...] = (), most_leases: int = 0
) -> None:
    ask = IssueSite(
        site=site,
        capabilities=capabilities or ("cpu",),
        devices=devices,
        most_leases=most_leases,
        secret_digest=site.encode().hex().ljust(64, "0"),
    )
    assert fleet.client.ask(ask).refusal is None


def at_north(fleet: ScriptedFleet, name: str = "north.w1", **hello: Any) -> ScriptedWorker:
    return fleet.worker(name, site="north", **hello)


def lease(fleet: ScriptedFleet, task: str) -> tuple[str, str]:
    """Site and state of a task's newest lease."""
    sql = "SELECT site_id, state FROM lease WHERE task_id = ? ORDER BY fence DESC LIMIT 1"
    ((site, state),) = fleet.records.rows(sql, task)
    return str(site), str(state)


def forged(hand: Hand, nonce: str = "f" * 16) -> Hand:
    return Hand(hand.ticket, nonce)


# --- who may be bound, and end it ----------------------------------------------------------------


def test_an_offer_is_bound_to_nobody_of_another_site(fleet: ScriptedFleet) -> None:
    issue(fleet)
    honest = fleet.worker()
    task = fleet.submit()
    (hand,) = honest.take()
    thief = at_north(fleet)
    thief.report(thief.claimed(forged(hand)))

    assert refusals(thief) == ["wrong_site"]
    assert lease(fleet, task) == ("default", "OFFERED")
    honest.claim(hand)
    assert granted(honest) == [hand.ticket.fence]


def test_an_offer_of_another_site_is_not_renewed_by_a_heartbeat(fleet: ScriptedFleet) -> None:
    issue(fleet)
    honest = fleet.worker()
    task = fleet.submit()
    (hand,) = honest.take()
    honest.hands.clear()
    thief = at_north(fleet)
    thief.hands.append(forged(hand))
    fleet.live(UNCLAIMED_MS + 3_000)

    assert fleet.records.leases(task)[-1] == "OFFERED"
    assert lease(fleet, task)[0] == "north"  # it was looked into, and the other site had room
    assert len(fleet.records.leases(task)) == 2


def test_a_result_from_another_site_is_evidence_and_nothing_else(fleet: ScriptedFleet) -> None:
    issue(fleet)
    honest = fleet.worker()
    task = fleet.submit()
    hand = honest.claim()
    thief = at_north(fleet)
    thief.finish(Hand(hand.ticket, hand.nonce), "666")

    assert verdicts(thief) == ["wrong_site"]
    assert fleet.records.result(task) is None
    honest.finish(hand, "7")
    assert fleet.records.result(task) == ("w1", hand.ticket.fence, "7")


def test_a_result_from_another_site_is_not_adopted_when_the_lease_is_over(fleet: ScriptedFleet) -> None:
    issue(fleet)
    honest = fleet.worker()
    fleet.submit()
    hand = honest.claim()
    thief = at_north(fleet)
    thief.finish(Hand(hand.ticket, hand.nonce), "666")
    honest.alive = False
    fleet.live(20_000)
    ((quarantined,),) = fleet.records.rows("SELECT quarantine_id FROM quarantine")
    refusal = fleet.client.ask(Adopt(quarantine_id=str(quarantined))).refusal

    assert refusal is not None
    assert "wrong_site" in refusal.message


def test_nobody_of_another_site_gives_a_lease_back(fleet: ScriptedFleet) -> None:
    issue(fleet)
    honest = fleet.worker()
    task = fleet.submit()
    hand = honest.claim()
    thief = at_north(fleet)
    thief.release(Hand(hand.ticket, hand.nonce), Cause.PROCESS_DIED, started=True)

    assert verdicts(thief) == ["wrong_site"]
    assert lease(fleet, task) == ("default", "ACTIVE")


def test_nobody_of_another_site_tells_of_an_executors_end(fleet: ScriptedFleet) -> None:
    issue(fleet)
    honest = fleet.worker()
    fleet.submit()
    (hand,) = honest.take()
    honest.finish(honest.claim(hand), "7")
    thief = at_north(fleet)
    thief.report(ExecutorGone(binding=forged(hand).binding, cause=Cause.EXECUTOR_DIED, proved=True))

    assert verdicts(thief) == ["wrong_site"]


# --- whose name is whose -------------------------------------------------------------------------


@pytest.mark.parametrize(("site", "name"), [("default", "north.w9"), ("north", "w9"), ("north", "south.w9")])
def test_a_name_is_taken_only_from_the_site_that_it_begins_with(fleet: ScriptedFleet, site: str, name: str) -> None:
    issue(fleet)
    issue(fleet, "south")
    fleet.worker(name, site=site)

    assert fleet.records.rows("SELECT worker_id FROM worker") == []
    assert "wrong_site" in fleet.records.events("refused")[0]


def test_a_dot_in_a_name_means_nothing_where_it_follows_no_sites_name(fleet: ScriptedFleet) -> None:
    issue(fleet)
    fleet.worker("rack.w9")
    at_north(fleet, "north.rack.w9")

    assert fleet.records.rows("SELECT worker_id, site_id FROM worker ORDER BY worker_id") == [
        ("north.rack.w9", "north"),
        ("rack.w9", "default"),
    ]


def test_a_worker_that_is_known_is_not_heard_from_another_site(fleet: ScriptedFleet) -> None:
    issue(fleet)
    honest = at_north(fleet)
    task = fleet.submit()
    hand = honest.claim()
    impostor = ScriptedWorker(
        fleet, "north.w1", "default", 1, fleet.broker.worker(site="default", worker_id="north.w1")
    )
    impostor.finish(hand, "666")

    assert fleet.records.result(task) is None
    assert fleet.records.quarantined() == ["wrong_site"]


def test_a_worker_by_hand_is_of_the_site_that_its_name_begins_with(fleet: ScriptedFleet) -> None:
    issue(fleet)
    fleet.client.ask(RegisterWorker(worker_id="north.arm", capabilities=("cpu", "gpu")))

    ((site, capabilities),) = fleet.records.rows("SELECT site_id, capabilities FROM worker")
    assert (site, capabilities) == ("north", '["cpu"]')


# --- what a site is granted ----------------------------------------------------------------------


def test_a_site_gets_only_the_kinds_of_work_that_it_was_granted(fleet: ScriptedFleet) -> None:
    issue(fleet)
    worker = at_north(fleet, capabilities=("cpu", "gpu"), slots=4)
    task = fleet.submit(capability="gpu")

    assert fleet.records.state(task) == "QUEUED"
    assert "not granted gpu" in fleet.records.events("worker_hello")[0]
    assert fleet.server.stream(fleet.broker.keys.assignments(Stream("north", "gpu"))) is None
    assert worker.face.take(capabilities=("cpu",), limit=9, block_ms=0) == []


def test_the_label_that_says_where_a_worker_is_comes_from_the_coordinator(fleet: ScriptedFleet) -> None:
    issue(fleet)
    at_north(fleet, slots=2, labels=(("room", "b12"), ("site", "south")))
    wanted = fleet.submit(requirements=Requirements(labels=(("room", "b12"), ("site", "north"))))
    claimed = fleet.submit(requirements=Requirements(labels=(("site", "south"),)))

    assert lease(fleet, wanted) == ("north", "OFFERED")
    assert fleet.records.state(claimed) == "QUEUED"


def test_a_site_holds_no_more_leases_than_it_may(fleet: ScriptedFleet) -> None:
    issue(fleet, most_leases=2)
    worker = at_north(fleet, slots=4)
    tasks = [fleet.submit(), fleet.submit(requirements=Requirements(labels=(("site", "north"),))), fleet.submit()]
    named = fleet.submit(requirements=Requirements(worker="north.w1"))

    assert [fleet.records.state(task) for task in [*tasks, named]] == ["OFFERED", "OFFERED", "QUEUED", "QUEUED"]
    assert "holds as many leases as it may" in fleet.client.explain(named)[-1]
    refusal = fleet.client.ask(Assign(task_id=tasks[2], worker_id="north.w1")).refusal
    assert refusal is not None
    assert "holds as many leases as it may" in refusal.message
    for hand in worker.take():
        worker.finish(worker.claim(hand))
    fleet.step()
    assert [fleet.records.state(task) for task in [tasks[2], named]] == ["OFFERED", "OFFERED"]


# --- who is given what ---------------------------------------------------------------------------


def test_tasks_are_shared_among_sites_that_have_room(fleet: ScriptedFleet) -> None:
    issue(fleet)
    at_north(fleet, slots=4)
    fleet.worker(slots=4)
    tasks = [fleet.submit() for _ in range(4)]

    assert sorted(lease(fleet, task)[0] for task in tasks) == ["default", "default", "north", "north"]


def test_what_a_site_lets_lie_is_given_to_another_one(fleet: ScriptedFleet) -> None:
    issue(fleet)
    at_north(fleet, slots=4)
    task = fleet.submit()
    assert lease(fleet, task)[0] == "north"
    honest = fleet.worker(slots=4)
    fleet.live(UNCLAIMED_MS + 3_000)
    later = fleet.submit()

    assert [lease(fleet, each)[0] for each in (task, later)] == ["default", "default"]
    assert len(honest.take()) == 2


def test_what_was_directed_to_a_site_that_lets_it_lie_goes_elsewhere(fleet: ScriptedFleet) -> None:
    issue(fleet)
    room = (("room", "any"),)
    at_north(fleet, slots=4, labels=room)
    honest = fleet.worker(slots=2, labels=room)
    task = fleet.submit(requirements=Requirements(labels=room))
    assert lease(fleet, task)[0] == "north"
    fleet.live(UNCLAIMED_MS + 3_000)

    assert lease(fleet, task)[0] == "default"
    assert len(honest.take()) == 1


def test_a_site_that_ends_what_it_is_offered_is_given_more(fleet: ScriptedFleet) -> None:
    issue(fleet)
    slow = at_north(fleet, slots=4)
    first = fleet.submit()
    fleet.worker(slots=1)
    fleet.live(UNCLAIMED_MS + 3_000)
    assert lease(fleet, first)[0] == "default"
    second = fleet.submit()
    assert lease(fleet, second)[0] == "north"  # nobody else has room
    slow.finish(slow.claim(*slow.take()[-1:]))
    fleet.worker("w2", slots=4)

    assert lease(fleet, fleet.submit())[0] == "north"


def test_a_task_goes_where_there_is_time_for_it(fleet: ScriptedFleet) -> None:
    issue(fleet)
    at_north(fleet, slots=4, remaining_ms=5_000)
    fleet.worker(slots=1)
    tasks = [fleet.submit(timeout_ms=60_000) for _ in range(2)]
    short = fleet.submit(timeout_ms=1_000)

    assert lease(fleet, tasks[0])[0] == "default"
    assert fleet.records.state(tasks[1]) == "QUEUED"
    assert lease(fleet, short)[0] == "north"


def test_a_binding_says_nothing_of_a_site(fleet: ScriptedFleet) -> None:
    """Where a report came from is known by its inbox alone."""
    assert "site" not in Binding.model_fields
