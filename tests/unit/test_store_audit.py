"""Logs of before there were seals, and the rules that the database holds about seals."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tenure.coordinator import journal
from tenure.coordinator.store.database import Database
from tenure.coordinator.store.event_file import lines
from tenure.coordinator.store.queries import load_migrations
from tenure.errors import StoreError, UsageError
from tenure.protocol.chain import Checker

OLD = "INSERT INTO event (at_ms, kind, task_id, worker_id, text) VALUES (?, 'lost', ?, 'w1', ?)"
FIRST_WITH_SEALS = 7


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fleet.db"


@pytest.fixture
def store(path: Path) -> Iterator[Database]:
    with Database(path) as store:
        begin(store)
        yield store


def begin(store: Database) -> None:
    store.run("create_world", ("main", 5))
    store.begin_epoch()
    journal.begin(store, 9)


def old_log(path: Path, count: int) -> None:
    """A database as the release before seals left it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for number, script in load_migrations():
            if number < FIRST_WITH_SEALS:
                connection.executescript(f"BEGIN; {script} PRAGMA user_version = {number}; COMMIT;")
        connection.execute("BEGIN")
        connection.executemany(OLD, [(at, f"T{at}" if at % 2 else None, f"Nö {at}") for at in range(count)])
        connection.execute("COMMIT")


def check(path: Path) -> Checker:
    checker = Checker()
    for line in lines(path):
        checker.feed(line)
    return checker


@pytest.mark.parametrize("count", [0, 1, 2_500])
def test_an_old_log_is_sealed_as_it_is_at_the_first_start(path: Path, count: int) -> None:
    old_log(path, count)
    for _ in range(2):
        with Database(path) as store:
            begin(store)
    checker = check(path)
    assert checker.findings() == ()
    assert checker.checked.events == count + 2
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT text, principal FROM event WHERE kind = 'lost' ORDER BY event_id").fetchall()
    assert rows == [(f"Nö {at}", "unrecorded") for at in range(count)]


def test_a_log_whose_seals_were_all_removed_is_not_taken_for_an_old_one_by_an_anchor(path: Path) -> None:
    with Database(path) as store:
        begin(store)
        begin(store)
    anchor = check(path).anchor()
    assert anchor is not None
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("DROP TRIGGER seal_kept; DELETE FROM seal;")
    with Database(path) as store:
        begin(store)
    checker = Checker([anchor])
    for line in lines(path):
        checker.feed(line)
    assert [finding.kind for finding in checker.findings()] == ["rewritten"]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE seal SET epoch = 9",
        "DELETE FROM seal",
        "INSERT INTO seal VALUES (1, 9, 9, 0, 1, '{}')",
        "INSERT OR REPLACE INTO seal VALUES (1, 9, 9, 0, 1, '{}')",
        "INSERT INTO seal VALUES (3, 9, 9, 0, 1, '{}')",
        "INSERT INTO seal VALUES (2, 1, 1, 0, 1, '{}')",
        "INSERT INTO seal VALUES (2, 9, 8, 0, 1, '{}')",
        "INSERT INTO event (at_ms, kind, principal, text) VALUES (0, 'k', '', 't')",
    ],
)
def test_the_database_itself_refuses(store: Database, path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA recursive_triggers = ON")
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute(statement.format("a" * 64))


def test_a_file_is_read_without_a_coordinator_and_not_changed(path: Path) -> None:
    with Database(path) as store:
        begin(store)
    before = path.read_bytes()
    assert check(path).checked.events == 1
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_said(path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        list(lines(path))
    path.write_text("nothing of the kind, and long enough to be looked at as one" * 20)
    with pytest.raises(StoreError, match="not a readable database"):
        list(lines(path))
