"""Sites that were there before devices were granted are granted those that their workers have."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from tenure.coordinator.store.database import Database
from tenure.coordinator.store.queries import load_migrations

BEFORE = 8
WORKER = (
    "INSERT INTO worker (worker_id, site_id, generation, state, slots, capabilities, labels, resources, ttl_ms, "
    "host, pid, version, registered_at_ms, seen_at_ms) VALUES (?, ?, 1, ?, 1, '[]', ?, '[]', 1000, '', 0, '', 0, 0)"
)
LASER, ARM, ODD, ROOM = ["device", "laser"], ["device", "arm"], ["device", 'a "b" ö'], ["room", "b12"]


def test_a_site_that_was_there_before_is_granted_the_devices_of_its_workers_on_record(tmp_path: Path) -> None:
    path = tmp_path / "fleet.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA foreign_keys = ON")
        for number, script in load_migrations():
            if number <= BEFORE:
                database.executescript(f"BEGIN;\n{script}\nPRAGMA user_version = {number};\nCOMMIT;")
        for site in ("default", "lab", "yard"):
            database.execute("INSERT INTO site (site_id, kind, created_at_ms) VALUES (?, 'lab', 0)", (site,))
        for name, site, state, labels in (
            ("w1", "default", "ACTIVE", [LASER]),
            ("lab.w1", "lab", "ACTIVE", [LASER, ROOM, ["site", "lab"]]),
            ("lab.w2", "lab", "OFFLINE", [ODD, ARM, LASER]),
            ("yard.w1", "yard", "ACTIVE", [ROOM, ["site", "yard"]]),
        ):
            database.execute(WORKER, (name, site, state, json.dumps(labels)))

    with Database(path) as store:
        granted = {str(row[0]): json.loads(row[3]) for row in store.rows("active_sites")}

    assert granted == {"default": [], "lab": ['a "b" ö', "arm", "laser"], "yard": []}
