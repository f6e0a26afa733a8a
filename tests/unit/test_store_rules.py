"""The rules that the database itself holds, whatever the code above it does.

Each is tried as a plain write, under OR IGNORE, and under OR REPLACE where a replacement could get round it.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tenure.coordinator.store.database import Database
from tenure.protocol.states import TABLES

INITIAL = {machine: next(iter(table)) for machine, table in TABLES.items()}
KEYS = {
    "task": "task_id = 'T'",
    "lease": "fence = 1",
    "worker": "worker_id = 'W'",
    "directive": "directive_id = 'D'",
    "artifact": "task_id = 'T'",
    "site": "site_id = 'default'",
    "person": "person = 'ada'",
    "campaign": "campaign = 'X'",
    "charge": "task_id = 'T'",
    "cancellation": "request = 'R'",
}
STEPS = [
    (machine, before, after)
    for machine, table in TABLES.items()
    for before in table
    for after in table
    if before != after
]

TASK = (
    "INSERT {} INTO task (task_id, idempotency_key, digest, envelope, capability, directed, run, state, priority, "
    "not_before_ms, watcher, principal, submitted_at_ms) VALUES ('{}', '{}', 'd', x'00', 'cpu', 0, 'r', '{}', 0, 0, "
    "'', '', 0)"
)
LEASE = (
    "INSERT {} INTO lease (task_id, fence, attempt, digest, state, start, ttl_ms, capability, epoch, outbox, "
    "offered_at_ms) VALUES ('{}', {}, {}, 'd', '{}', 'granted', 1000, 'cpu', 1, 1, 0)"
)
WORKER = (
    "INSERT {} INTO worker (worker_id, site_id, generation, state, slots, capabilities, labels, resources, ttl_ms, "
    "host, pid, version, registered_at_ms, seen_at_ms) VALUES ('{}', 'default', {}, 'ACTIVE', 1, '[]', '[]', '[]', "
    "1000, '', 0, '', 0, 0)"
)
DIRECTIVE = (
    "INSERT {} INTO directive (directive_id, task_id, fence, attempt, next_attempt, action, reason, state, "
    "created_at_ms) VALUES ('{}', 'T', 1, 1, {}, 'hold', 'x', '{}', 0)"
)
RESULT = (
    "INSERT {} INTO result (task_id, fence, attempt, worker_id, nonce, value, duration_ms, accepted_at_ms) "
    "VALUES ('T', {}, 1, 'W', 'n', '{}', 0, 0)"
)
QUARANTINE = (
    "INSERT {} INTO quarantine (quarantine_id, task_id, fence, attempt, site_id, worker_id, nonce, reason, report, "
    "received_at_ms) VALUES ('Q', 'T', 1, 1, 'default', 'W', 'n', 'x', '{}', 0)"
)
EVENT = "INSERT {} INTO event (event_id, at_ms, kind, text) VALUES (1, 0, 'k', '{}')"
FAILED = (
    "INSERT {} INTO failed_attempt (task_id, fence, attempt, failure, duration_ms, accepted_at_ms) "
    "VALUES ('T', 1, 1, '{}', 0, 0)"
)
ARTIFACT = (
    "INSERT {} INTO artifact (task_id, fence, attempt, kind, ordinal, manifest, manifest_size, files, size, state, "
    "place_fence, nonce, recorded_at_ms) VALUES ('T', 1, 1, 'checkpoint', 1, '{}', 1, 1, 1, '{}', 1, 'n', 0)"
)
ADOPTION = (
    "INSERT {} INTO quarantine_decision (decision_id, quarantine_id, task_id, action, fence, decided_by, "
    "decided_at_ms) VALUES ('A', 'Q', 'T', 'adopt', 9, '{}', 0)"
)
CAMPAIGN = (
    "INSERT {} INTO campaign (campaign, state, most_tasks, most_attempt_ms, most_cost, created_at_ms, created_by) "
    "VALUES ('{}', '{}', 2, 100, 10, 0, 'ada')"
)
CHARGE = (
    "INSERT {} INTO charge (task_id, campaign, principal, capability, state, cost, attempt_ms, reserved_ms) "
    "VALUES ('{}', '{}', 'ada', 'cpu', '{}', {}, {}, 0)"
)
PERSON = "INSERT INTO person (person, role, state, created_at_ms) VALUES ('ada', 'operator', 'ACTIVE', 0)"
CANCELLATION = (
    "INSERT INTO cancellation (request, state, last_position, stage, at_capability, at_position, asked_by, actor, "
    "reason, asked_at_ms) VALUES ('R', 'OPEN', 0, 'OFFERED', '', 0, '', '', '', 0)"
)
STEP = "UPDATE {} {} SET state = '{}'{} WHERE {}"
DELETE = "DELETE FROM {}"
REBIND = "UPDATE {} lease SET {} = {}"
BIND = "UPDATE lease SET state = 'ACTIVE', worker_id = 'W', nonce = 'n' WHERE fence = 1"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with one task with one offer, one worker, one directive and one of each record."""
    path = tmp_path_factory.mktemp("rules") / "fleet.db"
    with Database(path) as store:
        store.run("create_world", ("main", 0))
        store.run("add_site", ("default", "compute", 0))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE world SET epoch = 5, fence = 10, outbox = 10")
        for statement in (
            TASK.format("", "T", "K", "QUEUED"),
            LEASE.format("", "T", 1, 1, "OFFERED"),
            WORKER.format("", "W", 3),
            DIRECTIVE.format("", "D", 2, "PENDING"),
            QUARANTINE.format("", "evidence"),
            EVENT.format("", "text"),
            FAILED.format("", "failure"),
            CAMPAIGN.format("", "X", "OPEN"),
            CHARGE.format("", "T", "X", "RESERVED", 1, 1),
            PERSON,
            CANCELLATION,
        ):
            connection.execute(statement)
        without_triggers(connection, "artifact", ARTIFACT.format("", "manifest", "ACCEPTED"))
    return path


