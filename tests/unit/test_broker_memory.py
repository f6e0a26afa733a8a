"""What only the in-memory broker can do: be cut, restart, and lose its newest writes on request."""

import pytest

from tenure.broker.base import EntryId, Mailing
from tenure.broker.keys import Keys
from tenure.broker.memory import MemoryBroker
from tenure.broker.memory_store import MemoryStore
from tenure.errors import BrokerRefused, BrokerUnreachable, StreamMissing
from tenure.testing import ManualClock
from tests.broker_names import CPU, OWN, READERS, W1

START = EntryId(0, 0)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(ManualClock(), remembered_writes=100)


@pytest.fixture
def broker(store: MemoryStore) -> MemoryBroker:
    found = MemoryBroker(store, Keys("main"))
    found.coordinator().ensure_streams(readers=READERS, assignments=[CPU, OWN])
    return found


def received(broker: MemoryBroker) -> list[bytes]:
    return [d.raw for d in broker.coordinator().receive(readers=READERS, limit=9, block_ms=0)]


def unsettled(broker: MemoryBroker) -> list[bytes]:
    return [d.raw for d in broker.coordinator().unsettled(readers=READERS, limit=9)]


@pytest.mark.parametrize(
    ("last", "following"),
    [
        (EntryId(2**64 - 1, 7), EntryId(2**64 - 1, 8)),
        (EntryId(2**64 - 2, 2**64 - 1), EntryId(2**64 - 1, 0)),
    ],
)
def test_an_id_follows_the_last_one_whatever_the_clock_says(
    store: MemoryStore, broker: MemoryBroker, last: EntryId, following: EntryId
) -> None:
    store.add(broker.keys.inbox("lab"), b"last", last)
    broker.worker(site="lab", worker_id="w1").report([b"next"])
    assert [d.entry_id for d in broker.coordinator().receive(readers=READERS, limit=9, block_ms=0)] == [last, following]


def test_a_stream_without_ids_left_takes_nothing(store: MemoryStore, broker: MemoryBroker) -> None:
    store.add(broker.keys.inbox("lab"), b"last", EntryId(2**64 - 1, 2**64 - 1))
    with pytest.raises(BrokerRefused):
        broker.worker(site="lab", worker_id="w1").report([b"next"])


def test_a_broker_that_is_down_answers_nobody(store: MemoryStore, broker: MemoryBroker) -> None:
    worker, client = broker.worker(site="lab", worker_id="w1"), broker.client(client_id="c1")
    store.down = True

    for call in (
        broker.coordinator().state,
        lambda: received(broker),
        lambda: worker.take(capabilities=["cpu"], limit=1, block_ms=0),
        lambda: worker.beat(b"alive", 1_000),
        worker.marker,
        lambda: client.ask(b"question"),
        lambda: client.answers(after=START, block_ms=0),
    ):
        with pytest.raises(BrokerUnreachable):
            call()
    client.close()
    store.down = False
    worker.beat(b"alive", 1_000)


def test_a_restart_keeps_the_data_and_changes_the_run(store: MemoryStore, broker: MemoryBroker) -> None:
    coordinator = broker.coordinator()
    coordinator.mark("m1")
    before = coordinator.state()
    store.restart()

    assert coordinator.state().marker == "m1"
    assert coordinator.state().run_id != before.run_id


def test_the_newest_writes_can_be_lost(store: MemoryStore, broker: MemoryBroker) -> None:
    worker = broker.worker(site="lab", worker_id="w1")
    worker.report([b"one", b"two"])
    worker.beat(b"alive", 1_000)

    store.lose_newest(2)

    assert received(broker) == [b"one"]
    assert broker.coordinator().sites.heartbeats([W1]) == [None]


def test_lost_deliveries_and_settlements_come_back(store: MemoryStore, broker: MemoryBroker) -> None:
    broker.worker(site="lab", worker_id="w1").report([b"one"])
    (found,) = broker.coordinator().receive(readers=READERS, limit=9, block_ms=0)
    broker.coordinator().settle([found])

    store.lose_newest(1)
    assert unsettled(broker) == [b"one"]
    store.lose_newest(1)
    assert unsettled(broker) == []
    assert received(broker) == [b"one"]


def test_a_read_that_finds_nothing_is_no_write(store: MemoryStore, broker: MemoryBroker) -> None:
    broker.worker(site="lab", worker_id="w1").report([b"one"])
    received(broker)
    received(broker)
    store.lose_newest(1)

    assert received(broker) == [b"one"]


def test_all_writes_can_be_lost_down_to_nothing(store: MemoryStore, broker: MemoryBroker) -> None:
    store.lose_newest(1_000)

    with pytest.raises(StreamMissing):
        received(broker)


def test_ids_follow_the_clock_and_never_repeat(store: MemoryStore, broker: MemoryBroker) -> None:
    broker.coordinator().post([Mailing(b"a", W1), Mailing(b"b", W1)], {}, 1_000)

    first, second = broker.worker(site="lab", worker_id="w1").orders(after=START, block_ms=0)

    assert first.entry_id == EntryId(ManualClock().now_ms(), 0)
    assert second.entry_id == EntryId(ManualClock().now_ms(), 1)
