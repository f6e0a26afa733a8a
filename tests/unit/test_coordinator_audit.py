"""The event log of a fleet: every decision with whose it was, sealed; and whatever is done to it is noticed."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tenure.coordinator import admission
from tenure.coordinator.store.event_file import lines
from tenure.coordinator.turn import Turn
from tenure.errors import UsageError
from tenure.protocol.audit_messages import EventFilter, Page, ReadEvents
from tenure.protocol.chain import Anchor, Checker
from tenure.protocol.client_messages import Decide
from tenure.protocol.envelope import Retry, Scope
from tests.scripted_fleet import EXPIRY_MS, ScriptedFleet, envelope

Row = dict[str, Any]
FORGED = (
    "INSERT INTO event (event_id, at_ms, kind, principal, text) "
    "SELECT MAX(event_id) + 1, 0, 'adopted', 'person:ada', 'Never.' FROM event"
)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path) as fleet:
        yield fleet


def check(fleet: ScriptedFleet, *anchors: Anchor) -> Checker:
    checker = Checker(anchors)
    for line in lines(fleet.options.database):
        checker.feed(line)
    return checker


def kinds(fleet: ScriptedFleet, *anchors: Anchor) -> list[str]:
    return [finding.kind for finding in check(fleet, *anchors).findings()]


def anchor_of(fleet: ScriptedFleet) -> Anchor:
    anchor = check(fleet).anchor()
    assert anchor is not None
    return anchor


def tamper(fleet: ScriptedFleet, *statements: str) -> None:
    """What somebody does to the file who can write it: the triggers are no obstacle."""
    with closing(sqlite3.connect(fleet.options.database)) as connection:
        for trigger in ("event_fixed", "event_kept", "seal_fixed", "seal_kept", "seal_follows"):
            connection.execute(f"DROP TRIGGER IF EXISTS {trigger}")
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def events(fleet: ScriptedFleet, **only: Any) -> list[Row]:
    """The events that fit, in order, read page by page with one event each."""
    found: list[Row] = []
    beyond: int | None = 0
    while beyond is not None:
        page, *rest = fleet.client.ask(ReadEvents(beyond=beyond, limit=100, only=EventFilter(**only))).rows
        found += [line["event"] for line in rest]
        beyond = Page.model_validate(page).beyond
    return found


def steps(fleet: ScriptedFleet, task_id: str) -> list[tuple[str, str, str, str]]:
    """A task's events as kind, principal, before and after."""
    return [(row["kind"], row["principal"], row["before"], row["after"]) for row in events(fleet, task_id=task_id)]


def lost(fleet: ScriptedFleet, **fields: Any) -> str:
    """A task whose worker has fallen silent."""
    worker = fleet.worker()
    task = fleet.submit(**fields)
    worker.claim()
    worker.alive = False
    fleet.live(EXPIRY_MS + 2_000)
    return task


# --- what is on record ---------------------------------------------------------------------------