def without_triggers(connection: sqlite3.Connection, table: str, statement: str) -> None:
    """Write what the rules of a table would not let be written as things stand."""
    triggers = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?", (table,)
    )
    for name, sql in (kept := triggers.fetchall()):
        connection.execute(f"DROP TRIGGER {name}")
        assert sql
    connection.execute(statement)
    for _, sql in kept:
        connection.execute(sql)


@pytest.fixture
def database(template: Path) -> Iterator[sqlite3.Connection]:
    """A copy in memory, with the settings of the coordinator's own connection."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
        with closing(sqlite3.connect(template)) as original:
            original.backup(copy)
        copy.execute("PRAGMA recursive_triggers = ON")
        copy.execute("PRAGMA foreign_keys = ON")
        yield copy


def refused(connection: sqlite3.Connection, statement: str) -> str:
    """Why the database refuses a statement; "" when it does not."""
    try:
        connection.execute(statement)
    except sqlite3.IntegrityError as error:
        return str(error)
    return ""


# --- state machines ------------------------------------------------------------------------------


def test_the_transitions_in_the_database_are_those_of_the_code(database: sqlite3.Connection) -> None:
    stored = set(database.execute("SELECT machine, before, after FROM transition").fetchall())
    assert stored == {
        (machine, str(before), str(after))
        for machine, table in TABLES.items()
        for before, onward in table.items()
        for after in onward
    }


@pytest.mark.parametrize(("machine", "before", "after"), STEPS, ids=["-".join(step) for step in STEPS])
def test_a_step_is_possible_exactly_when_the_table_has_it(
    database: sqlite3.Connection, machine: str, before: str, after: str
) -> None:
    without_triggers(database, "quarantine_decision", ADOPTION.format("", "ada"))
    for state in way_to(machine, before):
        assert refused(database, update(machine, state)) == ""
    allowed = after in TABLES[machine][before]
    for conflict in ("", "OR IGNORE", "OR REPLACE"):
        if allowed:
            break
        assert refused(database, update(machine, after, conflict)) == f"illegal {machine} transition"
    assert (refused(database, update(machine, after)) == "") is allowed


def update(machine: str, state: str, conflict: str = "") -> str:
    by = {"directive": ", decided_by = 'ada'", "campaign": ", closed_by = 'ada'"}
    decided = by.get(machine, "")
    return STEP.format(conflict, machine, state, decided, KEYS[machine])


def way_to(machine: str, wanted: str) -> list[str]:
    """The states on a shortest way from the initial state to `wanted`."""
    ways = {INITIAL[machine]: list[str]()}
    while wanted not in ways:
        for state, way in list(ways.items()):
            for onward in TABLES[machine][state]:
                ways.setdefault(onward, [*way, onward])
    return ways[wanted]


@pytest.mark.parametrize("conflict", ["", "OR IGNORE", "OR REPLACE"])
@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        (TASK.format("{}", "T2", "K2", "RUNNING"), "a task starts QUEUED"),
        (LEASE.format("{}", "T", 2, 1, "ACTIVE"), "a lease starts OFFERED"),
        (DIRECTIVE.format("{}", "D2", 3, "APPROVED"), "a directive starts PENDING"),
        (ARTIFACT.format("{}", "other", "PROMOTED"), "an artifact starts ACCEPTED"),
        (CAMPAIGN.format("{}", "Y", "CLOSED"), "a campaign starts OPEN"),
        (CHARGE.format("{}", "T2", "X", "USED", 0, 1), "a charge starts RESERVED"),
        ("INSERT {} INTO transition VALUES ('task', 'FAILED', 'QUEUED')", "the state tables change by migration only"),
        ("UPDATE {} transition SET after = 'QUEUED'", "the state tables change by migration only"),
    ],
)
def test_nothing_starts_in_the_middle(database: sqlite3.Connection, conflict: str, statement: str, reason: str) -> None:
    database.execute("UPDATE lease SET state = 'RELEASED', cause = 'unstarted' WHERE fence = 1")
    database.execute("DROP TRIGGER artifact_checkpoint_of_the_holder")
    assert refused(database, statement.format(conflict)) == reason


# --- what never changes and never goes -----------------------------------------------------------


@pytest.mark.parametrize("conflict", ["", "OR IGNORE", "OR REPLACE"])
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("world SET fence = 9", "epoch, fence and outbox never go back and a world keeps its name"),
        ("world SET epoch = 4", "epoch, fence and outbox never go back and a world keeps its name"),
        ("world SET outbox = 9", "epoch, fence and outbox never go back and a world keeps its name"),
        ("world SET world = 'other'", "epoch, fence and outbox never go back and a world keeps its name"),
        ("task SET envelope = x'01'", "a task never changes its identity or its envelope"),
        ("task SET digest = 'e'", "a task never changes its identity or its envelope"),
        ("task SET idempotency_key = 'other'", "a task never changes its identity or its envelope"),
        ("lease SET fence = 2", "a lease never changes what it is for"),
        ("lease SET attempt = 2", "a lease never changes what it is for"),
        ("lease SET digest = 'e'", "a lease never changes what it is for"),
        ("directive SET reason = 'other'", "a directive never changes what it is about"),
        ("directive SET next_attempt = 9", "a directive never changes what it is about"),
        ("directive SET state = 'APPROVED'", "a decision names who made it"),
        ("worker SET generation = 2", "a generation never goes back"),
        ("quarantine SET report = ''", "evidence never changes"),
        ("quarantine_decision SET decided_by = 'bob'", "a decision never changes"),
        ("artifact SET manifest = 'other'", "an artifact never changes what it holds"),
        ("artifact SET fence = 2", "an artifact never changes what it holds"),
        ("artifact SET nonce = 'other'", "an artifact never changes what it holds"),
        ("campaign SET most_tasks = 9", "what a campaign allows never changes"),
        ("campaign SET most_attempt_ms = NULL", "what a campaign allows never changes"),
        ("campaign SET devices = '[]'", "what a campaign allows never changes"),
        ("campaign SET state = 'CLOSED'", "a campaign is closed by someone"),
        ("charge SET cost = 0", "a charge never changes what it is for"),
        ("charge SET campaign = 'Y'", "a charge never changes what it is for"),
        ("charge SET attempt_ms = 0", "a charge never changes what it is for"),
        ("event SET text = ''", "events are only added"),
        ("failed_attempt SET failure = ''", "a recorded failure never changes"),
    ],
)
def test_a_change_is_refused(database: sqlite3.Connection, conflict: str, change: str, reason: str) -> None:
    without_triggers(database, "quarantine_decision", ADOPTION.format("", "ada"))
    assert refused(database, f"UPDATE {conflict} {change}") == reason


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("world", "the world is never deleted"),
        ("transition", "the state tables change by migration only"),
        ("task", "tasks are never deleted"),
        ("lease", "leases are never deleted"),
        ("directive", "directives are never deleted"),
        ("worker", "workers are never deleted, but executors that hold nothing"),
        ("quarantine", "evidence is never deleted"),
        ("quarantine_decision", "decisions are never deleted"),
        ("artifact", "records of artifacts are never deleted"),
        ("campaign", "campaigns are never deleted, and their names are never used again"),
        ("charge", "charges are never deleted"),
        ("event", "events are only added"),
        ("failed_attempt", "failures are never deleted"),
    ],
)
def test_nothing_is_deleted(database: sqlite3.Connection, table: str, reason: str) -> None:
    without_triggers(database, "quarantine_decision", ADOPTION.format("", "ada"))
    assert refused(database, DELETE.format(table)) == reason


def test_a_worker_is_of_one_kind_for_good(database: sqlite3.Connection) -> None:
    database.execute(WORKER.format("", "X", 1))
    assert refused(database, "UPDATE worker SET launches = 1 WHERE worker_id = 'X'") == ""
    for change in ("UPDATE worker SET launches = 0", "UPDATE worker SET launches = NULL"):
        assert refused(database, change) == "a worker starts executors or runs tasks itself, for good"
    assert refused(database, "UPDATE worker SET launches = 1 WHERE worker_id = 'X'") == ""


def test_an_executor_goes_when_it_holds_nothing(database: sqlite3.Connection) -> None:
    database.execute(
        WORKER.format("", "X", 1).replace("seen_at_ms)", "seen_at_ms, executor_of)").replace("0, 0)", "0, 0, 'W')")
    )
    database.execute("UPDATE lease SET state = 'ACTIVE', worker_id = 'X', nonce = 'n', parent = 'W' WHERE fence = 1")
    kept = "workers are never deleted, but executors that hold nothing"

    assert refused(database, "DELETE FROM worker WHERE worker_id = 'X'") == kept
    assert refused(database, "UPDATE worker SET executor_of = '' WHERE worker_id = 'X'") == (
        "an executor stays one, of the same worker"
    )
    assert refused(database, "UPDATE lease SET parent = ''") == "a lease is bound to one executor for good"
    database.execute("UPDATE lease SET state = 'RELEASED', cause = 'oom_killed'")
    assert refused(database, "DELETE FROM worker WHERE worker_id = 'X'") == ""


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (("RELEASED", "launch_refused"), ""),
        (("RELEASED", "oom_killed"), "an attempt that may have started is never offered again"),
        (("EXPIRED", "unstarted"), "an attempt that may have started is never offered again"),
    ],
)
def test_only_an_attempt_that_nobody_was_bound_to_is_offered_again(
    database: sqlite3.Connection, end: tuple[str, str], reason: str
) -> None:
    if reason:
        database.execute(BIND)
    database.execute("UPDATE lease SET state = ?, cause = ? WHERE fence = 1", end)
    assert refused(database, LEASE.format("", "T", 2, 1, "OFFERED")) == reason


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT OR REPLACE INTO world (id, world, epoch, fence, outbox, created_at_ms) VALUES (1, 'main', 0, 0, 0, 0)",
        TASK.format("OR REPLACE", "T", "K9", "QUEUED"),
        TASK.format("OR REPLACE", "T9", "K", "QUEUED"),
        WORKER.format("OR REPLACE", "W", 1),
        DIRECTIVE.format("OR REPLACE", "D", 2, "PENDING"),
        DIRECTIVE.format("OR REPLACE", "D9", 2, "PENDING"),
        LEASE.format("OR REPLACE", "T", 1, 1, "OFFERED"),
        LEASE.format("OR REPLACE", "T", 2, 1, "OFFERED"),
        QUARANTINE.format("OR REPLACE", "other"),
        EVENT.format("OR REPLACE", "other"),
        FAILED.format("OR REPLACE", "other"),
        ARTIFACT.format("OR REPLACE", "other", "ACCEPTED"),
        ADOPTION.format("OR REPLACE", "bob"),
        CAMPAIGN.format("OR REPLACE", "X", "OPEN"),
        CHARGE.format("OR REPLACE", "T", "X", "RESERVED", 0, 1),
    ],
)
def test_a_replacement_is_a_deletion(database: sqlite3.Connection, statement: str) -> None:
    without_triggers(database, "quarantine_decision", ADOPTION.format("", "ada"))
    before = list(database.iterdump())
    assert refused(database, statement) != ""
    assert list(database.iterdump()) == before


def test_a_second_site_does_not_take_over_a_worker(database: sqlite3.Connection) -> None:
    database.execute("INSERT INTO site (site_id, kind, created_at_ms) VALUES ('lab', 'lab', 0)")
    assert refused(database, "UPDATE worker SET site_id = 'lab'") == "a worker stays with its site"


# --- leases and results --------------------------------------------------------------------------


@pytest.mark.parametrize("conflict", ["", "OR IGNORE", "OR REPLACE"])
@pytest.mark.parametrize("bound", [BIND, "SELECT 1"], ids=["active", "offered"])
def test_a_task_has_one_live_lease(database: sqlite3.Connection, conflict: str, bound: str) -> None:
    database.execute(bound)
    refused(database, LEASE.format(conflict, "T", 2, 1, "OFFERED"))
    assert database.execute("SELECT fence FROM lease").fetchall() == [(1,)]


def test_the_index_alone_holds_that_a_task_has_one_live_lease(database: sqlite3.Connection) -> None:
    database.execute("DROP TRIGGER lease_attempt_unused")
    assert refused(database, LEASE.format("", "T", 2, 1, "OFFERED")) == "UNIQUE constraint failed: lease.task_id"


@pytest.mark.parametrize("fence", [0, 1, 11])
def test_a_fence_grows_and_comes_from_the_counter(database: sqlite3.Connection, fence: int) -> None:
    database.execute("UPDATE lease SET state = 'RELEASED', cause = 'unstarted'")
    assert refused(database, LEASE.format("", "T", fence, 1, "OFFERED")) == (
        "a fence grows strictly and comes from the counter"
    )


def test_an_attempt_that_may_have_started_is_never_offered_again(database: sqlite3.Connection) -> None:
    database.execute(BIND)
    database.execute("UPDATE lease SET state = 'EXPIRED', cause = 'lease_expired'")
    assert refused(database, LEASE.format("", "T", 2, 1, "OFFERED")) == (
        "an attempt that may have started is never offered again"
    )


@pytest.mark.parametrize("decision", ["PENDING", "DENIED"])
def test_a_further_attempt_needs_an_approved_directive(database: sqlite3.Connection, decision: str) -> None:
    database.execute(BIND)
    database.execute("UPDATE lease SET state = 'EXPIRED', cause = 'lease_expired'")
    if decision != "PENDING":
        database.execute("UPDATE directive SET state = ?, decided_by = 'ada'", (decision,))
    offer = LEASE.format("", "T", 2, 2, "OFFERED")
    assert refused(database, offer) == "no further attempt without an approved directive"
    if decision == "PENDING":
        database.execute("UPDATE directive SET state = 'APPROVED', decided_by = 'ada'")
        assert refused(database, offer) == ""


@pytest.mark.parametrize("conflict", ["", "OR IGNORE", "OR REPLACE"])
@pytest.mark.parametrize("column", ["worker_id", "nonce"])
def test_a_lease_is_bound_to_one_executor_for_good(database: sqlite3.Connection, conflict: str, column: str) -> None:
    database.execute(BIND)
    for value in ("'other'", "NULL"):
        assert refused(database, REBIND.format(conflict, column, value)) == (
            "a lease is bound to one executor for good"
        )


@pytest.mark.parametrize("conflict", ["", "OR IGNORE", "OR REPLACE"])
@pytest.mark.parametrize("state", ["OFFERED", "ACTIVE", "EXPIRED"])
def test_a_result_needs_the_completed_lease_that_it_was_made_under(
    database: sqlite3.Connection, conflict: str, state: str
) -> None:
    if state != "OFFERED":
        database.execute(BIND)
    if state == "EXPIRED":
        database.execute("UPDATE lease SET state = 'EXPIRED'")
    assert refused(database, RESULT.format(conflict, 1, "1")) == (
        "a result needs the lease that it was made under, or its adoption"
    )


@pytest.mark.parametrize(
    "statement",
    [
        RESULT.format("", 1, "other"),
        RESULT.format("OR REPLACE", 1, "other"),
        "UPDATE result SET value = 'other'",
        "UPDATE OR IGNORE result SET value = 'other'",
        "DELETE FROM result",
    ],
)
def test_an_accepted_result_stays(database: sqlite3.Connection, statement: str) -> None:
    database.execute(BIND)
    database.execute("UPDATE lease SET state = 'COMPLETED'")
    database.execute(RESULT.format("", 1, "42"))
    assert refused(database, statement) != ""
    assert database.execute("SELECT value FROM result").fetchall() == [("42",)]
