"""What the database itself holds about adoptions and artifacts, whatever the code above it does."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tenure.coordinator.store.database import Database

BUNDLE = '{"manifest":{"digest":"mmm","size":1},"files":1,"size":1}'
TASK = (
    "INSERT INTO task (task_id, idempotency_key, digest, envelope, capability, directed, run, state, priority, "
    "not_before_ms, watcher, principal, submitted_at_ms) VALUES ('T', 'K', 'd', x'00', 'cpu', 0, 'r', 'QUEUED', 0, 0, "
    "'', '', 0)"
)
LEASE = (
    "INSERT INTO lease (task_id, fence, attempt, digest, state, start, ttl_ms, capability, epoch, outbox, "
    "offered_at_ms) VALUES ('T', {0}, {0}, 'd', 'OFFERED', 'granted', 1000, 'cpu', 1, 1, 0)"
)
BIND = "UPDATE lease SET state = 'ACTIVE', worker_id = '{1}', nonce = '{2}' WHERE fence = {0}"
END = "UPDATE lease SET state = '{1}', cause = 'x' WHERE fence = {0}"
STATE = "UPDATE task SET state = '{}'"
DIRECTIVE = (
    "INSERT INTO directive (directive_id, task_id, fence, attempt, next_attempt, action, reason, state, "
    "created_at_ms) VALUES ('D', 'T', 1, 1, 2, 'hold', 'x', 'PENDING', 0)"
)
APPROVE = "UPDATE directive SET state = 'APPROVED', decided_by = 'ada'"
QUARANTINE = (
    "INSERT INTO quarantine (quarantine_id, task_id, fence, attempt, site_id, worker_id, nonce, reason, report, "
    "outputs, received_at_ms) VALUES ('{0}', 'T', 1, 1, 'default', '{1}', '{2}', 'lease_expired', '', '{3}', 0)"
)
DECIDE = (
    "INSERT INTO quarantine_decision (decision_id, quarantine_id, task_id, action, fence, decided_by, decided_at_ms) "
    "VALUES ('{0}', 'Q', 'T', '{1}', {2}, '{3}', 0)"
)
ADOPT = DECIDE.format("A", "adopt", 9, "ada")
RESULT = (
    "INSERT INTO result (task_id, fence, attempt, worker_id, nonce, value, failure, duration_ms, accepted_at_ms, "
    "outputs) VALUES ('T', {}, 1, '{}', '{}', {}, {}, 0, 0, '{}')"
)
ARTIFACT = (
    "INSERT INTO artifact (task_id, fence, attempt, kind, ordinal, manifest, manifest_size, files, size, state, "
    "place_fence, nonce, recorded_at_ms) VALUES ('T', {}, 1, '{}', 1, '{}', 1, 1, 1, 'ACCEPTED', 1, '{}', 0)"
)
NOT_LAST = "only the holder of a lease that is over is adopted, while its task waits"
BESIDE = "no adoption while a lease is live, or when a newer one was completed"
OLD_FENCE = "an adoption has a new fence, from the counter"
NO_LEASE = "a result needs the lease that it was made under, or its adoption"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A task whose only lease is over, and a late result of it in quarantine."""
    path = tmp_path / "fleet.db"
    with Database(path) as store:
        store.run("create_world", ("main", 0))
        store.run("add_site", ("default", "compute", 0))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("UPDATE world SET fence = 10, outbox = 10")
        write(connection, TASK, LEASE.format(1), STATE.format("OFFERED"), BIND.format(1, "W", "n"))
        write(connection, STATE.format("RUNNING"))
        yield connection


@pytest.fixture
def lost(database: sqlite3.Connection) -> sqlite3.Connection:
    write(database, END.format(1, "EXPIRED"), STATE.format("LOST"), DIRECTIVE, QUARANTINE.format("Q", "W", "n", BUNDLE))
    return database


def write(connection: sqlite3.Connection, *statements: str) -> None:
    for statement in statements:
        connection.execute(statement)


def refused(connection: sqlite3.Connection, statement: str) -> str:
    try:
        connection.execute(statement)
    except sqlite3.IntegrityError as error:
        return str(error)
    return ""


# --- adoption ------------------------------------------------------------------------------------


def test_a_late_result_of_a_lost_task_is_adopted(lost: sqlite3.Connection) -> None:
    write(lost, ADOPT, STATE.format("SUCCEEDED"), RESULT.format(9, "W", "n", "'1'", "NULL", BUNDLE))


@pytest.mark.parametrize("state", ["QUEUED", "LOST"])
def test_nothing_that_nobody_runs_succeeds_without_an_adoption(lost: sqlite3.Connection, state: str) -> None:
    if state == "QUEUED":
        write(lost, STATE.format("QUEUED"))
    assert refused(lost, STATE.format("SUCCEEDED")) == "a task that nobody runs succeeds only by an adoption"


