"""What the database itself holds about sites, people and their credentials, whatever the code above it does."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tenure.coordinator.store.database import Database

TASK = (
    "INSERT INTO task (task_id, idempotency_key, digest, envelope, capability, directed, run, state, priority, "
    "not_before_ms, watcher, principal, submitted_at_ms) VALUES ('T', 'K', 'd', x'00', 'cpu', 0, 'r', 'QUEUED', 0, 0, "
    "'', '', 0)"
)
LEASE = (
    "INSERT INTO lease (task_id, fence, attempt, digest, state, start, ttl_ms, capability, epoch, outbox, "
    "offered_at_ms, site_id) VALUES ('T', 1, 1, 'd', 'OFFERED', 'granted', 1000, 'cpu', 1, 1, 0, 'north')"
)
WORKER = (
    "INSERT INTO worker (worker_id, site_id, generation, state, slots, capabilities, labels, resources, ttl_ms, "
    "host, pid, version, registered_at_ms, seen_at_ms) VALUES ('{0}', '{1}', 1, 'ACTIVE', 1, '[]', '[]', '[]', "
    "1000, '', 0, '', 0, 0)"
)
BIND = "UPDATE lease SET state = 'ACTIVE', worker_id = '{}', nonce = 'n'"
CREDENTIAL = "INSERT INTO credential VALUES ('site', 'north', printf('%064d', 1), 0, NULL)"
REVOKE = "UPDATE {} SET state = '{}'"
PERSON = "INSERT INTO person (person, role, state, created_at_ms) VALUES ('ada', 'operator', 'ACTIVE', 0)"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Two sites with one worker each, and one offer to one of them."""
    path = tmp_path / "fleet.db"
    with Database(path) as store:
        store.run("create_world", ("main", 0))
        for site in ("default", "north"):
            store.run("add_site", (site, "compute", 0))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("UPDATE world SET fence = 10, outbox = 10")
        for statement in (
            TASK,
            LEASE,
            WORKER.format("w1", "default"),
            WORKER.format("north.w1", "north"),
            CREDENTIAL,
            PERSON,
        ):
            connection.execute(statement)
        yield connection


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        (BIND.format("w1"), "a worker of the site that it was offered to"),
        ("UPDATE lease SET site_id = 'default'", "stays with the site that it was offered to"),
        ("DELETE FROM site", "never deleted, and their names are never used again"),
        ("DELETE FROM person", "never deleted, and their names are never used again"),
        ("DELETE FROM credential", "retired, never deleted"),
        ("UPDATE credential SET secret_digest = printf('%064d', 2)", "a credential only retires"),
        ("UPDATE credential SET name = 'default'", "a credential only retires"),
    ],
)
def test_the_database_refuses(database: sqlite3.Connection, statement: str, why: str) -> None:
    with pytest.raises(sqlite3.IntegrityError, match=why):
        database.execute(statement)


def test_a_lease_is_bound_at_its_own_site_or_to_nobody(database: sqlite3.Connection) -> None:
    database.execute(BIND.format("north.w1"))

    assert database.execute("SELECT worker_id FROM lease").fetchall() == [("north.w1",)]


@pytest.mark.parametrize("table", ["site", "person"])
def test_who_is_revoked_stays_so(database: sqlite3.Connection, table: str) -> None:
    database.execute(REVOKE.format(table, "REVOKED"))
    with pytest.raises(sqlite3.IntegrityError, match=f"illegal {table} transition"):
        database.execute(REVOKE.format(table, "ACTIVE"))


def test_a_credential_that_is_retired_is_retired_for_good(database: sqlite3.Connection) -> None:
    database.execute("UPDATE credential SET retired_at_ms = 5")
    with pytest.raises(sqlite3.IntegrityError, match="a credential only retires"):
        database.execute("UPDATE credential SET retired_at_ms = NULL")
