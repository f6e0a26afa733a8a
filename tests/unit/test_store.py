"""The database: one holder, settings that are read back, transactions that are all or nothing, named statements."""

import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tenure.coordinator.store.database import Database
from tenure.coordinator.store.queries import load_migrations, load_queries
from tenure.errors import StoreBusy, StoreError, StoreFull, StoreTooNew, Superseded

SCHEMA = Path(sys.modules[Database.__module__].__file__ or "").parent / "schema.sql"
EVENT = (None, 0, "kind", "coordinator", None, None, None, "", "", "", "x" * 1_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fleet.db"


@pytest.fixture
def store(path: Path) -> Iterator[Database]:
    with Database(path) as store:
        store.run("create_world", ("main", 0))
        store.begin_epoch()
        yield store


def contents(connection: sqlite3.Connection) -> dict[tuple[str, str], str]:
    """Every table, index and trigger by kind and name, its spaces and comments left out."""
    rows = connection.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    return {(kind, name): re.sub(r"\s*([(),])\s*", r"\1", " ".join(sql.split())) for kind, name, sql in rows}


def events(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        ((count,),) = connection.execute("SELECT COUNT(*) FROM event").fetchall()
        return int(count)


# --- schema --------------------------------------------------------------------------------------


def test_the_migrations_lead_to_the_schema_as_it_is_written_down() -> None:
    with closing(sqlite3.connect(":memory:")) as migrated, closing(sqlite3.connect(":memory:")) as written:
        for _, script in load_migrations():
            migrated.executescript(script)
        written.executescript(SCHEMA.read_text())

        assert contents(migrated) == contents(written)
        rows = "SELECT * FROM transition ORDER BY machine, before, after"
        assert migrated.execute(rows).fetchall() == written.execute(rows).fetchall()


def test_migrations_are_numbered_without_gaps() -> None:
    numbers = [number for number, _ in load_migrations()]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_database_knows_its_schema_number(store: Database, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchall() == [(load_migrations()[-1][0],)]


def test_opening_again_changes_no_schema(path: Path) -> None:
    Database(path).close()
    with closing(sqlite3.connect(path)) as connection:
        before = contents(connection)
    Database(path).close()
    with closing(sqlite3.connect(path)) as connection:
        assert contents(connection) == before


def test_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    Database(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreTooNew, match="schema 99"):
        Database(path)


# --- statements ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(load_queries()))
def test_every_named_statement_fits_the_schema(store: Database, path: Path, name: str) -> None:
    statement = load_queries()[name]
    names = re.findall(r":(\w+)", statement)
    parameters: Any = dict.fromkeys(names) if names else [None] * statement.count("?")
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(f"EXPLAIN {statement}", parameters).fetchall()


@pytest.mark.parametrize(
    "name",
    [
        "queued_capabilities",
        "list_capabilities",
        "count_tasks",
        "next_due",
        "ready_tasks",
        "ready_directed_tasks",
        "live_leases",
    ],
)
def test_what_the_loop_asks_often_never_walks_all_tasks(store: Database, path: Path, name: str) -> None:
    """The table only grows; every turn would take longer."""
    statement = load_queries()[name]
    parameters: Any = {"limit": 1} if ":" in statement else [None] * statement.count("?")
    with closing(sqlite3.connect(path)) as connection:
        plan = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
    assert [step for step in plan if step in {"SCAN task", "SCAN t", "SCAN l", "SEARCH task", "SEARCH t"}] == []


def test_every_named_statement_is_used(store: Database) -> None:
    package = SCHEMA.parents[1]
    source = "\n".join(file.read_text() for file in package.rglob("*.py"))
    lists = {name for name in load_queries() if name.startswith("list_")}
    assert [name for name in sorted(set(load_queries()) - lists) if f'"{name}"' not in source] == []


def test_no_statement_replaces_rows() -> None:
    """REPLACE deletes without saying so."""
    assert [name for name, statement in load_queries().items() if "REPLACE" in statement.upper()] == []


# --- settings ------------------------------------------------------------------------------------


def test_a_commit_survives_a_power_cut_by_setting(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    opened = connections(monkeypatch)
    with Database(path):
        wanted = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "recursive_triggers": 1}
        found = {name: opened[0].execute(f"PRAGMA {name}").fetchone()[0] for name in wanted}
    assert found == wanted


def connections(monkeypatch: pytest.MonkeyPatch) -> list[sqlite3.Connection]:
    """The connections that are opened from now on."""
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def note(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        opened.append(connect(*args, **kwargs))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", note)
    return opened


# --- one holder ----------------------------------------------------------------------------------


def test_a_second_holder_is_refused(store: Database, path: Path) -> None:
    with pytest.raises(StoreBusy):
        Database(path)


def test_a_second_holder_in_another_process_is_refused(store: Database, path: Path) -> None:
    program = (
        "import sys, pathlib\n"
        "from tenure.coordinator.store.database import Database\n"
        "from tenure.errors import StoreBusy\n"
        "try: Database(pathlib.Path(sys.argv[1]))\n"
        "except StoreBusy: print('busy')\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, check=True, text=True)
    assert done.stdout == "busy\n"


def test_a_closed_database_can_be_opened_again(path: Path) -> None:
    Database(path).close()
    Database(path).close()


def test_a_database_that_could_not_be_opened_is_not_held(path: Path) -> None:
    path.write_bytes(b"no database " * 100)
    for _ in range(2):
        with pytest.raises(StoreError, match="not a readable database"):
            Database(path)


def test_a_folder_is_not_a_database(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match="Is a directory"):
        Database(tmp_path / "folder")


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    Database(tmp_path / "deep" / "down" / "fleet.db").close()
    assert (tmp_path / "deep" / "down" / "fleet.db").exists()


def test_a_file_in_the_place_of_a_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot open"):
        Database(tmp_path / "file" / "fleet.db")


# --- transactions --------------------------------------------------------------------------------


def test_an_exception_undoes_a_transaction(store: Database, path: Path) -> None:
    def fail() -> None:
        with store.transaction():
            store.run("add_event", EVENT)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert events(path) == 0
    with store.transaction():
        store.run("add_event", EVENT)
    assert events(path) == 1


def test_nothing_is_written_once_a_newer_coordinator_has_begun(store: Database, path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("UPDATE world SET epoch = epoch + 1")
        other.commit()
    with pytest.raises(Superseded), store.transaction():
        store.run("add_event", EVENT)
    assert events(path) == 0


def test_every_start_is_a_new_epoch(path: Path) -> None:
    epochs: list[int] = []
    for _ in range(3):
        with Database(path) as store:
            store.run("create_world", ("main", 0))
            epochs.append(store.begin_epoch())
    assert epochs == [1, 2, 3]


def test_a_full_disk_is_said_and_nothing_of_the_transaction_is_stored(
    monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    opened = connections(monkeypatch)
    with Database(path) as store:
        store.run("create_world", ("main", 0))
        store.begin_epoch()
        ((pages,),) = opened[0].execute("PRAGMA page_count").fetchall()
        opened[0].execute(f"PRAGMA max_page_count = {pages + 3}").fetchall()
        with pytest.raises(StoreFull), store.transaction():
            store.run_many("add_event", [EVENT] * 100)
        assert events(path) == 0
        opened[0].execute("PRAGMA max_page_count = 1000000").fetchall()
        with store.transaction():
            store.run_many("add_event", [EVENT] * 100)
    assert events(path) == 100


def test_a_broken_rule_passes_through_as_what_it_is(store: Database) -> None:
    with pytest.raises(sqlite3.IntegrityError), store.transaction():
        store.run("add_event", (None, 0, "kind", None, *EVENT[4:]))