def test_a_queued_task_is_adopted_only_when_a_further_attempt_was_approved(lost: sqlite3.Connection) -> None:
    write(lost, STATE.format("QUEUED"))
    assert refused(lost, ADOPT) == NOT_LAST
    write(lost, "UPDATE task SET next_attempt = 2")
    assert refused(lost, ADOPT) == ""


def test_nothing_is_adopted_while_its_lease_is_live(database: sqlite3.Connection) -> None:
    write(database, QUARANTINE.format("Q", "W", "n", BUNDLE))
    assert refused(database, ADOPT) in {NOT_LAST, BESIDE}


@pytest.mark.parametrize("state", ["OFFERED", "ACTIVE", "COMPLETED"])
def test_nothing_is_adopted_beside_a_newer_lease(lost: sqlite3.Connection, state: str) -> None:
    write(lost, APPROVE, STATE.format("QUEUED"), "UPDATE task SET next_attempt = 2", LEASE.format(2))
    if state != "OFFERED":
        write(lost, BIND.format(2, "W2", "n2"))
    if state == "COMPLETED":
        write(lost, END.format(2, "COMPLETED"))
    assert refused(lost, ADOPT) == BESIDE


@pytest.mark.parametrize("fence", [1, 11])
def test_an_adoption_has_a_new_fence(lost: sqlite3.Connection, fence: int) -> None:
    assert refused(lost, DECIDE.format("A", "adopt", fence, "ada")) == OLD_FENCE


@pytest.mark.parametrize("column", ["worker_id", "nonce"])
def test_only_the_holder_is_adopted(lost: sqlite3.Connection, column: str) -> None:
    worker, nonce = ("other", "n") if column == "worker_id" else ("W", "other")
    write(lost, QUARANTINE.format("Q2", worker, nonce, BUNDLE))
    assert refused(lost, ADOPT.replace("'Q'", "'Q2'")) == NOT_LAST


@pytest.mark.parametrize("action", ["adopt", "drop", "expire"])
def test_a_result_is_decided_about_once(lost: sqlite3.Connection, action: str) -> None:
    write(lost, DECIDE.format("R", "refuse", "NULL", "ada"), DECIDE.format("X", "drop", "NULL", "ada"))
    fence = 9 if action == "adopt" else "NULL"
    assert "UNIQUE" in refused(lost, DECIDE.format("A", action, fence, "bob"))


def test_a_decision_names_who_made_it(lost: sqlite3.Connection) -> None:
    assert "CHECK" in refused(lost, DECIDE.format("A", "adopt", 9, ""))


@pytest.mark.parametrize(
    "result",
    [
        RESULT.format(9, "W", "n", "'1'", "NULL", BUNDLE.replace("mmm", "other")),
        RESULT.format(9, "W", "other", "'1'", "NULL", BUNDLE),
        RESULT.format(9, "other", "n", "'1'", "NULL", BUNDLE),
        RESULT.format(1, "W", "n", "'1'", "NULL", BUNDLE),
        RESULT.format(9, "W", "n", "NULL", "'no'", BUNDLE),
    ],
    ids=["other files", "other nonce", "other worker", "old fence", "a failure"],
)
def test_an_adoption_lets_in_nothing_but_what_was_adopted(lost: sqlite3.Connection, result: str) -> None:
    assert refused(lost, RESULT.format(9, "W", "n", "'1'", "NULL", BUNDLE)) == NO_LEASE
    write(lost, ADOPT)
    assert refused(lost, result) == NO_LEASE


# --- artifacts -----------------------------------------------------------------------------------


def test_outputs_need_the_result_that_names_them(database: sqlite3.Connection) -> None:
    artifact = ARTIFACT.format(1, "outputs", "mmm", "n")
    assert refused(database, artifact) == "outputs need the accepted result that names them"
    write(database, END.format(1, "COMPLETED"), RESULT.format(1, "W", "n", "'1'", "NULL", BUNDLE))
    for other in (ARTIFACT.format(1, "outputs", "xxx", "n"), ARTIFACT.format(1, "outputs", "mmm", "n2")):
        assert refused(database, other) == "outputs need the accepted result that names them"
    assert refused(database, artifact) == ""


@pytest.mark.parametrize("state", ["EXPIRED", "RELEASED", "COMPLETED"])
def test_a_checkpoint_needs_the_live_lease(database: sqlite3.Connection, state: str) -> None:
    assert refused(database, ARTIFACT.format(1, "checkpoint", "mmm", "other")) != ""
    write(database, END.format(1, state))
    assert refused(database, ARTIFACT.format(1, "checkpoint", "mmm", "n")) == (
        "a checkpoint needs the live lease that it was made under"
    )


def test_a_log_is_kept_when_its_attempt_is_over(database: sqlite3.Connection) -> None:
    log = ARTIFACT.format(1, "log", "mmm", "0")
    assert refused(database, log) == "a log is kept when its attempt is over"
    write(database, END.format(1, "EXPIRED"))
    assert refused(database, log) == ""
