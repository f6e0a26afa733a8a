"""When a lease is over, to the millisecond, and what may not make it so."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.protocol.client_messages import Sweep
from tests.scripted_fleet import EXPIRY_MS, TTL_MS, ScriptedFleet
from tests.tripwire import Trip, Tripwire


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path) as fleet:
        yield fleet


def silent(fleet: ScriptedFleet) -> str:
    """A task whose worker falls silent now."""
    worker = fleet.worker()
    task = fleet.submit()
    worker.claim()
    worker.alive = False
    return task


def test_a_lease_lives_for_ttl_grace_and_margin_since_the_last_sign_of_life(fleet: ScriptedFleet) -> None:
    task = silent(fleet)
    fleet.live(EXPIRY_MS)
    assert fleet.records.state(task) == "RUNNING"


def test_a_lease_is_over_one_millisecond_later(fleet: ScriptedFleet) -> None:
    task = silent(fleet)
    fleet.live(EXPIRY_MS + 1)
    assert fleet.records.state(task) == "LOST"
    assert fleet.records.leases(task) == ["EXPIRED"]


def test_the_claim_itself_renews(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    fleet.live(7_000)
    worker.claim()
    worker.alive = False
    fleet.live(EXPIRY_MS)
    assert fleet.records.state(task) == "RUNNING"


def test_a_listed_lease_is_renewed_for_as_long_as_it_is_listed(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    worker.claim()
    fleet.live(10 * EXPIRY_MS)
    assert fleet.records.leases(task) == ["ACTIVE"]


def test_a_heartbeat_that_was_seen_before_renews_nothing(fleet: ScriptedFleet) -> None:
    """A dead worker's key, written back by a replica for example, keeps nobody alive."""
    worker = fleet.worker()
    task = fleet.submit()
    worker.claim()
    worker.beat()
    worker.alive = False
    fleet.live(1_000)
    for _ in range(EXPIRY_MS // 1_000 + 1):
        worker.beat(sequence=1)
        fleet.live(1_000)
    assert fleet.records.state(task) == "LOST"


def test_a_heartbeat_of_an_older_generation_renews_nothing(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    worker.claim()
    worker.generation = 2
    worker.hello()
    fleet.step()
    worker.generation = 1
    fleet.live(EXPIRY_MS + 1)
    assert fleet.records.state(task) == "LOST"


def test_a_jump_of_the_wall_clock_changes_nothing_about_expiry(fleet: ScriptedFleet) -> None:
    task = silent(fleet)
    fleet.clock.jump_wall_ms(600_000)
    fleet.live(EXPIRY_MS - 5_000)
    fleet.clock.jump_wall_ms(-1_200_000)
    fleet.live(5_000)
    assert fleet.records.state(task) == "RUNNING"
    fleet.live(1_000)
    assert fleet.records.state(task) == "LOST"


def test_a_coordinator_that_was_stopped_gives_every_lease_a_full_term(fleet: ScriptedFleet) -> None:
    task = silent(fleet)
    fleet.live(EXPIRY_MS)
    fleet.clock.advance_ms(3_600_000)
    fleet.step()
    fleet.live(EXPIRY_MS)
    assert fleet.records.state(task) == "RUNNING"
    fleet.live(1_000)
    assert fleet.records.state(task) == "LOST"


def test_a_stop_between_reading_heartbeats_and_judging_them_blames_nobody(fleet: ScriptedFleet) -> None:
    """The heartbeats that were written meanwhile have not been read."""
    pause = Trip(when="after", act=lambda: fleet.clock.advance_ms(60_000))
    fleet.face = Tripwire(fleet.broker.coordinator(), pause)
    fleet.restart()
    fleet.step()
    worker = fleet.worker()
    task = fleet.submit()
    worker.claim()
    fleet.clock.advance_ms(1_000)
    pause.calls.clear()
    pause.at = 2
    fleet.step()

    assert pause.calls[1] == "heartbeats"
    assert fleet.records.leases(task) == ["ACTIVE"]
    fleet.live(EXPIRY_MS)
    assert fleet.records.leases(task) == ["ACTIVE"]


def test_a_sweep_on_demand_never_expires_what_an_unread_heartbeat_may_renew(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    worker.claim()
    worker.alive = False
    fleet.live(EXPIRY_MS - 500)
    fleet.clock.advance_ms(999)
    worker.beat()
    reply = fleet.client.ask(Sweep())

    assert reply.rows == ({"expired": 0},)
    assert fleet.records.leases(task) == ["ACTIVE"]


def test_a_restart_gives_every_lease_a_full_term(fleet: ScriptedFleet) -> None:
    task = silent(fleet)
    fleet.live(EXPIRY_MS)
    fleet.restart()
    fleet.step()
    fleet.live(EXPIRY_MS)
    assert fleet.records.state(task) == "RUNNING"
    fleet.live(1_000)
    assert fleet.records.state(task) == "LOST"


def test_a_restarted_broker_gives_every_lease_a_full_term(fleet: ScriptedFleet) -> None:
    task = silent(fleet)
    fleet.live(EXPIRY_MS - 5_000)
    fleet.server.flush()
    with pytest.raises(Exception, match="lost"):
        fleet.step()
    fleet.step()
    fleet.live(EXPIRY_MS)
    assert fleet.records.state(task) == "RUNNING"
    fleet.live(1_000)
    assert fleet.records.state(task) == "LOST"


def test_an_offer_that_nobody_claimed_never_expires(fleet: ScriptedFleet) -> None:
    """Nobody has the right to run it, so nothing can have been lost."""
    fleet.worker()
    task = fleet.submit()
    fleet.live(10 * EXPIRY_MS)
    assert fleet.records.leases(task) == ["OFFERED"]


def test_a_worker_is_stale_after_its_own_ttl_and_active_again_when_it_is_heard(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    fleet.live(1_000)
    worker.alive = False
    fleet.live(TTL_MS)
    assert fleet.records.worker("w1") == "ACTIVE"
    fleet.live(1)
    fleet.live(1_000)
    assert fleet.records.worker("w1") == "STALE"
    worker.alive = True
    fleet.live(1_000)
    assert fleet.records.worker("w1") == "ACTIVE"
