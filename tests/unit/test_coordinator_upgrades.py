"""An upgrade of the coordinator: what it makes of what an older one has written down."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from tenure.protocol.envelope import Retry
from tenure.protocol.worker_messages import Cause
from tests.scripted_fleet import EXPIRY_MS, ScriptedFleet
from tests.scripted_launcher import executor, started

ADDED: Final = {
    11: "ALTER TABLE lease DROP COLUMN seconded;",
    12: "ALTER TABLE lease DROP COLUMN unproved; ALTER TABLE lease DROP COLUMN surrender;"
    "ALTER TABLE lease DROP COLUMN surrendered_at_ms;",
    13: "DROP TRIGGER worker_kind_for_good; ALTER TABLE worker DROP COLUMN launches;",
}
"""What takes away again what each migration has added."""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path) as fleet:
        yield fleet


def go_back(fleet: ScriptedFleet, version: int, changes: str = "") -> None:
    """Make the database what a coordinator of that version has left."""
    scripts = (script for number, script in ADDED.items() if number > version)
    with closing(sqlite3.connect(fleet.options.database)) as database:
        database.executescript("".join((changes, *scripts, f"PRAGMA user_version = {version};")))


def test_the_migration_takes_a_second_executor_from_the_events(fleet: ScriptedFleet) -> None:
    parent = fleet.worker("w1")
    first = fleet.submit()
    launched, _, _ = started(fleet, parent)
    other = fleet.submit()
    started(fleet, fleet.worker("w2"))
    second = executor(fleet, parent, launched, "x1")
    fleet.workers[-1].claim(second)
    go_back(fleet, 10)
    fleet.restart()

    seconded = {str(row[0]): row[21] for row in fleet.store.rows("live_leases")}
    assert seconded == {first: 1, other: 0}


@pytest.mark.parametrize("binds", ["on record", "not yet on record"])
def test_the_migration_takes_from_the_events_what_could_not_be_ended(fleet: ScriptedFleet, binds: str) -> None:
    alone = fleet.worker("w3")
    again = fleet.submit(retry=Retry(lost=1, backoff_ms=0))
    alone.release(alone.claim(), Cause.PROCESS_DIED, started=True, tree_gone=False)
    fleet.live(EXPIRY_MS + 2_000)
    alone.claim()
    assert fleet.records.leases(again) == ["EXPIRED", "ACTIVE"]
    parent = fleet.worker("w1")
    first = fleet.submit()
    _, worker, hand = started(fleet, parent)
    other = fleet.submit()
    started(fleet, fleet.worker("w2"))
    worker.release(hand, Cause.CANCELLED, started=True, tree_gone=False)
    forget = "DROP TRIGGER event_kept; DELETE FROM event WHERE kind = 'bound';"
    go_back(fleet, 11, forget if binds == "not yet on record" else "")
    fleet.restart()

    unproved = {str(row[0]): row[22] for row in fleet.store.rows("live_leases")}
    assert unproved == {first: 1, other: 0, again: 0}, "only what its own attempt has told counts"


@pytest.mark.parametrize("launches", [True, False])
def test_a_worker_says_of_which_kind_it_is_after_the_upgrade(fleet: ScriptedFleet, *, launches: bool) -> None:
    worker = fleet.worker("w1", launches=not launches)
    go_back(fleet, 12)
    fleet.restart()
    for said in (None, launches, None, not launches):
        worker.hello(launches=said)
        fleet.step()

    assert fleet.records.rows("SELECT launches FROM worker") == [(int(launches),)]
    assert len(fleet.records.events("refused")) == 1
