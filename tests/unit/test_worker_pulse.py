"""The pulse: how long a heartbeat can be read."""

from tenure.broker.keys import Keys
from tenure.broker.memory import MemoryBroker
from tenure.broker.memory_store import MemoryStore
from tenure.protocol.timing import expiry_ms
from tenure.testing import ManualClock
from tenure.workers.desk import Desk
from tenure.workers.freight import StoreAddress
from tenure.workers.pulse import Pulse
from tests.broker_names import W1
from tests.fixtures_worker_core import Core

TTL_MS = 1_000


def test_a_heartbeat_can_be_read_for_as_long_as_a_coordinator_waits_for_the_next() -> None:
    """Else one that has looked just before and looks again just in time replaces a worker that renewed in between."""
    clock = ManualClock()
    broker = MemoryBroker(MemoryStore(clock), Keys("main"))
    worker = broker.worker(site="lab", worker_id="w1")
    pulse = Pulse(TTL_MS, Desk(Core(ttl_ms=TTL_MS).claims, clock, lambda: None), clock, lambda: None, StoreAddress())
    pulse.turn(worker)

    clock.advance_ms(expiry_ms(TTL_MS) - 1)
    assert broker.coordinator().sites.heartbeats([W1]) != [None]
    clock.advance_ms(1)
    assert broker.coordinator().sites.heartbeats([W1]) == [None]
