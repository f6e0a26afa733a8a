"""Large files through whole fleets: little memory, the right bytes, and nothing half anywhere, whoever is killed."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tenure.protocol.artifact import Blob
from tests.fault.trial import long
from tests.fixtures_files_fleet import (
    MIB,
    PORTER,
    FilesFleet,
    digest_of,
    files_fleet,
    large,
    large_blob,
    part_of,
    peaks,
    s3_server,
)
from tests.fixtures_fleet import Worker
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(120)
MOST_MIB = 150
"""What each process may need, whatever the size of the file."""
PATIENCE_S = 600
"""For one step of the long form on a busy machine; the short form is ended by its own limit."""
Figures = Callable[[str, object], None]


@contextmanager
def open_files(kind: str, folder: Path) -> Generator[FilesFleet]:
    """A fleet over a store of that kind, in a folder that is removed at once: it may be large."""
    try:
        if kind == "folder":
            with files_fleet(folder) as files:
                yield files
            return
        with s3_server(folder) as server, files_fleet(folder, s3=server) as files:
            yield files
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("folder", 200 * MIB),
        long("s3", 200 * MIB),
        long("folder", 2048 * MIB, timeout_s=1_500),
        long("s3", 2048 * MIB, timeout_s=1_500),
    ],
)
def test_a_large_file_needs_little_memory(kind: str, size: int, tmp_path: Path, record_property: Figures) -> None:
    with open_files(kind, tmp_path) as files:
        task_id = files.submit(*large(size))
        files.wait_for(task_id, "SUCCEEDED", PATIENCE_S)
        files.wait_until_promoted(task_id, PATIENCE_S)
        back = files.place.folder / "back"
        printed = files.fine("result", task_id, "--outputs", str(back), timeout_s=PATIENCE_S)
        found = peaks(files.fleet, "coordinator", "w1")
        record_property("peaks_mib", found)
        sys.stderr.write(f"{size // MIB} MiB through {kind}: peaks in MiB {found}\n")
        assert printed.out.split() == [digest_of(back / "large.bin"), "1"]
        assert (back / "large.bin").stat().st_size == size
        assert set(found) == {"coordinator", "coordinator's porter", "w1", "w1's porter", "w1's runner"}
        assert max(found.values()) < MOST_MIB, found
        assert files.depot.places() == []
        assert files.fine("artifacts", "verify", task_id, timeout_s=PATIENCE_S).code == 0


def stop_half_way(files: FilesFleet, blob: Blob) -> psutil.Process:
    """Wait until some of the file is staged, and stop the worker's porter before the rest is."""
    with files.depot.open() as store:

        def staged() -> int:
            return sum(store.staged_bytes(each.place, blob) for each in store.places())

        wait_until(staged, "the upload has begun", PATIENCE_S)
        porter = part_of(files.fleet, "w1", PORTER)
        assert porter is not None
        porter.suspend()
        assert 0 < staged() < blob.size, "it was not caught half-way"
        return porter


def kill_worker(files: FilesFleet) -> None:
    """Kill every process of the worker, and start it again."""
    for process in files.fleet.everything_of("w1"):
        process.kill()
    files.fleet.processes["w1"].wait()
    files.fleet.start_worker(Worker("w1"))


@pytest.mark.parametrize("victim", ["porter", "worker"])
@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("folder", 200 * MIB),
        long("s3", 32 * MIB),
        long("folder", 2048 * MIB, timeout_s=1_500),
        # The tests' server reads a whole object for each part that is asked for: 2 GiB would take a quarter of an hour.
        long("s3", 512 * MIB, timeout_s=1_500),
    ],
)
def test_what_was_killed_half_way_leaves_nothing_half(kind: str, size: int, victim: str, tmp_path: Path) -> None:
    blob = large_blob(size)
    with open_files(kind, tmp_path) as files:
        task_id = files.submit("--retries", "2", "--lease-ttl", "2s", *large(size))
        porter = stop_half_way(files, blob)
        assert files.depot.digests() == set(), "nothing is an object before its result was accepted"
        if victim == "worker":
            kill_worker(files)
        else:
            porter.kill()
        files.wait_for(task_id, "SUCCEEDED", PATIENCE_S)
        files.wait_until_promoted(task_id, PATIENCE_S)
        back = files.place.folder / "back"
        printed = files.fine("result", task_id, "--outputs", str(back), timeout_s=PATIENCE_S)
        attempt = files.task(task_id)["attempt"]
        assert attempt == (2 if victim == "worker" else 1), "a porter's job is given to the next one"
        assert printed.out.split() == [blob.digest, str(attempt)]
        assert digest_of(back / "large.bin") == blob.digest
        assert files.depot.half_objects() == []
        verdict = files.fine("artifacts", "verify", "--json", timeout_s=PATIENCE_S).json()
        assert verdict["problems"] == []
        assert verdict["contents"] >= 2
        files.fine("artifacts", "gc", "--older-than", "0s")
        assert files.depot.places() == [], "what the first attempt had staged is collected"
        assert blob.digest in files.depot.digests()
