"""Who may ask for what: every request there is, by every role; and that nobody can say that they are another."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import TypeAdapter

from tenure.protocol.client_messages import Ask, Cancel, Explain, Query, Watch
from tenure.protocol.principal_messages import IssuePerson, Revoke, Role
from tests.scripted_fleet import ScriptedClient, ScriptedFleet, envelope

TASK = "0" * 26
DIGEST = "d" * 64
ASKS: dict[str, dict[str, Any]] = {
    "submit": {"items": ({"key": "k", "envelope": "{}"},)},
    "watch": {"task_ids": (TASK,)},
    "cancel": {"task_ids": (TASK,)},
    "cancel_many": {"run": "r1"},
    "decide": {"directives": ("x",), "approve": True},
    "query": {"what": "tasks"},
    "explain": {"task_id": TASK},
    "assign": {"task_id": TASK, "worker_id": "w"},
    "register_worker": {"worker_id": "w", "capabilities": ("cpu",)},
    "beat_worker": {"worker_id": "w"},
    "drain_worker": {"worker_id": "w"},
    "sweep": {},
    "adopt": {"quarantine_id": "q"},
    "drop": {"quarantine_id": "q"},
    "collect_artifacts": {},
    "issue_site": {"site": "lab", "capabilities": ("cpu",), "secret_digest": DIGEST},
    "issue_person": {"person": "eve", "secret_digest": DIGEST},
    "grant_site": {"site": "lab", "capabilities": ("cpu",)},
    "change_role": {"person": "eve", "role": Role.OPERATOR},
    "add_credential": {"holder": "site", "name": "lab", "secret_digest": DIGEST},
    "retire_credentials": {"holder": "site", "name": "lab"},
    "revoke": {"holder": "site", "name": "lab"},
    "read_events": {},
    "create_campaign": {"campaign": "c"},
    "close_campaign": {"campaign": "c"},
}
READ = {"watch", "query", "explain", "read_events"}
SUBMIT = READ | {"submit", "cancel", "cancel_many"}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path) as fleet:
        yield fleet


def person(fleet: ScriptedFleet, name: str, role: Role) -> ScriptedClient:
    """A person's client, who was given a role."""
    digest = name.encode().hex().ljust(64, "0")
    assert fleet.client.ask(IssuePerson(person=name, role=role, secret_digest=digest)).refusal is None
    return fleet.connect("c9", name)


def ask(kind: str) -> Ask:
    return TypeAdapter[Ask](Ask).validate_python({"kind": kind} | ASKS[kind])


def code(client: ScriptedClient, asked: Ask) -> str:
    refusal = client.ask(asked).refusal
    return refusal.code if refusal is not None else ""


def test_every_request_there_is_is_looked_at_here() -> None:
    kinds = {member.model_fields["kind"].default for member in get_args(get_args(Ask)[0])}
    assert kinds == ASKS.keys()


@pytest.mark.parametrize("kind", ASKS)
@pytest.mark.parametrize(
    ("role", "may"), [(Role.OBSERVER, READ), (Role.SUBMITTER, SUBMIT), (Role.OPERATOR, ASKS.keys())]
)
def test_a_role_goes_so_far_and_no_further(fleet: ScriptedFleet, kind: str, role: Role, may: set[str]) -> None:
    assert (code(person(fleet, "bob", role), ask(kind)) != "not_allowed") is (kind in may)


def test_a_refusal_says_who_may_not_do_what(fleet: ScriptedFleet) -> None:
    refusal = person(fleet, "bob", Role.OBSERVER).ask(ask("issue_site")).refusal
    assert refusal is not None
    assert refusal.message == "bob is an observer and may not ask for 'issue site'"


def test_only_operators_read_digests(fleet: ScriptedFleet) -> None:
    asked = Query(what="credentials")
    assert code(person(fleet, "bob", Role.SUBMITTER), asked) == "not_allowed"
    assert code(person(fleet, "eve", Role.OPERATOR), asked) == ""


