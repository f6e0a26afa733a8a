"""Attempts whose end a worker could not prove: its runner was killed, and nobody knows what is left of the tree."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.protocol.envelope import Retry
from tenure.protocol.worker_messages import Cause, Released
from tests.scripted_fleet import EXPIRY_MS, ScriptedFleet, verdicts


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path) as fleet:
        yield fleet


@pytest.mark.parametrize("restart", [False, True])
def test_its_lease_runs_out_although_the_worker_lists_it_until_it_has_a_verdict(
    fleet: ScriptedFleet, *, restart: bool
) -> None:
    """A worker keeps what it was not answered about in its heartbeats; that may not renew the lease for ever."""
    worker = fleet.worker()
    task = fleet.submit(retry=Retry(lost=1))
    hand = worker.claim()
    unproved = Released(binding=hand.binding, cause=Cause.PROCESS_DIED, started=True, tree_gone=False)
    hand.state = "finished"
    worker.report(unproved)
    if restart:
        fleet.restart()
    fleet.live(EXPIRY_MS - 1_000)
    assert fleet.records.leases(task) == ["ACTIVE"]
    fleet.live(2_000)
    worker.report(unproved)

    assert fleet.records.leases(task)[0] == "EXPIRED"
    assert [(reason, state) for state, reason, _ in fleet.records.directives(task)] == [("lease_expired", "APPROVED")]
    assert verdicts(worker) == ["stale_fence"]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("silence", ["it is not listed", "its agent was restarted"])
def test_silence_about_it_proves_nothing(fleet: ScriptedFleet, silence: str, *, restart: bool) -> None:
    """Not even that the spool of the next agent does not know it: its disk may have been full."""
    worker = fleet.worker()
    task = fleet.submit()
    hand = worker.claim()
    worker.report(Released(binding=hand.binding, cause=Cause.PROCESS_DIED, started=True, tree_gone=False))
    if restart:
        fleet.restart()
    if silence == "it is not listed":
        worker.hands.clear()
    else:
        fleet.worker(generation=2, predecessor=1)
    fleet.live(EXPIRY_MS - 1_000)
    assert fleet.records.leases(task) == ["ACTIVE"]
    fleet.live(2_000)

    assert fleet.records.rows("SELECT state, cause FROM lease WHERE task_id = ?", task) == [
        ("EXPIRED", "lease_expired")
    ]
