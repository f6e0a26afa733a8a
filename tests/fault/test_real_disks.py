"""The disk under the database, and the one under the workers' spools, is full for a while, on a real fleet."""

import errno
import os
import sqlite3
import subprocess
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tenure.coordinator.store.database import Database
from tenure.errors import StoreFull
from tests.fault.trial import Trials, long, time_to_serve, wait_for_time
from tests.fixtures_fleet import Fleet, Worker
from tests.fixtures_services import unavailable
from tests.waiting import wait_until

SIZE_MB = 32
AWAY_MS = 3_500
"""Longer than any lease in here."""
REFUSED = "waiting: the disk of "
"""How the coordinator says that the database was refused a write."""
REPEATS = [1, long(5)]
FRAME = 4_096 + 24
"""A page in the log of the database, in bytes."""
INDEX = 32_768
"""By how much the index of the log grows, in bytes, when there are some 4,096 pages more."""
EVENT = (None, 0, "kind", "coordinator", None, None, None, "", "", "", "x" * 1_000)


class Disk:
    """A small file system of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def room(self) -> int:
        """How many bytes are left."""
        of = os.statvfs(self.folder)
        return of.f_bavail * of.f_frsize

    def leave(self, room: int) -> None:
        """Take, or give back, so that so many bytes are left."""
        with self._filler.open("ab", buffering=0) as file:
            more = self.room() - room
            file.write(b"\0" * max(0, more))
            file.truncate(file.tell() + min(0, more))

    def fill(self) -> None:
        """Take every byte that is left."""
        with self._filler.open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                with suppress(OSError):
                    while True:
                        file.write(b"\0" * size)

    def free(self) -> None:
        self._filler.unlink()


@contextmanager
def small_disk(folder: Path) -> Generator[Disk]:
    """A disk in memory; the test is skipped where none may be mounted."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tenure-test", str(folder)], check=False, capture_output=True
    )
    if mounted.returncode:
        unavailable(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield Disk(folder)
    finally:
        wait_until(lambda: not subprocess.run(["umount", str(folder)], check=False).returncode, "it is unmounted")


@pytest.mark.parametrize("repeats", REPEATS)
def test_a_full_disk_under_the_database_stops_decisions_and_nothing_else(trials: Trials, repeats: int) -> None:
    """Workers run on; what they finish is accepted when there is room again."""
    fault = "disk of the database full"
    with (
        small_disk(trials.folder / "disk") as disk,
        trials.fleet(database=disk.folder / "fleet.db") as fleet,
        reading(fleet.database),
    ):
        for _ in range(repeats):
            sweep = trials.sweep(fleet, count=16, seconds=0.5)
            sweep.wait_for_results(4)
            wait_for_complaint(fleet, disk, refusals)
            wait_for_time(AWAY_MS)
            disk.free()
            trials.of(fault).serve_ms.append(time_to_serve(fleet))
            trials.judge_alive(fault, fleet, sweep)


@pytest.mark.parametrize("repeats", REPEATS)
def test_a_full_disk_under_the_spools_loses_no_result(trials: Trials, repeats: int) -> None:
    """Results are kept in memory, and the worker says what its death would cost."""
    fault = "disk of the spool full"
    with small_disk(trials.folder / "disk") as disk:
        workers = [Worker(name, state=disk.folder) for name in ("w1", "w2")]
        with trials.fleet(*workers) as fleet:
            for _ in range(repeats):
                sweep = trials.sweep(fleet, count=24, seconds=0.3)
                sweep.wait_for_results(4)
                wait_for_complaint(fleet, disk, unspooled)
                sweep.wait_for_results(12)
                disk.free()
                trials.judge_alive(fault, fleet, sweep)


def test_a_disk_that_has_no_room_for_the_index_of_the_log_is_full(tmp_path: Path) -> None:
    """SQLite calls that an error of the disk, which would end the coordinator; it is to wait for room."""
    with small_disk(tmp_path / "disk") as disk, Database(disk.folder / "fleet.db") as store:
        log = disk.folder / "fleet.db-wal"
        store.run("create_world", ("main", 0))
        store.begin_epoch()
        with reading(disk.folder / "fleet.db"):
            while log.stat().st_size < 4_000 * FRAME:
                store.run_many("add_event", [EVENT] * 50)
            with pytest.raises(StoreFull):
                write_with_little_room(store, disk)
            assert 4_050 < log.stat().st_size // FRAME < 4_100, "it was the index that had no room"
            disk.free()
            store.run("add_event", EVENT)


def write_with_little_room(store: Database, disk: Disk) -> None:
    """Write until that fails, with room for some pages each time, and never for a longer index."""
    for _ in range(500):
        disk.leave(INDEX - 4_096)
        store.run("add_event", EVENT)


@contextmanager
def reading(database: Path) -> Generator[None]:
    """Read the database all the while: the room in its log is not used again, and each write asks the disk for more."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM task").fetchone()
        yield


def wait_for_complaint(fleet: Fleet, disk: Disk, complaints: Callable[[Fleet], list[str]]) -> None:
    """Wait until there is one more complaint, on a disk that takes also what is given back meanwhile."""
    known = len(complaints(fleet))

    def complained() -> bool:
        disk.fill()
        return len(complaints(fleet)) > known

    wait_until(complained, "it is complained of")


def refusals(fleet: Fleet) -> list[str]:
    """What the coordinator said about a database that cannot be written; its path alone is said at each start."""
    return [line for line in fleet.processes["coordinator"].said().splitlines() if REFUSED in line]


def unspooled(fleet: Fleet) -> list[str]:
    """What workers said about a spool that cannot be written."""
    lines = fleet.processes["w1"].said() + fleet.processes["w2"].said()
    return [line for line in lines.splitlines() if os.strerror(errno.ENOSPC) in line]
