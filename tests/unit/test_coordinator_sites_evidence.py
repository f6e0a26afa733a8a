"""Evidence of one site is kept beside what another one has forged in its name."""

from pathlib import Path

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
