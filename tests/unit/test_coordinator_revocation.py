"""A site is thrown out: what it held, what it says from then on, and when somebody else may go on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.broker.base import Stream, WorkerAddress
from tenure.protocol.cancellation_messages import CancelMany
from tenure.protocol.client_messages import Adopt
from tenure.protocol.control_messages import Drain, Stop
from tenure.protocol.envelope import Retry
from tenure.protocol.principal_messages import IssueSite, Revoke
from tenure.protocol.worker_messages import Leaving
from tests.scripted_fleet import EXPIRY_MS, ScriptedFleet, ScriptedWorker

SOON_MS = 2_000
"""After this a revoked site is forgotten."""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path) as fleet:
        ask = IssueSite(site="north", capabilities=("cpu",), secret_digest="a" * 64)
        assert fleet.client.ask(ask).refusal is None
        yield fleet


def at_north(fleet: ScriptedFleet, **hello: Any) -> ScriptedWorker:
    return fleet.worker("north.w1", site="north", **hello)


def revoke(fleet: ScriptedFleet) -> int:
    """How many leases it took away."""
    reply = fleet.client.ask(Revoke(holder="site", name="north", reason="it was sold"))
    assert reply.refusal is None
    return int(reply.rows[0]["released"])


def ends(fleet: ScriptedFleet, task: str) -> list[tuple[str, str]]:
    """State and cause of each lease."""
    sql = "SELECT state, COALESCE(cause, '') FROM lease WHERE task_id = ? ORDER BY fence"
    return [(str(state), str(cause)) for state, cause in fleet.records.rows(sql, task)]


def test_what_was_running_is_lost_and_waits_for_a_decision(fleet: ScriptedFleet) -> None:
    worker = at_north(fleet)
    task = fleet.submit()
    hand = worker.claim()
    assert revoke(fleet) == 1

    assert ends(fleet, task) == [("RELEASED", "site_revoked")]
    assert fleet.records.state(task) == "LOST"
    assert fleet.records.directives(task) == [("PENDING", "site_revoked", "")]
    assert fleet.records.worker("north.w1") == "OFFLINE"
    told = worker.read()
    assert [order.fence for order in told if isinstance(order, Stop)] == [hand.ticket.fence]
    assert any(isinstance(order, Drain) for order in told)


def test_a_retry_waits_until_whoever_hears_of_nothing_has_stopped(fleet: ScriptedFleet) -> None:
    worker = at_north(fleet)
    task = fleet.submit(retry=Retry(lost=1))
    worker.claim()
    revoke(fleet)
    worker.alive = False
    other = fleet.worker()
    fleet.live(EXPIRY_MS - 1_000)
    assert other.take() == []
    fleet.live(2_000)

    assert [hand.ticket.attempt for hand in other.take()] == [2]
    assert [row[:2] for row in fleet.records.directives(task)] == [("APPROVED", "site_revoked")]


def test_a_person_who_allows_the_next_attempt_waits_as_well(fleet: ScriptedFleet) -> None:
    worker = at_north(fleet)
    task = fleet.submit()
    worker.claim()
    revoke(fleet)
    worker.alive = False
    other = fleet.worker()
    fleet.client.decide(task, approve=True)
    fleet.live(EXPIRY_MS - 1_000)
    assert other.take() == []
    fleet.live(2_000)

    assert len(other.take()) == 1


def test_an_offer_that_nobody_was_granted_goes_elsewhere_at_once(fleet: ScriptedFleet) -> None:
    worker = at_north(fleet)
    task = fleet.submit()
    assert len(worker.take()) == 1
    other = fleet.worker()
    revoke(fleet)

    assert [hand.ticket.attempt for hand in other.take()] == [1]
    assert ends(fleet, task) == [("RELEASED", "site_revoked"), ("OFFERED", "")]
    assert fleet.records.directives(task) == []


def test_an_offer_that_starts_on_its_claim_may_be_running(fleet: ScriptedFleet) -> None:
    worker = at_north(fleet)
    task = fleet.submit(start="claimed", retry=Retry(lost=1))
    assert len(worker.take()) == 1
    other = fleet.worker()
    revoke(fleet)
    fleet.live(EXPIRY_MS - 1_000)
    assert other.take() == []
    fleet.live(2_000)

    assert [hand.ticket.attempt for hand in other.take()] == [2]
    assert ends(fleet, task)[0] == ("RELEASED", "site_revoked")


def test_what_is_being_cancelled_there_is_over_when_its_lease_is(fleet: ScriptedFleet) -> None:
    worker = at_north(fleet)
    task = fleet.submit()
    hand = worker.claim()
    fleet.client.cancel(task)
    revoke(fleet)
    worker.alive = False
    assert fleet.records.state(task) == "CANCELLING"
    worker.finish(hand, "7")
    assert fleet.records.state(task) == "CANCELLING"
    fleet.live(EXPIRY_MS + 3_000)

    assert fleet.records.state(task) == "CANCELLED"
    assert fleet.records.result(task) is None


@pytest.mark.parametrize("lost", [0, 1], ids=["held", "queued again"])
@pytest.mark.parametrize("start", ["granted", "claimed"])
def test_cancelled_is_not_said_while_the_site_may_run_it(fleet: ScriptedFleet, lost: int, start: Any) -> None:
    worker = at_north(fleet)
    task = fleet.submit(retry=Retry(lost=lost), start=start)
    worker.claim()
    revoke(fleet)
    worker.alive = False
    assert fleet.records.state(task) == ("QUEUED" if lost else "LOST")
    fleet.live(2_000)

    assert fleet.client.cancel(task).rows[0]["state"] == "CANCELLING"
    assert "its site was revoked" in fleet.client.explain(task)[-1]
    assert fleet.client.cancel(task).rows[0]["state"] == "CANCELLING"
    fleet.live(EXPIRY_MS - 3_000)
    assert fleet.records.state(task) == "CANCELLING"
    assert "CANCELLED" not in {str(done.state) for done in fleet.client.read()}
    fleet.live(3_000)

    assert fleet.records.state(task) == "CANCELLED"
    assert "would have run out by now" in fleet.client.explain(task)[-2]
    assert str(fleet.client.read()[-1].state) == "CANCELLED"


def test_a_coordinator_that_begins_waits_a_full_term_for_it(fleet: ScriptedFleet) -> None:
    worker = at_north(fleet)
    tasks = [fleet.submit(), fleet.submit()]
    worker.window = 2
    worker.beat()
    fleet.live(1_000)
    worker.claim()
    worker.alive = False
    revoke(fleet)
    lost = next(task for task in tasks if fleet.records.state(task) == "LOST")
    fleet.restart()
    fleet.live(5_000)
    assert fleet.client.cancel(lost).rows[0]["state"] == "CANCELLING"
    fleet.restart()
    fleet.live(EXPIRY_MS - 1_000)
    assert fleet.records.state(lost) == "CANCELLING"
    fleet.live(3_000)

    assert fleet.records.state(lost) == "CANCELLED"


def test_long_after_the_revocation_a_cancel_needs_no_more_time(fleet: ScriptedFleet) -> None:
    worker = at_north(fleet)
    task = fleet.submit()
    worker.claim()
    worker.alive = False
    revoke(fleet)
    fleet.live(EXPIRY_MS + 2_000)

    assert fleet.client.cancel(task).rows[0]["state"] == "CANCELLED"
    assert "its lease was over already" in fleet.client.explain(task)[-2]


def test_a_request_to_cancel_many_waits_for_what_a_revoked_site_may_run(fleet: ScriptedFleet) -> None:
    worker = at_north(fleet)
    task = fleet.submit(retry=Retry(lost=1))
    worker.claim()
    worker.alive = False
    revoke(fleet)
    waiting = fleet.submit()
    fleet.client.ask(CancelMany(run="r1", reason="wrong grid"))
    fleet.live(2_000)

    assert (fleet.records.state(task), fleet.records.state(waiting)) == ("CANCELLING", "CANCELLED")
    ((cancelled, stopping),) = fleet.records.rows("SELECT cancelled, stopping FROM cancellation")
    assert (cancelled, stopping) == (1, 1)
    fleet.live(EXPIRY_MS)
    assert fleet.records.state(task) == "CANCELLED"


def test_a_result_of_a_revoked_site_is_evidence_that_nobody_can_adopt(fleet: ScriptedFleet) -> None:
    worker = at_north(fleet)
    task = fleet.submit()
    hand = worker.claim()
    revoke(fleet)
    worker.finish(hand, "7")

    assert fleet.records.quarantined() == ["site_revoked"]
    ((quarantined,),) = fleet.records.rows("SELECT quarantine_id FROM quarantine")
    refusal = fleet.client.ask(Adopt(quarantine_id=str(quarantined))).refusal
    assert refusal is not None
    assert "site_revoked" in refusal.message
    assert fleet.records.state(task) == "LOST"


def test_a_revoked_site_cannot_come_back_under_its_name(fleet: ScriptedFleet) -> None:
    worker = at_north(fleet)
    revoke(fleet)
    worker.generation = 2
    worker.hello()
    worker.send(Leaving(gone=False))
    fleet.step()

    assert fleet.records.worker("north.w1") == "OFFLINE"
    assert any("site_revoked" in text for text in fleet.records.events("refused"))
    fleet.worker("north.w2")
    assert fleet.records.rows("SELECT 1 FROM worker WHERE worker_id = 'north.w2'") == []


def test_nothing_is_left_of_it_at_the_broker(fleet: ScriptedFleet) -> None:
    worker = at_north(fleet)
    fleet.submit()
    worker.claim()
    revoke(fleet)
    worker.alive = False
    keys, address = fleet.broker.keys, WorkerAddress("north", "north.w1")
    streams = [keys.inbox("north"), keys.control(address)]
    streams += [keys.assignments(Stream("north", "cpu")), keys.assignments(Stream("north", "", "north.w1"))]
    assert fleet.server.stream(keys.control(address)) is not None  # so that it hears that it is to stop
    fleet.live(SOON_MS + 2_000)

    assert [fleet.server.stream(key) for key in streams] == [None] * 4
    assert fleet.broker.coordinator().sites.heartbeats([address]) == [None]


def test_a_coordinator_that_ended_meanwhile_clears_it_up_later(fleet: ScriptedFleet) -> None:
    at_north(fleet).alive = False
    revoke(fleet)
    fleet.restart()
    fleet.live(3_000)

    assert fleet.server.stream(fleet.broker.keys.inbox("north")) is None


def test_asked_again_it_clears_what_has_come_since(fleet: ScriptedFleet) -> None:
    worker = at_north(fleet)
    revoke(fleet)
    worker.alive = False
    fleet.live(SOON_MS + 2_000)
    fleet.server.make_stream(fleet.broker.keys.inbox("north"))
    assert revoke(fleet) == 0
    fleet.live(SOON_MS + 2_000)

    assert fleet.server.stream(fleet.broker.keys.inbox("north")) is None
    assert len(fleet.records.events("site_revoked")) == 1
