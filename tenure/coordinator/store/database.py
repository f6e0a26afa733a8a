"""One SQLite database, opened so that a committed decision survives a power cut and only one coordinator decides.

What may be relied on: WAL with `synchronous=FULL`, one writing connection per database (a lock file is held for life),
every write transaction begins IMMEDIATE and first checks that the epoch is still ours, and every setting is read back
after it was made. SQLite's WAL-reset bug (before 3.51.3) needs two writing connections, which never exist here.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, Self, final

from tenure.coordinator.store.queries import load_migrations, load_queries
from tenure.errors import StoreBusy, StoreError, StoreFull, StoreTooNew, Superseded

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence
    from pathlib import Path

Row = tuple[Any, ...]

_PRAGMAS: Final = (
    ("journal_mode", "wal", "wal"),
    ("synchronous", "FULL", 2),
    ("foreign_keys", "ON", 1),
    ("recursive_triggers", "ON", 1),
    ("trusted_schema", "OFF", 0),
    ("busy_timeout", "5000", 5000),
    ("journal_size_limit", "67108864", 67108864),
)


@final
class Database:
    """The coordinator's connection. Not for use by two threads at once.

    Args:
        path: the database file; made, with its folder, when it does not exist.

    Raises:
        StoreBusy: another coordinator holds it.
        StoreTooNew: a newer version of Tenure wrote it.
        StoreError: it is not a database, cannot be written, or a safety setting was not taken.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.epoch = 0
        self._queries = load_queries()
        with ExitStack() as undo:
            self._lock = _lock(path)
            undo.callback(os.close, self._lock)
            with translated(path):
                self._connection = sqlite3.connect(path, isolation_level=None, cached_statements=256)
                undo.callback(self._connection.close)
                self._configure()
                self._migrate()
            undo.pop_all()

    def __enter__(self) -> Self:
        """The database itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Write the log back into the database file, close, and let go of the lock."""
        try:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error:
            pass  # the log is replayed at the next start
        finally:
            self._connection.close()
            os.close(self._lock)

    def begin_epoch(self) -> int:
        """Take over the database: from here on, a coordinator of an earlier epoch can write no more."""
        with self._immediate():
            row = self._connection.execute("UPDATE world SET epoch = epoch + 1 WHERE id = 1 RETURNING epoch").fetchone()
        self.epoch = int(row[0])
        return self.epoch

    @contextmanager
    def transaction(self) -> Generator[None]:
        """One write transaction: committed at the end, undone by any exception.

        Raises:
            Superseded: another coordinator has begun a newer epoch.
            StoreFull: the disk is full; nothing was written.
        """
        with self._immediate():
            (epoch,) = self._connection.execute("SELECT epoch FROM world WHERE id = 1").fetchone()
            if epoch != self.epoch:
                raise Superseded(
                    f"a newer coordinator (epoch {epoch}) has taken over {self.path}",
                    "This one stops; nothing was lost",
                )
            yield

    def run(self, query: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> int:
        """Execute a named statement; the number of rows that it changed."""
        return self._execute(query, parameters).rowcount

    def run_many(self, query: str, rows: Iterable[Sequence[Any]]) -> int:
        """Execute a named statement once per row; the number of rows changed in all."""
        with translated(self.path):
            return self._connection.executemany(self._queries[query], rows).rowcount

    def rows(self, query: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
        """All rows of a named query."""
        try:
            return self._execute(query, parameters).fetchall()
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            raise _ours(error, self.path) from error

    def row(self, query: str, parameters: Sequence[Any] = ()) -> Row | None:
        """The first row of a named query, or None."""
        found = self.rows(query, parameters)
        return found[0] if found else None

    def records(self, query: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[dict[str, Any]]:
        """All rows of a named query as dictionaries by column name."""
        with translated(self.path):
            cursor = self._connection.execute(self._queries[query], parameters)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def _execute(self, query: str, parameters: Sequence[Any] | Mapping[str, Any]) -> sqlite3.Cursor:
        # Several calls per task: a context manager around each costs a tenth of the coordinator's time.
        try:
            return self._connection.execute(self._queries[query], parameters)
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            raise _ours(error, self.path) from error

    @contextmanager
    def _immediate(self) -> Generator[None]:
        with translated(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _configure(self) -> None:
        for name, wanted, expected in _PRAGMAS:
            self._connection.execute(f"PRAGMA {name} = {wanted}").fetchall()
            (actual,) = self._connection.execute(f"PRAGMA {name}").fetchone()
            if actual != expected:
                raise StoreError(
                    f"{self.path}: SQLite would not take {name}={wanted} (it says {actual})",
                    "Put the database on a local disk; network file systems are not safe for it",
                )

    def _migrate(self) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        migrations = load_migrations()
        newest = migrations[-1][0]
        if version > newest:
            raise StoreTooNew(
                f"{self.path} has schema {version}, this program knows up to {newest}", "Install a newer Tenure"
            )
        for number, script in migrations:
            if number > version:
                self._connection.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {number};\nCOMMIT;")


def _lock(path: Path) -> int:
    """Hold `<path>.lock` for the life of the process; a second coordinator on one database fails here."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # SQLite would let others read it
        handle = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(f"cannot open {path}: {error.strerror}", "Check the folder and its permissions") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise StoreBusy(f"another coordinator holds {path}", "Stop it first, or use another database") from error
    return handle


@contextmanager
def translated(path: Path) -> Generator[None]:
    """Turn SQLite's errors into ours. Constraint violations pass through: they are bugs or attacks, not conditions."""
    try:
        yield
    except sqlite3.IntegrityError:
        raise
    except sqlite3.Error as error:
        raise _ours(error, path) from error


def _ours(error: sqlite3.Error, path: Path) -> StoreError:
    name = getattr(error, "sqlite_errorname", "")
    # The second one: the index of its log could not grow, each time with 4,096 pages more in the log.
    if name in {"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"} or "disk is full" in str(error):
        return StoreFull(f"the disk of {path} is full", "Free some space; nothing was lost")
    if name in {"SQLITE_NOTADB", "SQLITE_CORRUPT"}:
        return StoreError(f"{path} is not a readable database ({error})", "Restore it from a backup")
    return StoreError(f"{path}: {error}", "Check the disk and the file's permissions")
