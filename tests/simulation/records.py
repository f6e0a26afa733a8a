"""What the database says, read after every commit and compared with what it said before."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from tests.simulation.history import (
    ArtifactRow,
    Broken,
    DirectiveRow,
    Judgement,
    LeaseRow,
    Quarantined,
    ResultRow,
    SiteRow,
    TaskRow,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from tests.simulation.history import Fact, History

Row = tuple[Any, ...]

_TASKS: Final = (
    "SELECT task_id, idempotency_key, state, lost_count, failed_count, digest, envelope, principal FROM task"
)
_LEASES: Final = """
SELECT task_id, fence, attempt, state, COALESCE(worker_id, ''), COALESCE(nonce, ''), COALESCE(cause, ''), start,
       site_id, attempt, start, digest, ttl_ms, offered_at_ms
FROM lease
"""
_SITES: Final = "SELECT site_id, state FROM site"
_DIRECTIVES: Final = """
SELECT task_id, next_attempt, state, reason, COALESCE(decided_by, ''), directive_id,
       directive_id, attempt, fence, reason, created_at_ms
FROM directive
"""
_RESULTS: Final = """
SELECT task_id, fence, attempt, worker_id, nonce, COALESCE(value, failure), 1, value IS NULL, outputs, accepted_at_ms
FROM result
"""
_FAILED: Final = "SELECT task_id, fence, attempt, '', '', failure, 0, accepted_at_ms FROM failed_attempt"
_QUARANTINE: Final = """
SELECT quarantine_id, task_id, fence, worker_id, reason, attempt, site_id, nonce, report, outputs, received_at_ms
FROM quarantine
"""
_ARTIFACTS: Final = """
SELECT task_id, fence, kind, ordinal, state, manifest, place_fence, nonce,
       manifest, place_fence, nonce, attempt, name, size
FROM artifact
"""
_DECISIONS: Final = """
SELECT d.decision_id, d.quarantine_id, d.task_id, d.action, COALESCE(d.fence, 0), q.fence, q.nonce, d.decided_by,
       d.note, d.decided_at_ms
FROM quarantine_decision d JOIN quarantine q ON q.quarantine_id = d.quarantine_id
"""
_UNDECIDED: Final = """
SELECT quarantine_id FROM quarantine q WHERE NOT EXISTS (
    SELECT 1 FROM quarantine_decision d WHERE d.quarantine_id = q.quarantine_id AND d.action <> 'refuse')
ORDER BY quarantine_id
"""


@final
class _Table(NamedTuple):
    """A table: its columns from `fixed` on never change, and the first ones are the key and the fact."""

    name: str
    query: str
    key: int
    fact: Callable[..., Fact]
    columns: int
    fixed: int


_READ: Final = (
    _Table("lease", _LEASES, 2, LeaseRow, 9, 9),
    _Table("quarantine_decision", _DECISIONS, 1, Judgement, 8, 0),
    _Table("directive", _DIRECTIVES, 2, DirectiveRow, 6, 6),
    _Table("result", _RESULTS, 2, ResultRow, 7, 0),
    _Table("failed_attempt", _FAILED, 2, ResultRow, 7, 0),
    _Table("quarantine", _QUARANTINE, 1, Quarantined, 5, 0),
    _Table("artifact", _ARTIFACTS, 4, ArtifactRow, 8, 8),
    _Table("task", _TASKS, 1, TaskRow, 6, 5),
    _Table("site", _SITES, 1, SiteRow, 2, 2),
)


@final
class Records:
    """Facts about the database, one per row that a commit has added or changed."""

    def __init__(self, history: History) -> None:
        self.history = history
        self._known: dict[str, dict[Row, Row]] = {table.name: {} for table in _READ}
        self._changes = (0, -1)
        self.undecided: list[str] = []
        """Rejected results that nobody has decided about."""
        self.revoked: Callable[[str], None] | None = None
        """Called with each site that a commit has thrown out."""

    def observe(self, connection: sqlite3.Connection) -> None:
        """Compare with what was there before, unless nothing was written."""
        changes = (id(connection), connection.total_changes)
        if changes == self._changes:
            return
        self._changes = changes
        self.undecided = [str(row[0]) for row in connection.execute(_UNDECIDED)]
        for table in _READ:
            known = self._known[table.name]
            rows = connection.execute(table.query).fetchall()
            for row in rows:
                before = known.get(row[: table.key])
                if before != row:
                    known[row[: table.key]] = row
                    self._changed(table, before, row)
            if len(rows) < len(known):
                self._missing(table.name, known, {row[: table.key] for row in rows})

    def _changed(self, table: _Table, before: Row | None, row: Row) -> None:
        now = self.history.engine.now
        if before is not None and before[table.fixed :] != row[table.fixed :]:
            self.history.add(Broken(now, f"a row of {table.name} has changed: {row[: table.key]}"))
        self.history.add(table.fact(now, *row[: table.columns]))
        if self.revoked is not None and table.name == "site" and row[1] == "REVOKED":
            self.revoked(row[0])

    def task_states(self) -> dict[str, str]:
        """The state of every task."""
        return {str(row[0]): str(row[2]) for row in self._known["task"].values()}

    def pending(self) -> list[str]:
        """Tasks whose directive waits for a person."""
        return [str(row[0]) for row in self._known["directive"].values() if row[2] == "PENDING"]

    def directive_of(self, task: str) -> tuple[str, int]:
        """The name of a task's newest directive, and the attempt that it is about."""
        newest = max((row for row in self._known["directive"].values() if row[0] == task), key=itemgetter(1))
        return str(newest[5]), int(newest[1])

    def unpromoted(self) -> bool:
        """Whether anything was accepted that is not in the store yet."""
        return any(row[4] == "ACCEPTED" for row in self._known["artifact"].values())

    def keys(self) -> dict[str, str]:
        """The task of each key."""
        return {str(row[1]): str(row[0]) for row in self._known["task"].values()}

    def bindings(self) -> list[Row]:
        """Every lease ever: task, fence, attempt, state, worker, nonce, cause, start, site."""
        return list(self._known["lease"].values())

    def _missing(self, table: str, known: dict[Row, Row], there: set[Row]) -> None:
        for key in [key for key in known if key not in there]:
            del known[key]
            self.history.add(Broken(self.history.engine.now, f"a row of {table} is gone: {key}"))
