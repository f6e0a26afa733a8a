"""What the database itself holds of campaigns, whatever the code above it does: no sum goes over its budget."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tenure.coordinator.store.database import Database
from tenure.coordinator.store.queries import load_queries

TASK = (
    "INSERT INTO task (task_id, idempotency_key, digest, envelope, capability, directed, run, state, priority, "
    "not_before_ms, watcher, principal, submitted_at_ms) VALUES ('{0}', '{0}', 'd', x'00', 'cpu', 0, 'r', 'QUEUED', 0, "
    "0, '', '', 0)"
)
CAMPAIGN = (
    "INSERT INTO campaign (campaign, state, most_tasks, most_attempt_ms, most_cost, created_at_ms, created_by) "
    "VALUES ('X', 'OPEN', 3, 100, 10, 0, 'ada')"
)
CHARGE = (
    "INSERT INTO charge (task_id, campaign, principal, capability, state, cost, attempt_ms, reserved_ms) "
    "VALUES ('{}', 'X', 'ada', 'cpu', 'RESERVED', {}, {}, {})"
)
OVER = "CHECK constraint failed: "


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    path = tmp_path / "fleet.db"
    Database(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA recursive_triggers = ON")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = OFF")
        for statement in (*(TASK.format(name) for name in "ABCD"), CAMPAIGN):
            connection.execute(statement)
        yield connection


def refused(connection: sqlite3.Connection, statement: str) -> str:
    try:
        connection.execute(statement)
    except sqlite3.IntegrityError as error:
        return str(error)
    return ""


def sums(connection: sqlite3.Connection) -> tuple[int, ...]:
    """Reserved and used: tasks, milliseconds, cost."""
    (row,) = connection.execute(
        "SELECT reserved_tasks, used_tasks, reserved_ms, used_ms, reserved_cost, used_cost FROM campaign"
    ).fetchall()
    return tuple(row)


def test_the_sums_follow_the_charges(database: sqlite3.Connection) -> None:
    database.execute(CHARGE.format("A", 4, 20, 40))
    database.execute(CHARGE.format("B", 5, 10, 10))
    assert sums(database) == (2, 0, 50, 0, 9, 0)
    database.execute("UPDATE charge SET state = 'USED', reserved_ms = 0, used_ms = 15 WHERE task_id = 'A'")
    assert sums(database) == (1, 1, 10, 15, 5, 4)
    database.execute("UPDATE charge SET state = 'RELEASED', reserved_ms = 0 WHERE task_id = 'B'")
    assert sums(database) == (0, 1, 0, 15, 0, 4)


@pytest.mark.parametrize(
    ("charge", "limit"),
    [
        ((11, 1, 1), "most_cost IS NULL OR reserved_cost + used_cost <= most_cost"),
        ((0, 101, 101), "most_attempt_ms IS NULL OR reserved_ms + used_ms <= most_attempt_ms"),
    ],
)
def test_no_charge_goes_over_a_budget(database: sqlite3.Connection, charge: tuple[int, int, int], limit: str) -> None:
    assert refused(database, CHARGE.format("A", *charge)) == OVER + limit
    assert sums(database) == (0, 0, 0, 0, 0, 0)
    assert database.execute("SELECT COUNT(*) FROM charge").fetchall() == [(0,)]


def test_no_charge_goes_over_the_budget_of_tasks_used_ones_included(database: sqlite3.Connection) -> None:
    for name in "ABC":
        database.execute(CHARGE.format(name, 0, 1, 1))
    database.execute("UPDATE charge SET state = 'USED', reserved_ms = 0 WHERE task_id = 'A'")
    limit = "most_tasks IS NULL OR reserved_tasks + used_tasks <= most_tasks"
    assert refused(database, CHARGE.format("D", 0, 1, 1)) == OVER + limit
    database.execute("UPDATE charge SET state = 'RELEASED', reserved_ms = 0 WHERE task_id = 'B'")
    assert refused(database, CHARGE.format("D", 0, 1, 1)) == ""


def test_a_task_holds_of_one_campaign_only(database: sqlite3.Connection) -> None:
    database.execute(CHARGE.format("A", 0, 1, 1))
    assert refused(database, CHARGE.format("A", 0, 1, 1)).startswith("UNIQUE constraint failed")


def test_a_closed_campaign_takes_no_charge(database: sqlite3.Connection) -> None:
    database.execute("UPDATE campaign SET state = 'CLOSED', closed_by = 'ada'")
    assert refused(database, CHARGE.format("A", 0, 1, 1)) == "a task counts against an open campaign"


def test_where_time_is_limited_no_task_is_without_a_limit(database: sqlite3.Connection) -> None:
    assert refused(database, CHARGE.format("A", 0, 0, 0)) == "where time is limited, every task has a limit"


def test_whatever_ends_a_task_settles_it(database: sqlite3.Connection) -> None:
    """A plain write is enough: no code has to think of it."""
    database.execute(CHARGE.format("A", 4, 20, 40))
    database.execute("UPDATE task SET state = 'CANCELLED' WHERE task_id = 'A'")
    assert database.execute("SELECT state, reserved_ms FROM charge").fetchall() == [("RELEASED", 0)]
    assert sums(database) == (0, 0, 0, 0, 0, 0)


def test_a_usage_report_is_read_from_its_index_alone(database: sqlite3.Connection) -> None:
    """A campaign may have a hundred thousand tasks, and everyone else waits for the answer."""
    statement = f"EXPLAIN QUERY PLAN {load_queries()['list_usage']}"
    plan = [str(row[3]) for row in database.execute(statement, {"campaign": "X", "limit": 1})]
    assert plan == ["SEARCH charge USING COVERING INDEX charge_usage (campaign=?)"]