def test_a_submitter_cancels_only_what_is_its_own(fleet: ScriptedFleet) -> None:
    bob, eve = person(fleet, "bob", Role.SUBMITTER), person(fleet, "eve", Role.SUBMITTER)
    mine, other = bob.submit(envelope(), key="bob's"), eve.submit(envelope(), key="eve's")
    assert code(bob, Cancel(task_ids=(mine, other))) == "not_allowed"
    assert {fleet.records.state(mine), fleet.records.state(other)} == {"QUEUED"}
    assert code(bob, Cancel(task_ids=(mine,))) == ""
    assert (fleet.records.state(mine), fleet.records.state(other)) == ("CANCELLED", "QUEUED")


def test_an_operator_cancels_anything(fleet: ScriptedFleet) -> None:
    task = person(fleet, "bob", Role.SUBMITTER).submit(envelope())
    assert code(person(fleet, "eve", Role.OPERATOR), Cancel(task_ids=(task,))) == ""
    assert fleet.records.state(task) == "CANCELLED"


def test_who_asks_is_the_person_of_the_stream_and_not_what_the_request_says(fleet: ScriptedFleet) -> None:
    bob = person(fleet, "bob", Role.SUBMITTER)
    reply = bob.ask(bob.submission(envelope()), principal="eve")
    task = reply.admitted[0].task_id
    assert fleet.records.rows("SELECT principal FROM task WHERE task_id = ?", task) == [("bob",)]
    assert fleet.client.explain(task)[0].startswith("Submitted by bob:")


def test_without_credentials_the_request_says_who_asks(fleet: ScriptedFleet) -> None:
    task = fleet.client.ask(fleet.client.submission(envelope()), principal="eve").admitted[0].task_id
    assert fleet.records.rows("SELECT principal FROM task WHERE task_id = ?", task) == [("eve",)]


def test_two_people_whose_clients_are_called_alike_get_each_their_own_answers(fleet: ScriptedFleet) -> None:
    bob, eve = person(fleet, "bob", Role.SUBMITTER), person(fleet, "eve", Role.SUBMITTER)
    worker = fleet.worker()
    task = bob.submit(envelope())
    worker.finish(worker.claim(), "7")
    assert [(done.task_id, done.value) for done in bob.read()] == [(task, "7")]
    assert eve.read() == []
    assert fleet.client.read() == []


def test_an_answer_that_was_kept_is_not_given_to_another_person(fleet: ScriptedFleet) -> None:
    bob, eve = person(fleet, "bob", Role.OPERATOR), person(fleet, "eve", Role.OPERATOR)
    for client, name in ((bob, "lab1"), (eve, "lab2")):
        issue = TypeAdapter[Ask](Ask).validate_python({"kind": "issue_site"} | ASKS["issue_site"] | {"site": name})
        client.send(issue, request_id="same")
        fleet.step()
        client.read()
        assert client.replies["same"].rows[0]["name"] == name


def test_watchers_are_told_after_a_restart(fleet: ScriptedFleet) -> None:
    bob = person(fleet, "bob", Role.SUBMITTER)
    worker = fleet.worker()
    task = bob.submit(envelope())
    hand = worker.claim()
    fleet.restart()
    fleet.step()
    worker.finish(hand, "7")
    assert [done.task_id for done in bob.read()] == [task]


def test_what_a_revoked_person_has_sent_before_is_refused(fleet: ScriptedFleet) -> None:
    """The revocation and the request are taken in one turn, in this order."""
    zoe = person(fleet, "zoe", Role.OPERATOR)
    fleet.client.send(Revoke(holder="person", name="zoe"))
    zoe.send(ask("issue_site"))
    fleet.step()
    assert fleet.records.events("person_revoked") == ["ada revoked the credentials of zoe."]
    assert fleet.client.query("sites", site="lab") == []


def test_readers_read(fleet: ScriptedFleet) -> None:
    task = fleet.submit()
    bob = person(fleet, "bob", Role.OBSERVER)
    assert bob.query("tasks")[0]["task_id"] == task
    assert bob.ask(Explain(task_id=task)).rows
    assert code(bob, Watch(task_ids=(task,))) == ""
