"""One site floods the coordinator; another one, and those who ask, are served as before."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.broker.base import EntryId, Readers
from tenure.broker.keys import Keys
from tenure.coordinator.limits import SiteLimits
from tenure.coordinator.quotas import SiteQuotas
from tenure.protocol.principal_messages import IssueSite
from tenure.protocol.worker_messages import Leaving
from tests.scripted_fleet import ScriptedFleet, ScriptedWorker

LIMITS = SiteLimits(
    units_per_s=1_000, burst=1_000, units_per_turn=50, most_waiting=300, most_waiting_bytes=10**6, kept_waiting=20
)
QUOTAS = SiteQuotas(records_per_day=30, evidence_bytes_per_day=1_500)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path, site_limits=LIMITS, site_quotas=QUOTAS) as fleet:
        for number, site in enumerate(("calm", "wild")):
            fleet.client.ask(IssueSite(site=site, capabilities=("cpu",), secret_digest=f"{number}" * 64))
        yield fleet


@pytest.fixture
def wild(fleet: ScriptedFleet) -> ScriptedWorker:
    return fleet.worker("wild.w1", site="wild", capabilities=("other",))


def shown(fleet: ScriptedFleet, site: str) -> dict[str, object]:
    (row,) = fleet.client.query("sites", site=site)
    return row


def flood(fleet: ScriptedFleet, worker: ScriptedWorker, count: int, raw: bytes = b"{}") -> None:
    worker.face.report([raw] * count)


def test_a_flood_is_taken_in_shares_and_others_are_served_in_each_turn(
    fleet: ScriptedFleet, wild: ScriptedWorker
) -> None:
    calm = fleet.worker("calm.w1", site="calm")
    flood(fleet, wild, 250)
    task = fleet.submit()
    calm.finish(calm.claim())
    assert fleet.records.state(task) == "SUCCEEDED"
    assert int(str(shown(fleet, "wild")["inbox_turns_held_back"])) >= 3
    assert shown(fleet, "calm")["inbox_turns_held_back"] == 0


def test_a_flood_is_worked_off_with_time_and_nothing_of_it_is_skipped(
    fleet: ScriptedFleet, wild: ScriptedWorker
) -> None:
    flood(fleet, wild, 250)
    wild.send(Leaving(gone=False))
    fleet.step()
    assert fleet.records.worker("wild.w1") == "ACTIVE"
    for _ in range(60):
        fleet.clock.advance_ms(100)
        fleet.step()
    assert fleet.records.worker("wild.w1") == "DRAINING"
    assert shown(fleet, "wild")["inbox_held_back"] == 0
    assert fleet.face.sites.waiting(Readers(sites=("wild",)))["wild"].entries == 0


def test_what_was_held_back_is_taken_by_the_next_coordinator(fleet: ScriptedFleet, wild: ScriptedWorker) -> None:
    flood(fleet, wild, 40)
    wild.send(Leaving(gone=False))
    fleet.step()
    assert fleet.records.worker("wild.w1") == "ACTIVE"
    fleet.restart()
    fleet.step()
    assert fleet.records.worker("wild.w1") == "ACTIVE"  # in shares, as before
    fleet.step(2)
    assert fleet.records.worker("wild.w1") == "DRAINING"


def test_an_inbox_beyond_all_measure_is_cut_and_that_is_on_record_once(
    fleet: ScriptedFleet, wild: ScriptedWorker
) -> None:
    for _ in range(2):
        flood(fleet, wild, 1_000)
        fleet.live(2_000)
    (text,) = fleet.records.events("flooded")
    assert text.startswith("The inbox of wild had piled up")
    assert int(str(shown(fleet, "wild")["inbox_cut"])) > 1_000


def test_an_inbox_without_ids_left_is_made_anew(fleet: ScriptedFleet, wild: ScriptedWorker) -> None:
    fleet.server.add(Keys("main").inbox("wild"), b"{}", EntryId(2**64 - 1, 2**64 - 1))
    fleet.step()
    fleet.live(2_000)
    wild.report(Leaving(gone=False))
    assert fleet.records.worker("wild.w1") == "DRAINING"
    assert fleet.records.events("flooded") == ["The inbox of wild was made anew: an entry had left no ids for others."]


def test_a_site_registers_only_so_many_new_workers(fleet: ScriptedFleet, wild: ScriptedWorker) -> None:
    for number in range(8):
        fleet.worker(f"wild.n{number}", site="wild")
    rows = fleet.records.rows("SELECT COUNT(*) FROM worker WHERE site_id = 'wild'")
    assert rows == [(5,)]
    refused = [text for text in fleet.records.events("refused") if "quota" in text]
    assert refused == ["Site wild tells of more new workers than its quota allows: some are not answered."]
    fleet.worker("calm.w1", site="calm")
    assert fleet.records.worker("calm.w1") == "ACTIVE"


def test_a_copy_of_evidence_that_is_kept_counts_for_nothing_also_when_the_quota_is_used_up(
    fleet: ScriptedFleet, wild: ScriptedWorker
) -> None:
    calm = fleet.worker("calm.w1", site="calm")
    fleet.submit()
    hand = calm.claim()
    forged = wild.finished(hand)
    for _ in range(3):
        wild.report(forged)
    assert len(fleet.records.quarantined()) == 1
    assert not fleet.records.events("refused")
    assert shown(fleet, "wild")["evidence_not_kept"] == 0
    wild.report(forged.model_copy(update={"binding": hand.binding.model_copy(update={"nonce": "1" * 32})}))
    assert shown(fleet, "wild")["evidence_not_kept"] == 1


def test_a_site_leaves_only_so_much_evidence(fleet: ScriptedFleet, wild: ScriptedWorker) -> None:
    calm = fleet.worker("calm.w1", site="calm")
    fleet.submit()
    hand = calm.claim()
    for number in range(9):
        wild.report(
            wild.finished(hand).model_copy(
                update={"binding": hand.binding.model_copy(update={"nonce": f"{number}" * 32})}
            )
        )
    assert 0 < len(fleet.records.quarantined()) < 5
    assert any("quota of rejected results" in text for text in fleet.records.events("refused"))
