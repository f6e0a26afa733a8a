"""The files of a worker that was stopped past its lease: kept out of the store, and brought in by a person's word."""

from __future__ import annotations

import signal
from collections.abc import Generator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.fault.proxy import Proxy
from tests.fixtures_e2e import Printed
from tests.fixtures_files_fleet import FilesFleet, files_fleet
from tests.fixtures_fleet import Worker
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(120)

LEAVE = (
    'mkdir outputs/deep; printf "%s by attempt %s" "$1" "$TENURE_ATTEMPT" > outputs/deep/made.txt; '
    "echo of > outputs/x; "
    'touch "$2/running-$TENURE_ATTEMPT"; while [ ! -e "$2/gate-$TENURE_ATTEMPT" ]; do sleep 0.02; done; '
    'echo "attempt $TENURE_ATTEMPT"'
)


@dataclass
class Stale:
    """A fleet with a worker whose line to the broker may be cut."""

    files: FilesFleet
    proxy: Proxy

    def late_result(self, gates: Path) -> tuple[str, dict[str, Any]]:
        """A held loss: its worker had the result in hand, was stopped for longer than its lease, and has told it since.

        The line is cut first, so that it is stopped with the result in hand and not before or after.
        """
        files, worker = self.files, self.files.fleet.processes["w1"]
        task_id = files.submit("--lease-ttl", "4s", "--", "sh", "-c", LEAVE, "x", gates.parent.name, str(gates))
        wait_until((gates / "running-1").exists, "it runs", 30)
        self.proxy.lead_nowhere()
        (gates / "gate-1").touch()
        spool = files.fleet.folder / "workers" / "w1" / "spool.jsonl"
        wait_until(lambda: task_id in spool.read_text(), "the worker has the result in hand", 30)
        worker.signal(signal.SIGSTOP)
        files.wait_for(task_id, "LOST", 30)
        self.proxy.heal()
        worker.signal(signal.SIGCONT)
        wait_until(lambda: files.rows("quarantine", task_id=task_id), "its result came too late", 30)
        (row,) = files.rows("quarantine", task_id=task_id)
        return task_id, row


@pytest.fixture(scope="module")
def stale(tmp_path_factory: pytest.TempPathFactory) -> Generator[Stale]:
    with files_fleet(tmp_path_factory.mktemp("fleet"), []) as files:
        proxy = Proxy(files.fleet.server.port)
        try:
            files.fleet.start_worker(Worker("w1", slots=1, ttl_ms=4_000, url=proxy.url))
            files.fleet.wait_for_workers("w1")
            yield Stale(files, proxy)
        finally:
            proxy.heal()
            files.fleet.processes["w1"].kill()
            proxy.close()


@pytest.fixture
def files(stale: Stale) -> FilesFleet:
    return stale.files


@pytest.fixture
def gates(tmp_path: Path) -> Path:
    folder = tmp_path / "gates"
    folder.mkdir()
    return folder


def contents(files: FilesFleet) -> list[bytes]:
    """Every object of the store."""
    with files.depot.open() as store:
        return [b"".join(store.read(each.blob)) for each in store.objects()]


def refused(printed: Printed, *words: str) -> None:
    assert printed.code == 2, printed
    (line,) = printed.err.splitlines()
    assert all(word in line for word in words), line


def made(gates: Path, attempt: int) -> bytes:
    return f"{gates.parent.name} by attempt {attempt}".encode()


