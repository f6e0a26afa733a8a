"""Fleets whose tasks leave files: a store that a test may look into, the command line, processes, and their memory."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tenure.artifacts.base import Place as StagingPlace
from tenure.artifacts.base import Store
from tenure.artifacts.opening import open_store
from tenure.protocol.artifact import Blob
from tenure.protocol.client_messages import Query
from tests.fixtures_artifacts import BUCKET, S3Server, launch_s3
from tests.fixtures_e2e import Place, Printed
from tests.fixtures_fleet import Fleet, Worker, open_fleet
from tests.waiting import wait_until

MIB = 1 << 20
PORTER = "tenure.artifacts.porter"
RUNNER = "tenure.workers.runner"

LEAVE_LARGE = """
import hashlib, os, sys
digest = hashlib.sha256()
with open("outputs/large.bin", "wb") as file:
    for number in range(int(sys.argv[1]) >> 20):
        block = hashlib.shake_128(b"%d" % number).digest(1 << 20)
        digest.update(block)
        file.write(block)
print(digest.hexdigest(), os.environ["TENURE_ATTEMPT"])
"""
"""Leaves a file of that size that no compression helps with, and prints its digest and the attempt."""


def large(size: int) -> list[str]:
    """The program that leaves a large file."""
    return ["--", sys.executable, "-c", LEAVE_LARGE, str(size)]


def large_blob(size: int) -> Blob:
    """The file that this program leaves."""
    digest = hashlib.sha256()
    for number in range(size // MIB):
        digest.update(hashlib.shake_128(b"%d" % number).digest(MIB))
    return Blob(digest=digest.hexdigest(), size=size)


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def peak_bytes(process: psutil.Process) -> int:
    """The most resident memory that a process has ever had."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


@dataclass
class FilesFleet:
    """A fleet, its store, and the command line as a user of it has it."""

    fleet: Fleet
    depot: Depot
    place: Place = field(init=False)

    def __post_init__(self) -> None:
        home = self.fleet.folder / "home"
        home.mkdir()
        self.place = Place(home, {"TENURE_BROKER_URL": self.fleet.url, **self.fleet.env})

    # --- the command line -----------------------------------------------------------------------

    def run(self, *arguments: str, timeout_s: float = 30) -> Printed:
        return self.place.run(*arguments, timeout_s=timeout_s)

    def fine(self, *arguments: str, timeout_s: float = 30) -> Printed:
        """The same, of what must end well."""
        printed = self.run(*arguments, timeout_s=timeout_s)
        assert printed.code == 0, printed
        return printed

    def submit(self, *arguments: str) -> str:
        """The id of a new task."""
        return self.fine("submit", *arguments).out.strip()

    def rows(self, what: Any, **where: str) -> list[dict[str, Any]]:
        """What the coordinator knows, faster than a new process can ask."""
        return list(self.fleet.client.ask(Query(what=what, where=tuple(where.items()))).rows)

    def explained(self, task_id: str) -> str:
        """What people are told of a task."""
        return self.fine("explain", task_id).out

    def task(self, task_id: str) -> dict[str, Any]:
        return self.rows("tasks", task_id=task_id)[0]

    def wait_for(self, task_id: str, state: str, timeout_s: float = 30) -> None:
        wait_until(lambda: self.task(task_id)["state"] == state, f"{task_id} is {state}", timeout_s)

    def wait_until_promoted(self, task_id: str, timeout_s: float = 30) -> None:
        """Wait until its outputs are where they belong."""

        def promoted() -> bool:
            rows = self.rows("artifacts", task_id=task_id, kind="outputs")
            return bool(rows) and all(row["state"] == "PROMOTED" for row in rows)

        wait_until(promoted, "its outputs are in the store", timeout_s)


@dataclass(frozen=True)
class Depot:
    """A fleet's store, as another host has it."""

    address: str
    options: Mapping[str, object]

    @contextmanager
    def open(self) -> Generator[Store]:
        store = open_store(self.address, self.options)
        try:
            yield store
        finally:
            store.close()

    def digests(self) -> set[str]:
        """Every object."""
        with self.open() as store:
            return {stored.blob.digest for stored in store.objects()}

    def places(self) -> list[StagingPlace]:
        """Every place where something is staged."""
        with self.open() as store:
            return [staged.place for staged in store.places()]

    def half_objects(self) -> list[str]:
        """Objects that are not what their names say; the store is read to its last byte."""
        with self.open() as store:
            return [each.blob.digest for each in store.objects() if not _is_whole(store, each.blob)]


def part_of(fleet: Fleet, name: str, module: str) -> psutil.Process | None:
    """The process below the coordinator or a worker that runs this module; None while there is none."""
    children = psutil.Process(fleet.processes[name].pid).children()
    return next((child for child in children if module in child.cmdline()), None)


def peaks(fleet: Fleet, *names: str) -> dict[str, int]:
    """The most memory that each process of these parts ever had, in MiB."""
    found: dict[str, int] = {}
    for name in names:
        found[name] = peak_bytes(psutil.Process(fleet.processes[name].pid)) // MIB
        for part, module in (("porter", PORTER), ("runner", RUNNER)):
            process = part_of(fleet, name, module)
            if process is not None:
                found[f"{name}'s {part}"] = peak_bytes(process) // MIB
    return found


def _is_whole(store: Store, blob: Blob) -> bool:
    digest = hashlib.sha256()
    for chunk in store.read(blob):
        digest.update(chunk)
    return digest.hexdigest() == blob.digest


@contextmanager
def files_fleet(
    folder: Path,
    workers: Sequence[Worker] = (Worker("w1"),),
    *,
    s3: S3Server | None = None,
    server_options: tuple[str, ...] = (),
) -> Generator[FilesFleet]:
    """A fleet with a store of its own: in that server, or in a folder."""
    env, options = {}, {} if s3 is None else s3.options
    address = str(folder / "store") if s3 is None else f"s3://{BUCKET}/fleet"
    if s3 is not None:
        keys = folder / "keys.json"
        keys.touch(mode=0o600)
        keys.write_text(json.dumps(options))
        env["TENURE_ARTIFACTS_OPTIONS_FILE"] = str(keys)

    def prepare(fleet: Fleet) -> None:
        fleet.env |= {**env, "TENURE_ARTIFACTS": address}

    with open_fleet(folder, workers, prepare=prepare, server_options=server_options) as fleet:
        if s3 is None:
            wait_until(Path(address).is_dir, "the coordinator has made the store", 20)
        yield FilesFleet(fleet, Depot(address, options))


@contextmanager
def s3_server(folder: Path) -> Generator[S3Server]:
    """An S3-compatible server, empty."""
    server = launch_s3(folder)
    try:
        yield server
    finally:
        server.stop()
