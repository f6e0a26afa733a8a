"""What the simulation's records see: a row that may never change and does, in a database that would let it."""

import sqlite3
from pathlib import Path

import pytest

from tests.simulation.engine import Engine
from tests.simulation.history import Broken, DirectiveRow, History, Judgement, Quarantined, ResultRow, TaskRow
from tests.simulation.records import Records

SCHEMA = Path(__file__).parents[2] / "tenure/coordinator/store/schema.sql"
ROWS: dict[str, dict[str, object]] = {
    "task": {"task_id": "t1", "idempotency_key": "k1", "digest": "d1", "envelope": b"{}", "state": "LOST"},
    "result": {"task_id": "t1", "fence": 1, "nonce": "n1", "value": '"run 1"'},
    "failed_attempt": {"task_id": "t1", "fence": 1, "failure": "{}"},
    "quarantine": {"quarantine_id": "q1", "task_id": "t1", "fence": 1, "nonce": "n1", "report": "{}"},
    "quarantine_decision": {"decision_id": "e1", "quarantine_id": "q1", "task_id": "t1", "action": "drop"},
    "directive": {"directive_id": "v1", "task_id": "t1", "next_attempt": 2, "state": "PENDING", "reason": "drained"},
}


@pytest.fixture
def database() -> sqlite3.Connection:
    """One row in each table, and nothing that holds it: the columns are those of the schema, without its triggers."""
    checked = sqlite3.connect(":memory:")
    checked.executescript(SCHEMA.read_text())
    plain = sqlite3.connect(":memory:")
    for (table,) in checked.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        columns = [row[1] for row in checked.execute(f"PRAGMA table_info({table})")]
        plain.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
    for table, row in ROWS.items():
        marks = ", ".join("?" * len(row))
        plain.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))  # noqa: S608
    checked.close()
    return plain


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("task", "digest", "d2"),
        ("task", "envelope", b"{} "),
        ("task", "principal", "grace"),
        ("result", "value", '"run 2"'),
        ("result", "outputs", "{}"),
        ("failed_attempt", "failure", '{"kind": "timeout"}'),
        ("quarantine", "reason", "late"),
        ("quarantine", "report", '{"kind": "finished"}'),
        ("quarantine_decision", "action", "adopt"),
        ("quarantine_decision", "decided_by", "grace"),
        ("directive", "reason", "lease_expired"),
        ("directive", "directive_id", "v2"),
    ],
)
def test_a_row_that_changes_where_it_never_may_is_seen(
    database: sqlite3.Connection, table: str, column: str, value: object
) -> None:
    records = Records(History(Engine()))
    records.observe(database)
    database.execute(f"UPDATE {table} SET {column} = ?", (value,))  # noqa: S608
    records.observe(database)
    found = [fact.what for fact in records.history.facts if isinstance(fact, Broken)]
    assert len(found) == 1
    assert f"a row of {table} has changed" in found[0]


def test_what_comes_new_and_moves_on_has_not_changed(database: sqlite3.Connection) -> None:
    records = Records(History(Engine()))
    records.observe(database)
    database.execute("UPDATE task SET state = 'ABANDONED', lost_count = 1")
    database.execute("UPDATE directive SET state = 'DENIED', decided_by = 'ada'")
    records.observe(database)
    kinds = [type(fact) for fact in records.history.facts]
    assert kinds.count(TaskRow) == kinds.count(DirectiveRow) == 2
    assert [kinds.count(kind) for kind in (Broken, Quarantined, Judgement)] == [0, 1, 1]
    assert kinds.count(ResultRow) == 2  # one was accepted, and one a failure before it


def test_a_row_that_is_gone_is_seen(database: sqlite3.Connection) -> None:
    records = Records(History(Engine()))
    records.observe(database)
    database.execute("DELETE FROM quarantine_decision")
    database.execute("DELETE FROM quarantine")
    records.observe(database)
    assert "a row of quarantine is gone: ('q1',)" in [
        fact.what for fact in records.history.facts if isinstance(fact, Broken)
    ]
