"""What a person may do with a rejected result, and what nobody may."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.protocol.client_messages import Adopt, Drop, Reply
from tenure.protocol.envelope import Retry
from tenure.protocol.worker_messages import Failure, FailureKind, Finished, Outcome
from tests.held_porter import HeldPorter, digests, objects, places, stage
from tests.scripted_fleet import EXPIRY_MS, Hand, ScriptedFleet, ScriptedWorker, verdicts

FILES = {"a.txt": b"alpha"}
DAY_MS = 86_400_000


@pytest.fixture
def porter() -> HeldPorter:
    return HeldPorter()


@pytest.fixture
def fleet(tmp_path: Path, porter: HeldPorter) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path, porter=porter, artifacts="memory:", quarantine_retention_ms=2 * DAY_MS) as fleet:
        settle(fleet)
        yield fleet


def settle(fleet: ScriptedFleet) -> None:
    assert fleet.porter is not None
    while fleet.porter.jobs:
        fleet.porter.finish()
        fleet.step()


def late(
    fleet: ScriptedFleet, *, files: bool = True, retry: Retry | None = None
) -> tuple[str, ScriptedWorker, Hand, str]:
    """A task whose worker was silent for too long and then told its result: its id, and that of the evidence."""
    worker = fleet.worker()
    task = fleet.submit(retry=retry or Retry())
    hand = worker.claim()
    worker.alive = False
    fleet.live(EXPIRY_MS + 1_000)
    worker.report(told(fleet, worker, hand, files=files))
    return task, worker, hand, evidence(fleet)


def told(fleet: ScriptedFleet, worker: ScriptedWorker, hand: Hand, *, files: bool) -> Finished:
    assert fleet.porter is not None
    outputs = stage(fleet.porter, hand.binding, FILES) if files else None
    return worker.finished(hand, "42").model_copy(update={"outputs": outputs})


def evidence(fleet: ScriptedFleet) -> str:
    """The newest rejected result."""
    return str(fleet.records.rows("SELECT quarantine_id FROM quarantine ORDER BY quarantine_id DESC")[0][0])


def adopt(fleet: ScriptedFleet, quarantine_id: str, *, by: str = "ada") -> Reply:
    return fleet.client.ask(Adopt(quarantine_id=quarantine_id, note="it is good"), principal=by)


def shown(fleet: ScriptedFleet, quarantine_id: str) -> dict[str, Any]:
    (row,) = fleet.client.query("quarantine", quarantine_id=quarantine_id)
    return row


def refusal(reply: Reply) -> str:
    assert reply.refusal is not None
    assert reply.refusal.code == "not_adoptable"
    return reply.refusal.message


# --- adopted -------------------------------------------------------------------------------------


def test_a_late_result_is_adopted_under_a_new_fence_after_its_files_were_read(
    fleet: ScriptedFleet, porter: HeldPorter
) -> None:
    task, _, hand, name = late(fleet)
    assert shown(fleet, name)["state"] == "UNDECIDED"
    assert adopt(fleet, name).rows[0]["state"] == "VERIFYING"
    assert (shown(fleet, name)["state"], fleet.records.state(task), objects(porter)) == ("VERIFYING", "LOST", set())

    settle(fleet)
    assert (fleet.records.state(task), fleet.records.result(task)) == ("SUCCEEDED", ("w1", 2, "42"))
    assert objects(porter) > digests(FILES)
    assert fleet.records.rows("SELECT fence, place_fence, state FROM artifact") == [(2, 1, "PROMOTED")]
    assert fleet.records.directives(task) == [("DENIED", "lease_expired", "ada")]
    row = shown(fleet, name)
    assert (row["state"], row["adopted_fence"], row["decided_by"], row["note"]) == ("ADOPTED", 2, "ada", "it is good")
    done = fleet.client.read()[-1]
    assert (done.state, done.fence, done.value, done.outputs is not None) == ("SUCCEEDED", 2, "42", True)
    assert any("ada adopted the result of attempt 1 (fence 1)" in line for line in fleet.client.explain(task))
    assert hand.binding.fence == 1


def test_a_result_without_files_is_adopted_at_once(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    task, _, _, name = late(fleet, files=False)
    assert adopt(fleet, name).rows[0] == {"quarantine_id": name, "state": "ADOPTED", "task_id": task, "fence": 2}
    assert (fleet.records.result(task), porter.waiting()) == (("w1", 2, "42"), [])


def test_a_result_is_adopted_while_the_next_attempt_waits(fleet: ScriptedFleet) -> None:
    task, _, _, name = late(fleet, files=False, retry=Retry(lost=1))
    assert fleet.records.state(task) == "QUEUED"
    adopt(fleet, name)
    assert fleet.records.result(task) == ("w1", 2, "42")
    second = fleet.worker("w2")
    fleet.step(2)
    assert second.take() == []


def test_the_same_request_again_gets_the_same_answer(fleet: ScriptedFleet) -> None:
    _, _, _, name = late(fleet, files=False)
    ask = Adopt(quarantine_id=name, note="")
    for _ in range(2):
        fleet.client.send(ask, request_id="same")
        fleet.step()
        fleet.client.read()
        assert fleet.client.replies["same"].rows[0]["state"] == "ADOPTED"


def test_asking_again_while_the_files_are_read_reads_them_once(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    task, _, _, name = late(fleet)
    for _ in range(3):
        assert adopt(fleet, name).rows[0]["state"] == "VERIFYING"
    assert porter.waiting().count("verify") == 1
    settle(fleet)
    assert "adopted already, by ada" in refusal(adopt(fleet, name))
    assert fleet.records.state(task) == "SUCCEEDED"


def test_a_restart_forgets_the_wish_and_nothing_else(fleet: ScriptedFleet) -> None:
    task, _, _, name = late(fleet)
    adopt(fleet, name)
    fleet.restart()
    fleet.step()
    settle(fleet)
    assert (fleet.records.state(task), shown(fleet, name)["state"]) == ("LOST", "UNDECIDED")
    adopt(fleet, name)
    settle(fleet)
    assert fleet.records.state(task) == "SUCCEEDED"


def test_its_worker_still_hears_that_it_was_too_late(fleet: ScriptedFleet) -> None:
    task, worker, hand, name = late(fleet)
    adopt(fleet, name)
    settle(fleet)
    worker.report(told(fleet, worker, hand, files=True))
    assert set(verdicts(worker)) == {"lease_expired"}
    assert fleet.records.result(task) == ("w1", 2, "42")


# --- refused -------------------------------------------------------------------------------------


def test_nothing_is_adopted_beside_a_live_lease(fleet: ScriptedFleet) -> None:
    task, _, _, name = late(fleet)
    fleet.client.decide(task, approve=True)
    second = fleet.worker("w2")
    fleet.step()
    assert "attempt 2 is OFFERED under fence 2" in refusal(adopt(fleet, name))
    hand = second.claim()
    assert "attempt 2 is ACTIVE under fence 2" in refusal(adopt(fleet, name))
    second.finish(hand, "2")
    assert "the task is SUCCEEDED" in refusal(adopt(fleet, name))
    assert fleet.records.result(task) == ("w2", 2, "2")


def test_nothing_is_adopted_over_a_newer_report_that_was_accepted(fleet: ScriptedFleet) -> None:
    _, _, _, name = late(fleet, retry=Retry(lost=1, failed=1, backoff_ms=60_000))
    second = fleet.worker("w2")
    fleet.live(61_000)
    second.fail(second.claim())
    assert "attempt 2 under fence 2 was completed after it" in refusal(adopt(fleet, name))


def test_a_lease_that_begins_while_the_files_are_read_refuses_it(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    task, _, _, name = late(fleet)
    adopt(fleet, name)
    fleet.client.decide(task, approve=True)
    second = fleet.worker("w2")
    fleet.step()
    settle(fleet)
    row = shown(fleet, name)
    assert (row["state"], "attempt 2 is OFFERED" in row["refusal"]) == ("UNDECIDED", True)
    assert objects(porter) == set()
    second.finish(second.claim(), "2")
    assert fleet.records.result(task) == ("w2", 2, "2")


def test_files_that_are_gone_refuse_it_with_the_reason(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    task, _, _, name = late(fleet)
    adopt(fleet, name)
    porter.fail("unknown_artifact")
    fleet.step()
    assert "its files could not be read" in shown(fleet, name)["refusal"]
    assert fleet.records.state(task) == "LOST"
    assert "ada wanted to adopt" in fleet.records.events("adoption_refused")[0]


def test_a_failure_is_not_adopted(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    hand = worker.claim()
    worker.alive = False
    fleet.live(EXPIRY_MS + 1_000)
    failure = Outcome(failure=Failure(kind=FailureKind.EXCEPTION, message="no"))
    worker.report(worker.finished(hand).model_copy(update={"outcome": failure}))
    assert "it is a failure (exception)" in refusal(adopt(fleet, evidence(fleet)))
    assert fleet.records.state(task) == "LOST"


@pytest.mark.parametrize(
    "changes",
    [{"nonce": "f" * 16}, {"digest": "0" * 64}, {"attempt": 7}],
    ids=["second executor", "other bytes", "other attempt"],
)
def test_what_is_false_and_not_merely_late_is_never_adopted(fleet: ScriptedFleet, changes: dict[str, Any]) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    hand = worker.claim()
    worker.alive = False
    fleet.live(EXPIRY_MS + 1_000)
    worker.finish(hand, '"false"', **changes)
    assert "it is not merely late" in refusal(adopt(fleet, evidence(fleet)))
    assert fleet.records.state(task) == "LOST"


def test_a_result_from_another_sites_inbox_is_never_adopted(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    hand = worker.claim()
    worker.alive = False
    fleet.live(EXPIRY_MS + 1_000)
    fleet.store._connection.execute(
        "INSERT INTO quarantine SELECT 'Q', ?, 1, 1, 'lab', 'w1', ?, 'wrong_site', ?, 0, NULL",
        (task, hand.nonce, worker.finished(hand).model_dump_json()),
    )
    assert "wrong_site" in refusal(adopt(fleet, "Q"))


def test_an_adoption_names_who_decides_it(fleet: ScriptedFleet) -> None:
    _, _, _, name = late(fleet)
    assert "with the name of who decides it" in refusal(adopt(fleet, name, by=""))


def test_what_is_not_in_quarantine_is_said(fleet: ScriptedFleet) -> None:
    assert "there is no result nothing in quarantine" in refusal(adopt(fleet, "nothing"))


def test_of_two_late_results_of_a_task_one_is_adopted(fleet: ScriptedFleet) -> None:
    task, _, _, first = late(fleet, files=False, retry=Retry(lost=1))
    second = fleet.worker("w2")
    fleet.step()
    hand = second.claim()
    second.alive = False
    fleet.live(EXPIRY_MS + 1_000)
    second.report(second.finished(hand, "2"))
    adopt(fleet, evidence(fleet))
    assert fleet.records.result(task) == ("w2", 3, "2")
    assert "another result of the task was adopted by ada" in refusal(adopt(fleet, first))


def test_a_result_with_files_is_not_adopted_without_a_store(fleet: ScriptedFleet) -> None:
    _, _, _, name = late(fleet)
    fleet.porter = None
    fleet.restart()
    fleet.step()
    assert "has no store" in refusal(adopt(fleet, name))


# --- dropped and expired -------------------------------------------------------------------------


def test_what_is_dropped_loses_its_files_and_keeps_its_record(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    task, _, _, name = late(fleet)
    assert fleet.client.ask(Drop(quarantine_id=name, note="no")).rows[0]["state"] == "DROPPED"
    settle(fleet)
    row = shown(fleet, name)
    assert (row["state"], row["decided_by"], row["outputs"] is not None) == ("DROPPED", "ada", True)
    assert (places(porter), objects(porter), fleet.records.state(task)) == (set(), set(), "LOST")
    assert "dropped already, by ada" in refusal(adopt(fleet, name))
    assert refusal(fleet.client.ask(Drop(quarantine_id=name)))


def test_files_that_nobody_decides_about_go_after_their_time(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    _, _, _, name = late(fleet)
    row = shown(fleet, name)
    assert row["files_until_ms"] - row["received_at_ms"] == 2 * DAY_MS
    fleet.clock.advance_ms(2 * DAY_MS - 5_000)
    fleet.live(1_000)
    settle(fleet)
    assert shown(fleet, name)["state"] == "UNDECIDED"
    fleet.live(6_000)
    settle(fleet)
    row = shown(fleet, name)
    assert (row["state"], row["files_until_ms"], places(porter)) == ("EXPIRED", None, set())
    assert "discarded already, by policy" in refusal(adopt(fleet, name))


def test_what_is_dropped_keeps_its_files_while_its_lease_may_still_bring_them(
    fleet: ScriptedFleet, porter: HeldPorter
) -> None:
    # Seed 850845251: the same result had come once before its agent was known again, and a person dropped that copy.
    worker = fleet.worker(generation=2)
    task = fleet.submit()
    hand = worker.claim()
    result = told(fleet, worker, hand, files=True)
    worker.generation = 1
    worker.report(result)
    assert fleet.client.ask(Drop(quarantine_id=evidence(fleet)), principal="ada").refusal is None
    settle(fleet)
    worker.generation = 2
    worker.report(result)
    settle(fleet)
    assert fleet.client.query("tasks", task_id=task)[0]["state"] == "SUCCEEDED"
    assert [row["state"] for row in fleet.client.query("artifacts", task_id=task)] == ["PROMOTED"]
