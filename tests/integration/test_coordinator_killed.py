"""A coordinator's process that is killed inside a transaction, and the loop that rides out trouble."""

import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from tenure.broker.keys import Keys
from tenure.broker.memory import MemoryBroker
from tenure.broker.memory_store import MemoryStore
from tenure.coordinator.options import CoordinatorOptions
from tenure.coordinator.service import run_coordinator
from tenure.coordinator.store.database import Database
from tenure.testing import ManualClock, SeededEntropy

WRITER = """
import pathlib, sys
from tenure.coordinator.store.database import Database
REST = ("coordinator", None, None, None, "", "", "")
store = Database(pathlib.Path(sys.argv[1]))
store.run("create_world", ("main", 0))
store.begin_epoch()
with store.transaction():
    store.run("add_event", (None, 0, "kept", *REST, "committed"))
with store.transaction():
    store.run_many("add_event", [(None, 0, "undone", *REST, "x" * 1000)] * 20_000)
    print("inside", flush=True)
    sys.stdin.read()
"""


def test_a_process_killed_inside_a_transaction_leaves_it_undone_and_lets_go(tmp_path: Path) -> None:
    """Enough is written that part of it is in the log already."""
    path = tmp_path / "fleet.db"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "inside\n"
        writer.send_signal(signal.SIGKILL)
        writer.wait(10)
    with Database(path) as store:
        assert store.begin_epoch() == 2
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT kind, COUNT(*) FROM event GROUP BY kind").fetchall() == [("kept", 1)]
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


class Script(threading.Event):
    """What asks the loop to stop, after it has waited often enough; each wait may change something."""

    def __init__(self, server: MemoryStore) -> None:
        super().__init__()
        self.server = server
        self.waits = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.waits += 1
        if self.waits == 3:
            self.server.down = self.server.full = False
            self.set()
        return self.is_set()


@pytest.mark.parametrize("trouble", ["down", "full"])
def test_a_broker_that_is_away_or_full_is_waited_for(tmp_path: Path, trouble: str) -> None:
    """And the database is let go at the end."""
    clock = ManualClock()
    server = MemoryStore(clock)
    setattr(server, trouble, True)
    stop = Script(server)
    options = CoordinatorOptions(database=tmp_path / "fleet.db")
    face = MemoryBroker(server, Keys("main")).coordinator()
    run_coordinator(options, face, clock, SeededEntropy(), stop)

    assert stop.waits == 3
    Database(options.database).close()
