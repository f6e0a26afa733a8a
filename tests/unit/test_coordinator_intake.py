"""What is taken in after a fault: requests beside one that breaks a rule, and inboxes that were spoiled before."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tenure.broker.base import EntryId, Readers
from tenure.broker.keys import Keys
from tenure.protocol.client_messages import Adopt, Decide, Query
from tenure.protocol.principal_messages import IssueSite
from tenure.protocol.worker_messages import Leaving
from tests.scripted_fleet import ScriptedFleet, envelope

RULE = """
    CREATE TRIGGER a_rule BEFORE INSERT ON task WHEN NEW.principal LIKE '%eve'
    BEGIN SELECT RAISE(ABORT, 'a rule'); END
"""

UNREADABLE = """
    INSERT INTO quarantine (quarantine_id, task_id, fence, attempt, site_id, worker_id, nonce, reason, report,
                            received_at_ms)
    VALUES ('q1', 't1', 1, 1, 'default', 'w1', 'n', 'lease_expired', '{}', 1);
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path) as fleet:
        yield fleet


def forbid(fleet: ScriptedFleet) -> None:
    """Let the database refuse what eve submits, as a rule would that only an attack comes up to."""
    with closing(sqlite3.connect(fleet.options.database)) as connection:
        connection.executescript(RULE)


def test_requests_beside_one_that_breaks_a_rule_are_answered_in_the_same_turn(fleet: ScriptedFleet) -> None:
    forbid(fleet)
    client = fleet.client
    asked = [client.send(Query(what="tasks")), client.send(Query(what="workers"))]
    refused = client.send(client.submission(envelope()), principal="eve")
    asked += [client.send(Query(what="leases")), client.send(client.submission(envelope()))]
    fleet.step()
    client.read()

    assert set(asked) <= set(client.replies)
    assert refused not in client.replies
    assert len(fleet.records.events("refused")) == 1
    assert fleet.records.rows("SELECT COUNT(*) FROM task") == [(1,)]


def test_answers_to_steps_are_remembered_over_a_turn_that_was_undone(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    worker.claim()
    worker.alive = False
    fleet.live(14_000)
    decide = Decide(directives=(task,), approve=False)
    fleet.client.send(decide, request_id="once")
    fleet.step()
    forbid(fleet)
    fleet.client.send(fleet.client.submission(envelope()), principal="eve")
    fleet.client.send(decide, request_id="once")
    fleet.step()
    fleet.client.read()

    assert fleet.client.replies["once"].refusal is None
    assert len(fleet.records.events("directive_denied")) == 1


def test_an_answer_in_a_turn_that_was_undone_is_not_remembered(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    worker.claim()
    worker.alive = False
    fleet.live(14_000)
    forbid(fleet)
    fleet.client.send(Decide(directives=(task,), approve=False), request_id="once")
    fleet.client.send(fleet.client.submission(envelope()), principal="eve")
    fleet.step()
    fleet.client.read()

    assert fleet.client.replies["once"].refusal is None
    assert fleet.records.state(task) == "ABANDONED"


def test_what_was_remarked_of_inboxes_is_on_record_also_when_the_turn_is_undone(fleet: ScriptedFleet) -> None:
    fleet.client.ask(IssueSite(site="wild", capabilities=("cpu",), secret_digest="a" * 64))
    fleet.server.add(Keys("main").inbox("wild"), b"{}", EntryId(2**64 - 1, 2**64 - 1))
    fleet.step()
    forbid(fleet)
    fleet.client.send(fleet.client.submission(envelope()), principal="eve")
    fleet.clock.advance_ms(1_500)
    fleet.step()

    assert len(fleet.records.events("refused")) == 1
    assert fleet.records.events("flooded") == ["The inbox of wild was made anew: an entry had left no ids for others."]


def test_evidence_that_no_reader_takes_any_more_stops_nobody(fleet: ScriptedFleet) -> None:
    """It was written down by a release that refused less."""
    with closing(sqlite3.connect(fleet.options.database)) as connection:
        connection.executescript(UNREADABLE)
    adoption = fleet.client.send(Adopt(quarantine_id="q1"))
    other = fleet.client.send(Query(what="tasks"))
    fleet.step()
    fleet.restart()
    fleet.step()
    fleet.client.read()

    assert other in fleet.client.replies
    assert adoption not in fleet.client.replies
    assert len(fleet.records.events("refused")) == 1


def test_an_inbox_that_was_spoiled_before_a_restart_is_made_anew(fleet: ScriptedFleet) -> None:
    fleet.client.ask(IssueSite(site="wild", capabilities=("cpu",), secret_digest="a" * 64))
    wild = fleet.worker("wild.w1", site="wild")
    fleet.server.add(Keys("main").inbox("wild"), b"{}", EntryId(2**64 - 1, 2**64 - 1))
    assert len(fleet.face.receive(readers=Readers(("wild",), ()), limit=10, block_ms=0)) == 1  # and dies there and then
    fleet.restart()
    fleet.live(2_000)
    wild.report(Leaving(gone=False))

    assert fleet.records.worker("wild.w1") == "DRAINING"
