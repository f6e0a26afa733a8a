"""What belongs to a site is seen, bounded and forgotten by its name alone, with every implementation of the faces."""

from collections.abc import Callable

import pytest

from tenure.broker.base import (
    Backlog,
    CoordinatorBroker,
    EntryId,
    Mailing,
    Publication,
    Readers,
    Stream,
    WorkerAddress,
)
from tenure.errors import StreamMissing
from tests.broker_names import CPU, OWN, READERS, W1, W2
from tests.contract.conftest import Bench

Make = Callable[..., Publication]
START = EntryId(0, 0)


def entries(coordinator: CoordinatorBroker, readers: Readers) -> dict[str, int]:
    return {site: backlog.entries for site, backlog in coordinator.sites.waiting(readers).items()}


def test_what_waits_in_each_sites_inbox_is_counted_until_it_is_settled(bench: Bench, opened: CoordinatorBroker) -> None:
    bench.worker().report([b"one", b"two", b"three"])
    received = opened.receive(readers=READERS, limit=1, block_ms=0)
    readers = Readers(("lab", "elsewhere"), READERS.people)

    assert entries(opened, readers) == {"lab": 3, "elsewhere": 0}
    assert opened.sites.waiting(Readers((), READERS.people)) == {}
    opened.settle(received)
    assert entries(opened, readers) == {"lab": 2, "elsewhere": 0}


def test_an_inbox_weighs_what_lies_in_it_however_unlike_its_entries_are(
    bench: Bench, opened: CoordinatorBroker
) -> None:
    readers = Readers(("lab", "elsewhere"))
    bench.worker().report([b"small"] * 100)
    before = opened.sites.waiting(readers)["lab"].size
    bench.worker().report([b"x" * 700_000, *[b"small"] * 100])
    backlogs = opened.sites.waiting(readers)

    assert 0 < before < 100_000
    assert 700_000 < backlogs["lab"].size < 1_000_000
    assert backlogs["elsewhere"] == Backlog()


def test_of_a_heartbeat_no_more_is_read_than_is_asked_for(bench: Bench, opened: CoordinatorBroker) -> None:
    for name, beat in (("w1", b"x" * 700_000), ("w2", b"y" * 20)):
        bench.worker(name).beat(beat, 60_000)
    addresses = [W1, W2, WorkerAddress("lab", "w3")]

    assert opened.sites.heartbeat_sizes(addresses) == [700_000, 20, 0]
    assert opened.sites.heartbeat_sizes([]) == []
    assert opened.sites.heartbeats(addresses) == [b"x" * 700_000, b"y" * 20, None]
    assert opened.sites.heartbeats(addresses, {W1: 10, W2: 40, addresses[2]: 9}) == [b"x" * 10, b"y" * 20, None]
    assert opened.sites.heartbeats(addresses, {W1: 0}) == [None, b"y" * 20, None]


def test_the_oldest_of_an_inbox_can_be_cut_off(bench: Bench, opened: CoordinatorBroker) -> None:
    """Also what was received: it is settled or not, and never seen again."""
    bench.worker().report([b"one", b"two", b"three", b"four"])
    received = opened.receive(readers=READERS, limit=1, block_ms=0)

    assert opened.sites.cut_inbox("lab", 2) == 2
    assert opened.sites.cut_inbox("lab", 2) == 0
    assert opened.sites.cut_inbox("elsewhere", 2) == 0
    assert opened.unsettled(readers=READERS, limit=9) == []
    opened.settle(received)
    assert [d.raw for d in opened.receive(readers=READERS, limit=9, block_ms=0)] == [b"three", b"four"]
    bench.worker().report([b"five"])
    assert opened.sites.cut_inbox("lab", 0) == 3


def test_nothing_is_left_of_a_site_that_is_forgotten(bench: Bench, opened: CoordinatorBroker, make: Make) -> None:
    other = Stream("yard", "cpu")
    opened.ensure_streams(readers=Readers(("yard",)), assignments=[other, Stream("yard", worker_id="w1")])
    opened.publish([make(1), make(2, worker_id="w1"), Publication(EntryId(1, 3), make(3).assignment, other)])
    for site in ("lab", "yard"):
        bench.worker(site=site).report([b"one"])
        bench.worker(site=site).beat(b"alive", 60_000)
    there = WorkerAddress("yard", "w1")
    opened.post([Mailing(b"a", W1), Mailing(b"b", there)], {W1: "1:1:1", there: "1:1:1"}, 60_000)

    opened.sites.forget_site("lab", ["w1", "w2"], ["cpu", "gpu"])

    assert [opened.published(stream) for stream in (CPU, OWN, other)] == [START, START, EntryId(1, 3)]
    assert opened.sites.heartbeats([W1, there]) == [None, b"alive"]
    assert entries(opened, Readers(("lab", "yard"))) == {"lab": 0, "yard": 1}
    gone, left = bench.worker(), bench.worker(site="yard")
    assert [len(worker.orders(after=START, block_ms=0)) for worker in (gone, left)] == [0, 1]
    assert [worker.beat(b"alive", 60_000) for worker in (gone, left)] == ["", "1:1:1"]
    with pytest.raises(StreamMissing):
        gone.report([b"two"])


def test_no_site_sees_anything_of_another_ones_worker_of_the_same_name(
    bench: Bench, opened: CoordinatorBroker, make: Make
) -> None:
    opened.ensure_streams(
        readers=Readers(("yard",)), assignments=[Stream("yard", "cpu"), Stream("yard", worker_id="w1")]
    )
    opened.publish([make(1), make(2, worker_id="w1")])
    opened.post([Mailing(b"a", W1)], {W1: "1:1:1"}, 60_000)
    namesake = bench.worker(site="yard")

    assert namesake.take(capabilities=["cpu"], limit=9, block_ms=0) == []
    assert namesake.orders(after=START, block_ms=0) == []
    assert namesake.beat(b"alive", 60_000) == ""
    assert opened.sites.heartbeats([W1]) == [None]
    assert len(bench.worker().take(capabilities=["cpu"], limit=9, block_ms=0)) == 2
