"""The event log of a database file, read beside the coordinator that may be writing it, or without one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from tenure.coordinator.store.database import translated
from tenure.coordinator.store.queries import load_queries
from tenure.errors import UsageError
from tenure.protocol.chain import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Line = dict[str, Any]
_PORTION: Final = 5_000


def lines(path: Path) -> Iterator[Line]:
    """The lines of the log, as `tenure.protocol.chain` describes them, as of one moment.

    Raises:
        StoreError: it is not a database of Tenure, or cannot be read.
        UsageError: there is no such file.
    """
    if not path.is_file():
        raise UsageError(f"there is no file {path}", "Give the path of the coordinator's database")
    queries = load_queries()
    with translated(path), closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        connection.execute("BEGIN")  # one moment: what is added meanwhile is not seen in part
        world, created_at_ms = connection.execute(queries["log_identity"]).fetchone()
        yield {"chain": {"format": 1, "world": world, "created_at_ms": created_at_ms}}
        seals = connection.execute(queries["all_seals"])
        waiting = seals.fetchone()
        beyond = 0
        while rows := connection.execute(queries["events_to_seal"], (beyond, _PORTION)).fetchall():
            beyond = rows[-1][0]
            for row in rows:
                while waiting is not None and waiting[2] < row[0]:
                    yield _seal(waiting)
                    waiting = seals.fetchone()
                yield {"event": dict(zip(COLUMNS, row, strict=True))}
        while waiting is not None:
            yield _seal(waiting)
            waiting = seals.fetchone()


def _seal(row: tuple[Any, ...]) -> Line:
    return {"seal": dict(zip(("seal_id", "first_event", "last_event", "at_ms", "epoch", "digest"), row, strict=True))}
