"""Cancelling many tasks on one request: what it covers, portion by portion, over restarts, while the others go on."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.coordinator import scheduler
from tenure.errors import StoreFull
from tenure.protocol.campaign_messages import CreateCampaign
from tenure.protocol.cancellation_messages import CancelMany
from tenure.protocol.client_messages import Assign
from tenure.protocol.control_messages import Stop
from tenure.protocol.envelope import Envelope, Requirements, Retry, Scope
from tenure.protocol.principal_messages import IssuePerson, Role
from tenure.protocol.worker_messages import Cause
from tests.scripted_fleet import EXPIRY_MS, WORLD, ScriptedFleet, envelope, verdicts

PORTION = 10


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path, cancel_portion=PORTION) as fleet:
        yield fleet


def submit(fleet: ScriptedFleet, *envelopes: Envelope) -> list[str]:
    return [each.task_id for each in fleet.client.ask(fleet.client.submission(*envelopes)).admitted]


def of_run(run: str, **fields: Any) -> Envelope:
    return envelope(scope=Scope(world=WORLD, run=run), **fields)


def cancel(fleet: ScriptedFleet, *, reason: str = "", **which: Any) -> dict[str, Any]:
    """Ask, let it be gone through, and answer the record of it."""
    (row,) = fleet.client.ask(CancelMany(reason=reason, **which)).rows
    return finish(fleet, row["cancellation_id"])


def finish(fleet: ScriptedFleet, cancellation_id: int) -> dict[str, Any]:
    for _ in range(100):
        (row,) = fleet.client.query("cancellations", cancellation_id=str(cancellation_id))
        if row["state"] == "DONE":
            return row
    raise AssertionError("it is not done after 100 turns")


def states(fleet: ScriptedFleet) -> Counter[str]:
    return Counter(str(state) for (state,) in fleet.records.rows("SELECT state FROM task"))


# --- what is covered -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        ({"run": "r1"}, {"r1 cpu", "r1 gpu"}),
        ({"capability": "gpu"}, {"r1 gpu", "r2 gpu"}),
        ({"run": "r2", "capability": "gpu"}, {"r2 gpu"}),
        ({"run": "nobody"}, set[str]()),
        ({"everything": True}, {"r1 cpu", "r1 gpu", "r2 cpu", "r2 gpu"}),
    ],
)
def test_what_fits_every_condition_is_cancelled_and_nothing_else(
    fleet: ScriptedFleet, which: dict[str, Any], expected: set[str]
) -> None:
    submit(fleet, *(of_run(run, capability=name) for run in ("r1", "r2") for name in ("cpu", "gpu")))
    row = cancel(fleet, **which)
    rows = fleet.records.rows("SELECT run || ' ' || capability FROM task WHERE state = 'CANCELLED'")
    assert {str(name) for (name,) in rows} == expected
    assert (row["cancelled"], row["stopping"]) == (len(expected), 0)


@pytest.mark.parametrize("which", [{}, {"run": "r1", "everything": True}])
def test_a_request_says_which_tasks_or_everything(which: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="say which tasks, or everything"):
        CancelMany(**which)


def test_only_tasks_of_the_campaign_that_is_named_are_cancelled(fleet: ScriptedFleet) -> None:
    fleet.client.ask(CreateCampaign(campaign="c1"))
    inside = fleet.client.submission(of_run("r1")).model_copy(update={"campaign": "c1"})
    (member,) = fleet.client.ask(inside).admitted
    (stranger,) = submit(fleet, of_run("r1"))
    assert cancel(fleet, campaign="c1")["cancelled"] == 1
    assert (fleet.records.state(member.task_id), fleet.records.state(stranger)) == ("CANCELLED", "QUEUED")


def test_a_campaign_that_does_not_exist_is_refused_and_nothing_is_kept(fleet: ScriptedFleet) -> None:
    (task,) = submit(fleet, of_run("r1"))
    refusal = fleet.client.ask(CancelMany(run="r1", campaign="c2")).refusal
    assert refusal is not None
    assert (refusal.code, refusal.message) == ("unknown_campaign", "there is no campaign 'c2'")
    assert list(fleet.client.query("cancellations")) == []
    assert fleet.records.state(task) == "QUEUED"


def test_a_submitter_cancels_nothing_of_others(fleet: ScriptedFleet) -> None:
    for name in ("eve", "bob"):
        digest = name.encode().hex().ljust(64, "0")
        fleet.client.ask(IssuePerson(person=name, role=Role.SUBMITTER, secret_digest=digest))
    eve, bob = fleet.connect("c8", "eve"), fleet.connect("c9", "bob")
    hers, his = eve.submit(of_run("r1")), bob.submit(of_run("r1"))
    (row,) = bob.ask(CancelMany(everything=True)).rows
    assert finish(fleet, row["cancellation_id"])["cancelled"] == 1
    assert (fleet.records.state(hers), fleet.records.state(his)) == ("QUEUED", "CANCELLED")
    assert fleet.records.events("cancel_many_asked") == ["bob asked to cancel all tasks of bob."]


def test_what_is_submitted_later_is_not_covered(fleet: ScriptedFleet) -> None:
    (before,) = submit(fleet, of_run("r1"))
    fleet.client.send(CancelMany(run="r1"))
    fleet.client.send(fleet.client.submission(of_run("r1"), key="later"))
    fleet.step(5)
    assert fleet.records.state(before) == "CANCELLED"
    assert states(fleet) == {"CANCELLED": 1, "QUEUED": 1}


def test_a_request_that_is_repeated_covers_nothing_more_also_after_a_restart(fleet: ScriptedFleet) -> None:
    submit(fleet, of_run("r1"))
    fleet.client.send(CancelMany(run="r1"), request_id="same")
    fleet.step(3)
    submit(fleet, of_run("r1"))
    fleet.restart()
    fleet.step()
    fleet.client.send(CancelMany(run="r1"), request_id="same")
    fleet.step(3)
    assert states(fleet) == {"CANCELLED": 1, "QUEUED": 1}
    assert len(fleet.client.query("cancellations")) == 1


def test_tasks_of_every_state_come_to_an_end(fleet: ScriptedFleet) -> None:
    worker = fleet.worker(slots=4)
    running, lost, offered, claimed_on_start = submit(
        fleet, of_run("r1"), of_run("r1"), of_run("r1"), of_run("r1", start="claimed")
    )
    queued, directed, later = submit(
        fleet,
        of_run("r1"),
        of_run("r1", requirements=Requirements(worker="nobody")),
        of_run("r1", delay_ms=3_600_000),
    )
    hands = {hand.ticket.task_id: hand for hand in worker.take()}
    worker.claim(hands[running])
    worker.claim(hands[lost])
    worker.release(hands[lost], Cause.PROCESS_DIED, started=True)
    worker.window = 3
    row = cancel(fleet, run="r1")
    named = {name: fleet.records.state(name) for name in (running, claimed_on_start)}
    assert named == {running: "CANCELLING", claimed_on_start: "CANCELLING"}
    for task in (lost, offered, queued, directed, later):
        assert fleet.records.state(task) == "CANCELLED"
    assert (row["cancelled"], row["stopping"]) == (5, 2)
    assert fleet.records.directives(lost) == [("DENIED", "process_died", "ada")]
    stops = {order.task_id for order in worker.read() if isinstance(order, Stop)}
    assert running in stops
    worker.release(hands[running], Cause.CANCELLED, started=True)
    assert fleet.records.state(running) == "CANCELLED"


def test_what_has_ended_stays_as_it_is(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    (task,) = submit(fleet, of_run("r1"))
    worker.finish(worker.claim(), "42")
    assert cancel(fleet, everything=True)["cancelled"] == 0
    assert fleet.records.state(task) == "SUCCEEDED"


# --- who asks, and what is on record -------------------------------------------------------------


def test_every_task_says_who_cancelled_it_why_and_what_proves_its_end(fleet: ScriptedFleet) -> None:
    (task,) = submit(fleet, of_run("r1"))
    cancel(fleet, run="r1", reason="wrong grid")
    assert fleet.records.events("cancelled") == ["ada cancelled it (wrong grid): it had not been offered to anyone."]
    rows = fleet.records.rows("SELECT DISTINCT principal FROM event WHERE task_id = ? AND kind = 'cancelled'", task)
    assert rows == [("person:default/ada",)]
    assert "ada cancelled it (wrong grid): it had not been offered to anyone." in fleet.client.explain(task)


def test_the_request_and_its_end_are_on_record_with_the_numbers(fleet: ScriptedFleet) -> None:
    submit(fleet, of_run("r1"), of_run("r1"))
    row = cancel(fleet, run="r1", capability="cpu", reason="wrong grid")
    assert fleet.records.events("cancel_many_asked") == ["ada asked to cancel all tasks of run r1 and capability cpu."]
    assert fleet.records.events("cancel_many_done") == [
        "What ada asked to cancel was gone through: 2 tasks were cancelled, 0 are told to stop."
    ]
    assert (row["asked_by"], row["reason"], row["state"]) == ("ada", "wrong grid", "DONE")


def test_one_task_is_told_as_one(fleet: ScriptedFleet) -> None:
    submit(fleet, of_run("r1"))
    cancel(fleet, run="r1")
    (text,) = fleet.records.events("cancel_many_done")
    assert text.endswith("1 task was cancelled, 0 are told to stop.")


def test_the_submitter_is_told_of_every_task(fleet: ScriptedFleet) -> None:
    tasks = submit(fleet, of_run("r1"), of_run("r1"))
    cancel(fleet, run="r1")
    assert {done.task_id: str(done.state) for done in fleet.client.read()} == dict.fromkeys(tasks, "CANCELLED")


# --- portions ------------------------------------------------------------------------------------


def test_a_long_queue_takes_several_turns_and_others_are_served_in_each(fleet: ScriptedFleet) -> None:
    worker = fleet.worker(capabilities=("gpu",))
    submit(fleet, *[of_run("r1")] * 300)
    fleet.client.send(CancelMany(run="r1"))
    for _ in range(4):
        (task,) = submit(fleet, of_run("r2", capability="gpu"))
        worker.finish(worker.claim(), scope=Scope(world=WORLD, run="r2"))
        assert fleet.records.state(task) == "SUCCEEDED"
    assert 0 < states(fleet)["CANCELLED"] < 300
    fleet.step(30)
    assert states(fleet) == {"CANCELLED": 300, "SUCCEEDED": 4}


def test_nothing_that_is_covered_is_offered_to_anyone_meanwhile(fleet: ScriptedFleet) -> None:
    submit(fleet, *[of_run("r1")] * 40)
    last = submit(fleet, of_run("r1", priority=10))
    fleet.client.ask(CancelMany(run="r1"))
    worker = fleet.worker(slots=8)
    fleet.step(2)
    assert worker.take() == []
    fleet.step(5)
    assert fleet.records.rows("SELECT COUNT(*) FROM lease") == [(0,)]
    assert fleet.records.state(last[0]) == "CANCELLED"
    assert cancel(fleet, everything=True)["cancelled"] == 0
    (row,) = fleet.client.query("cancellations", cancellation_id="1")
    assert row["cancelled"] == 41


def test_what_is_covered_cannot_be_given_to_a_worker_by_hand(fleet: ScriptedFleet) -> None:
    fleet.worker()
    submit(fleet, *[of_run("r1", capability="a")] * 40)
    task = submit(fleet, of_run("r1", requirements=Requirements(worker="w9")))[0]
    fleet.client.ask(CancelMany(run="r1"))
    refusal = fleet.client.ask(Assign(task_id=task, worker_id="w1")).refusal
    assert refusal is not None
    assert "is about to be cancelled" in refusal.message


def test_a_task_that_comes_back_to_the_queue_meanwhile_is_cancelled_too(fleet: ScriptedFleet) -> None:
    """It runs when the request is taken on, and its loss is decided while the request is under way."""
    worker = fleet.worker(slots=2)
    given_back, lost = submit(fleet, of_run("r1", start="claimed"), of_run("r1", retry=Retry(lost=3)))
    hands = {hand.ticket.task_id: hand for hand in worker.take()}
    worker.claim(hands[lost])
    submit(fleet, *[of_run("r1")] * 40)
    worker.window = 0
    worker.send(worker.claimed(hands[given_back]))
    fleet.client.send(CancelMany(run="r1"))
    fleet.step()
    worker.release(hands[given_back], Cause.UNSTARTED, started=False)
    worker.release(hands[lost], Cause.PROCESS_DIED, started=True)
    fleet.step(8)
    assert states(fleet) == {"CANCELLED": 42}
    assert fleet.records.rows("SELECT COUNT(*) FROM lease WHERE state IN ('OFFERED', 'ACTIVE')") == [(0,)]


def test_it_goes_on_after_a_restart_where_it_was(fleet: ScriptedFleet) -> None:
    submit(fleet, *[of_run("r1")] * 40)
    fleet.client.send(CancelMany(run="r1"))
    fleet.step(2)
    before = states(fleet)["CANCELLED"]
    assert 0 < before < 40
    worker = fleet.worker(slots=3)
    fleet.restart()
    fleet.step()
    assert worker.take() == []
    fleet.step(5)
    assert states(fleet) == {"CANCELLED": 40}
    assert len(fleet.records.events("cancelled")) == 40


def test_a_portion_that_could_not_be_committed_is_taken_again(
    fleet: ScriptedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(fleet, *[of_run("r1")] * 40)
    fleet.client.send(CancelMany(run="r1"))
    fleet.step()

    def refuse(_: object) -> None:
        raise StoreFull("the disk is full", "Free some space")

    with monkeypatch.context() as patch:
        patch.setattr(scheduler, "schedule", refuse)
        with pytest.raises(StoreFull):
            fleet.step()
    fleet.step(5)
    assert states(fleet) == {"CANCELLED": 40}
    (row,) = fleet.client.query("cancellations")
    assert row["cancelled"] == len(fleet.records.events("cancelled")) == 40


def test_two_requests_at_once_cancel_each_task_once(fleet: ScriptedFleet) -> None:
    submit(fleet, *[of_run("r1")] * 40)
    fleet.client.send(CancelMany(run="r1"))
    fleet.client.send(CancelMany(everything=True))
    fleet.step(10)
    assert states(fleet) == {"CANCELLED": 40}
    assert len(fleet.records.events("cancelled")) == 40
    assert [row["state"] for row in fleet.client.query("cancellations")] == ["DONE", "DONE"]
    assert sum(row["cancelled"] for row in fleet.client.query("cancellations")) == 40


# --- a site that is away -------------------------------------------------------------------------


def test_a_worker_that_is_away_finds_the_stop_when_it_returns_within_its_lease(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    (task,) = submit(fleet, of_run("r1"))
    hand = worker.claim()
    worker.alive = False
    cancel(fleet, run="r1")
    fleet.live(EXPIRY_MS // 2)
    assert fleet.records.state(task) == "CANCELLING"
    worker.read()
    worker.alive = True
    fleet.live(1_000)
    stops = [(order.fence, str(order.reason)) for order in worker.read() if isinstance(order, Stop)]
    assert stops == [(hand.ticket.fence, "cancelled")]
    worker.release(hand, Cause.CANCELLED, started=True)
    assert fleet.records.state(task) == "CANCELLED"


def test_a_worker_that_returns_after_its_lease_is_told_to_stop_and_changes_nothing(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    (task,) = submit(fleet, of_run("r1"))
    hand = worker.claim()
    worker.alive = False
    cancel(fleet, run="r1")
    fleet.live(EXPIRY_MS + 40)
    assert fleet.records.state(task) == "CANCELLED"
    (proof,) = fleet.records.events("cancelled")
    assert proof.startswith("Cancelled: its lease is over (w1 was not heard for ")
    worker.read()
    worker.alive = True
    fleet.live(1_000)
    assert [order.fence for order in worker.read() if isinstance(order, Stop)] == [hand.ticket.fence]
    worker.finish(hand, "42")
    assert verdicts(worker) == ["lease_expired"]
    assert fleet.records.state(task) == "CANCELLED"
    assert fleet.records.result(task) is None
