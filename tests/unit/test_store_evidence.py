"""Evidence and the decisions about it are the same after the table was made anew."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tenure.coordinator.store.database import Database
from tenure.coordinator.store.queries import load_migrations

BEFORE = 9
EVIDENCE = (
    "INSERT INTO quarantine (quarantine_id, task_id, fence, attempt, site_id, worker_id, nonce, reason, report, "
    "received_at_ms, outputs) VALUES (?, 't1', ?, 1, ?, 'w1', 'n', 'stale_fence', '{}', 7, ?)"
)
DECISION = (
    "INSERT INTO quarantine_decision (decision_id, quarantine_id, task_id, action, fence, decided_by, note, "
    "decided_at_ms) VALUES (?, ?, 't1', ?, NULL, 'ada', 'why', 8)"
)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A database of the release before, with two results in quarantine and what was decided about one."""
    path = tmp_path / "fleet.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA foreign_keys = ON")
        for number, script in load_migrations():
            if number <= BEFORE:
                database.executescript(f"BEGIN;\n{script}\nPRAGMA user_version = {number};\nCOMMIT;")
        database.execute(EVIDENCE, ("q1", 1, "north", '{"x":1}'))
        database.execute(EVIDENCE, ("q2", 2, "north", None))
        database.execute(DECISION, ("d1", "q1", "refuse"))
        database.execute(DECISION, ("d2", "q1", "drop"))
    return path


def contents(path: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA foreign_keys = ON")
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        rows: list[tuple[object, ...]] = []
        for table in ("quarantine ORDER BY quarantine_id", "quarantine_decision ORDER BY decision_id"):
            rows += database.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608 - the names are written here
        return rows


def test_evidence_and_decisions_stay_as_they_were(old: Path) -> None:
    before = contents(old)
    with Database(old):
        pass

    assert contents(old) == before
    assert len(before) == 4


def test_the_same_word_of_another_site_is_other_evidence(old: Path) -> None:
    with Database(old):
        pass
    with closing(sqlite3.connect(old)) as database:
        database.execute(EVIDENCE, ("q3", 1, "south", None))
        with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
            database.execute(EVIDENCE, ("q4", 1, "south", None))
        for change in (
            "UPDATE quarantine SET reason = ''",
            "DELETE FROM quarantine",
            "DELETE FROM quarantine_decision",
        ):
            with pytest.raises(sqlite3.IntegrityError, match=r"never|change"):
                database.execute(change)