def test_a_stale_worker_s_files_are_kept_out_and_brought_in_by_a_person(
    stale: Stale, files: FilesFleet, gates: Path
) -> None:
    task_id, row = stale.late_result(gates)
    left = {sha256(made(gates, 1)).hexdigest(), row["report"]["outputs"]["manifest"]["digest"]}
    assert not left & files.depot.digests(), "nothing of a rejected result is in the store"
    assert row["reason"] == "lease_expired"
    assert row["quarantine_id"] in files.fine("quarantine", "list", "--task", task_id).out
    shown = files.fine("quarantine", "show", row["quarantine_id"], "--json").json()
    assert {file["path"]: file["size"] for file in shown["files"]} == {"deep/made.txt": len(made(gates, 1)), "x": 3}
    assert files.run("result", task_id).code == 1

    identity, back = row["quarantine_id"], files.place.folder / gates.parent.name
    decided = files.fine("quarantine", "adopt", identity, "--yes", "--note", "checked by hand", "--json").json()
    assert decided["adopted_fence"] > row["fence"]
    assert files.task(task_id)["state"] == "SUCCEEDED"
    assert files.fine("result", task_id, "--outputs", str(back)).out == "attempt 1\n"
    assert (back / "deep" / "made.txt").read_bytes() == made(gates, 1)
    files.wait_until_promoted(task_id)
    assert left <= files.depot.digests()
    files.fine("artifacts", "verify", task_id)
    assert "checked by hand" in files.explained(task_id)
    assert task_id not in [place.task_id for place in files.depot.places()]
    refused(files.run("quarantine", "adopt", identity, "--yes"), "adopted already")
    refused(files.run("quarantine", "drop", identity, "--yes"), "adopted already")


def test_a_worker_that_slept_past_its_lease_brings_its_files_as_evidence(
    stale: Stale, files: FilesFleet, gates: Path
) -> None:
    task_id = files.submit("--lease-ttl", "4s", "--", "sh", "-c", LEAVE, "x", gates.parent.name, str(gates))
    wait_until((gates / "running-1").exists, "it runs", 30)
    worker = files.fleet.processes["w1"]
    worker.signal(signal.SIGSTOP)
    (gates / "gate-1").touch()
    files.wait_for(task_id, "LOST", 30)
    worker.signal(signal.SIGCONT)
    wait_until(lambda: files.rows("quarantine", task_id=task_id), "its result came too late", 30)
    (row,) = files.rows("quarantine", task_id=task_id)
    assert (row["reason"], row["outputs"]["files"]) == ("lease_expired", 2)
    assert made(gates, 1) not in contents(files)


@pytest.mark.slow
def test_what_a_newer_attempt_has_done_is_not_replaced(stale: Stale, files: FilesFleet, gates: Path) -> None:
    task_id, row = stale.late_result(gates)
    (directive,) = [each for each in files.rows("directives", task_id=task_id) if each["state"] == "PENDING"]
    files.fine("directives", "approve", directive["directive_id"])
    wait_until((gates / "running-2").exists, "attempt 2 runs", 30)
    refused(files.run("quarantine", "adopt", row["quarantine_id"], "--yes"), "attempt 2 is ACTIVE")
    (gates / "gate-2").touch()
    files.wait_for(task_id, "SUCCEEDED")
    refused(files.run("quarantine", "adopt", row["quarantine_id"], "--yes"))
    files.wait_until_promoted(task_id)
    back = files.place.folder / gates.parent.name
    assert files.fine("result", task_id, "--outputs", str(back)).out == "attempt 2\n"
    assert (back / "deep" / "made.txt").read_bytes() == made(gates, 2)
    assert made(gates, 1) not in contents(files)


def test_what_is_dropped_goes_and_the_record_of_it_stays(stale: Stale, files: FilesFleet, gates: Path) -> None:
    before = len(files.depot.places())
    task_id, row = stale.late_result(gates)
    assert len(files.depot.places()) == before + 1
    files.fine("quarantine", "drop", row["quarantine_id"], "--yes", "--note", "not needed")
    wait_until(lambda: len(files.depot.places()) == before, "its files are removed")
    shown = files.fine("quarantine", "show", row["quarantine_id"], "--json").json()
    assert shown["state"] == "DROPPED"
    assert not shown.get("files")
    assert shown["outputs"]["files"] == 2
    refused(files.run("quarantine", "adopt", row["quarantine_id"], "--yes"), "dropped")
    assert made(gates, 1) not in contents(files)
    assert "not needed" in files.explained(task_id)
