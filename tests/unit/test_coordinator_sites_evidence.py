"""Evidence of one site is kept beside what another one has forged in its name, and beside its own repeats."""

from pathlib import Path

from tenure.coordinator.quotas import SiteQuotas
from tenure.protocol.principal_messages import IssueSite
from tests.scripted_fleet import EXPIRY_MS, ScriptedFleet


def test_a_forgery_of_another_site_takes_the_place_of_no_true_result(tmp_path: Path) -> None:
    with ScriptedFleet(tmp_path) as fleet:
        for number, site in enumerate(("north", "south")):
            fleet.client.ask(IssueSite(site=site, capabilities=("cpu",), secret_digest=f"{number}" * 64))
        worker = fleet.worker("north.w1", site="north")
        fleet.submit()
        hand = worker.claim()
        worker.alive = False
        fleet.live(EXPIRY_MS + 2_000)
        liar = fleet.worker("south.w1", site="south")
        liar.worker_id = "north.w1"  # it speaks for another site's worker, over its own inbox
        liar.report(liar.finished(hand, "666"))
        worker.finish(hand, "7")

        rows = fleet.records.rows("SELECT site_id, reason FROM quarantine ORDER BY quarantine_id")
        assert rows == [("south", "wrong_site"), ("north", "lease_expired")]


def test_the_same_late_result_again_leaves_room_for_others(tmp_path: Path) -> None:
    with ScriptedFleet(tmp_path, site_quotas=SiteQuotas(evidence_bytes_per_day=4_000)) as fleet:
        fleet.client.ask(IssueSite(site="north", capabilities=("cpu",), secret_digest="1" * 64))
        worker = fleet.worker("north.w1", site="north", slots=2)
        fleet.submit()
        fleet.submit()
        hands = [worker.claim(hand) for hand in worker.take()]
        worker.alive = False
        fleet.live(EXPIRY_MS + 2_000)
        for hand, times in zip(hands, (9, 1), strict=True):
            for _ in range(times):
                worker.finish(hand, "7")

        rows = fleet.records.rows("SELECT task_id FROM quarantine ORDER BY task_id")
        assert rows == [(task,) for task in sorted(hand.ticket.task_id for hand in hands)]
        assert fleet.records.events("refused") == []