def test_each_step_of_a_task_names_whose_it_was_and_what_was_before_and_after(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    worker.finish(worker.claim())
    assert steps(fleet, task) == [
        ("submitted", "person:default/ada", "", "QUEUED"),
        ("offered", "coordinator", "QUEUED", "OFFERED"),
        ("bound", "site:default", "OFFERED", "RUNNING"),
        ("accepted", "site:default", "RUNNING", "SUCCEEDED"),
    ]
    assert {row["site"] for row in events(fleet, worker_id="w1")} == {"default"}


def test_a_result_that_brings_its_own_claim_is_one_step(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit(start="claimed")
    worker.report(worker.finished(worker.take()[0]))
    assert steps(fleet, task)[2:] == [("accepted", "site:default", "OFFERED", "SUCCEEDED")]


def test_a_loss_and_the_decision_about_it_are_on_record(fleet: ScriptedFleet) -> None:
    task = lost(fleet)
    fleet.client.ask(Decide(directives=(task,), approve=True, note="it may"), principal="bob")
    assert steps(fleet, task)[3:] == [
        ("lease_over", "coordinator", "ACTIVE", "EXPIRED"),
        ("retry_held", "coordinator", "", "PENDING"),
        ("lost", "coordinator", "RUNNING", "LOST"),
        ("directive_approved", "person:default/bob", "LOST", "QUEUED"),
    ]
    (decision,) = events(fleet, kind="directive_approved")
    assert decision["reason"] == "it may"
    assert events(fleet, kind="lost")[0]["reason"] == "lease_expired"


def test_a_question_that_a_cancel_has_answered_is_denied_on_record(fleet: ScriptedFleet) -> None:
    task = lost(fleet)
    fleet.client.cancel(task)
    assert ("retry_denied", "person:default/ada", "PENDING", "DENIED") in steps(fleet, task)
    (denied,) = events(fleet, kind="retry_denied")
    assert denied["reason"] == "the task was cancelled"


def test_what_a_retry_budget_allows_is_the_decision_of_that_policy(fleet: ScriptedFleet) -> None:
    task = lost(fleet, retry=Retry(lost=1))
    assert ("retry_allowed", "policy:retry", "PENDING", "APPROVED") in steps(fleet, task)


def test_a_rejected_result_is_on_record_with_the_site_and_the_reason(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    worker.finish(worker.claim(), scope=Scope(world="main", run="other"))
    (row,) = events(fleet, kind="rejected")
    assert (row["task_id"], row["principal"], row["site"], row["reason"]) == (
        task,
        "site:default",
        "default",
        "run_mismatch",
    )


def test_a_request_that_is_refused_leaves_its_refusal_and_nothing_else(fleet: ScriptedFleet) -> None:
    """The first item of the submission was good; the whole of it was refused."""
    fleet.client.submit(envelope(), key="k")
    before = len(events(fleet, kind="submitted"))
    first, second = fleet.client.submission(envelope(), envelope(capability="gpu")).items
    clash = second.model_copy(update={"key": "k"})
    ask = fleet.client.submission(envelope()).model_copy(update={"items": (first, clash)})
    for _ in range(2):
        reply = fleet.client.ask(ask, principal="eve")
        assert reply.refusal is not None
    (row,) = events(fleet, kind="request_refused")
    assert (row["principal"], row["reason"]) == ("person:default/eve", "key_conflict")
    assert len(events(fleet, kind="submitted")) == before


def test_what_was_recorded_of_a_step_that_was_refused_after_that_is_not_on_record(
    fleet: ScriptedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(turn: Turn, *_: object) -> None:
        turn.record("submitted", "It was submitted.")
        raise UsageError("on second thoughts, no")

    with monkeypatch.context() as patch:
        patch.setattr(admission, "admit", refuse)
        assert fleet.client.ask(fleet.client.submission(envelope())).refusal is not None
    assert len(events(fleet, kind="request_refused")) == 1
    assert events(fleet, kind="submitted") == []


def test_one_principal_cannot_use_up_what_is_recorded_of_others(fleet: ScriptedFleet) -> None:
    memory = fleet.coordinator._memory
    memory.attended = "site:lab"
    assert sum(memory.is_first_refusal("w1", f"why {number}") for number in range(5_000)) == 1_000
    memory.attended = "site:hall"
    assert memory.is_first_refusal("w1", "why")


def test_every_start_of_a_coordinator_is_on_record(fleet: ScriptedFleet) -> None:
    fleet.restart()
    fleet.step()
    assert [row["text"] for row in events(fleet, kind="coordinator_began")] == [
        "A coordinator began, epoch 1.",
        "A coordinator began, epoch 2.",
    ]


def test_no_event_is_without_a_principal(fleet: ScriptedFleet) -> None:
    lost(fleet)
    assert all(row["principal"] not in {"", "unrecorded"} for row in events(fleet))


# --- pages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 7, 1_000])
def test_pages_of_any_size_give_the_whole_log_with_its_seals(fleet: ScriptedFleet, limit: int) -> None:
    lost(fleet)
    whole = list(lines(fleet.options.database))
    found: list[Row] = []
    beyond: int | None = 0
    while beyond is not None:
        page, *rest = fleet.client.ask(ReadEvents(beyond=beyond, limit=limit, seals=True)).rows
        found += rest
        beyond = Page.model_validate(page).beyond
    assert found == whole[1:]


def test_pages_newest_first_give_the_log_backwards(fleet: ScriptedFleet) -> None:
    lost(fleet)
    found: list[int] = []
    beyond: int | None = 0
    while beyond is not None:
        page, *rest = fleet.client.ask(ReadEvents(beyond=beyond, limit=3, newest_first=True)).rows
        found += [line["event"]["event_id"] for line in rest]
        beyond = Page.model_validate(page).beyond
    assert found == [row["event_id"] for row in reversed(events(fleet))]


def test_events_are_filtered_by_what_they_say_and_by_time(fleet: ScriptedFleet) -> None:
    began_ms = fleet.clock.now_ms()
    task = lost(fleet)
    everything = events(fleet)
    middle = (began_ms + fleet.clock.now_ms()) // 2
    assert events(fleet, until_ms=middle) + events(fleet, since_ms=middle) == everything
    assert events(fleet, principal="person:default/ada", task_id=task) == events(fleet, kind="submitted")
    assert events(fleet, site="nowhere") == []


# --- the chain -----------------------------------------------------------------------------------


def test_what_a_fleet_does_is_sealed(fleet: ScriptedFleet) -> None:
    lost(fleet)
    fleet.restart()
    fleet.step()
    checker = check(fleet)
    assert checker.findings() == ()
    assert checker.checked.events == len(events(fleet))


def test_a_transaction_that_is_undone_leaves_neither_events_nor_a_seal(fleet: ScriptedFleet) -> None:
    before = check(fleet).checked
    turn = fleet.coordinator._new_turn()

    def fail() -> None:
        with turn.transaction():
            turn.record("lost", "It never came about.")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert (check(fleet).findings(), check(fleet).checked) == ((), before)


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        ("UPDATE event SET text = 'nothing happened' WHERE kind = 'lost'", "changed"),
        ("UPDATE event SET principal = 'person:eve' WHERE kind = 'submitted'", "changed"),
        ("UPDATE event SET at_ms = at_ms + 1 WHERE event_id = 2", "changed"),
        ("DELETE FROM event WHERE kind = 'lost'", "missing"),
        ("DELETE FROM event WHERE event_id = 1", "missing"),
        ("DELETE FROM seal WHERE seal_id = 2", "missing"),
        ("UPDATE seal SET digest = (SELECT digest FROM seal WHERE seal_id = 1) WHERE seal_id = 3", "changed"),
        ("UPDATE event SET event_id = -event_id WHERE event_id < 3", "missing"),
        ("UPDATE world SET created_at_ms = created_at_ms + 1", "changed"),
        (FORGED, "unsealed"),
    ],
)
def test_what_is_done_to_the_file_is_found(fleet: ScriptedFleet, statement: str, finding: str) -> None:
    lost(fleet)
    tamper(fleet, statement)
    assert finding in kinds(fleet)


def test_two_events_that_change_places_are_found(fleet: ScriptedFleet) -> None:
    lost(fleet)
    swap = "UPDATE event SET event_id = CASE event_id WHEN -3 THEN 4 ELSE 3 END WHERE event_id IN (-3, -4)"
    tamper(fleet, "UPDATE event SET event_id = -event_id WHERE event_id IN (3, 4)", swap)
    assert set(kinds(fleet)) == {"changed"}


def test_an_end_that_was_cut_off_with_its_seals_is_found_by_an_anchor(fleet: ScriptedFleet) -> None:
    early = anchor_of(fleet)
    lost(fleet)
    late = anchor_of(fleet)
    assert early.seal_id == 1
    tail = "DELETE FROM event WHERE event_id > (SELECT last_event FROM seal WHERE seal_id = 1)"
    tamper(fleet, tail, "DELETE FROM seal WHERE seal_id > 1")
    assert kinds(fleet) == []
    assert kinds(fleet, early) == []
    assert kinds(fleet, early, late) == ["cut"]


def test_a_coordinator_goes_on_after_somebody_wrote_past_the_seals_and_that_stays_visible(fleet: ScriptedFleet) -> None:
    tamper(fleet, FORGED)
    fleet.submit()
    assert kinds(fleet) == ["unsealed"]
