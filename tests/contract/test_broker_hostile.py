"""What a site writes where it may, and in what amounts, does not reach further than it should."""

import tracemalloc

import pytest

from tenure.broker.base import EntryId, LogKey, Readers
from tenure.broker.keys import DEFAULT_PERSON, ContentKeys
from tenure.errors import BrokerRefused, ReplyBeyondMeasure, StreamMissing
from tenure.protocol.message import MAX_ENTRY_BYTES
from tests.contract.conftest import ServerBench

LAB = Readers(sites=("lab",))
BOTH = Readers(sites=("lab",), people=(DEFAULT_PERSON,))
MEGABYTE = 1_000_000


def add(bench: ServerBench, *fields: str | bytes, count: int = 1) -> None:
    connection = bench.connect()
    for _ in range(count):
        connection.call("XADD", bench.keys.inbox("lab"), "*", *fields)


def test_of_entries_of_any_size_no_more_is_kept_than_one_may_have(server_bench: ServerBench) -> None:
    coordinator = server_bench.coordinator()
    coordinator.ensure_streams(readers=LAB)
    large = b"x" * (8 * MEGABYTE)
    add(server_bench, "m", large, count=8)
    add(server_bench, "other", large)
    add(server_bench, "m", b"{}", "more", large, "y", large)
    add(server_bench, large, b"{}")
    add(server_bench, "m", b"last")

    tracemalloc.start()
    found = coordinator.receive(readers=LAB, limit=64, block_ms=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 64 * 1024 * 1024 / 4
    assert all(MAX_ENTRY_BYTES < len(each.raw) < MAX_ENTRY_BYTES + 2_000 for each in found[:8])
    assert [each.raw for each in found[8:]] == [b"", b"{}", b"", b"last"]
    assert all(each.size > MAX_ENTRY_BYTES for each in found[:11])
    assert 5 <= found[11].size < 200


def test_an_entry_of_the_largest_size_is_received_whole(server_bench: ServerBench) -> None:
    coordinator = server_bench.coordinator()
    coordinator.ensure_streams(readers=LAB)
    add(server_bench, "m", b"x" * MAX_ENTRY_BYTES)
    (found,) = coordinator.receive(readers=LAB, limit=9, block_ms=0)
    assert found.raw == b"x" * MAX_ENTRY_BYTES


def test_of_an_entry_of_very_many_fields_few_are_kept_and_all_are_counted(server_bench: ServerBench) -> None:
    coordinator = server_bench.coordinator()
    coordinator.ensure_streams(readers=LAB)
    add(server_bench, "m", b"{}", *[""] * 9_000)
    (found,) = coordinator.receive(readers=LAB, limit=9, block_ms=0)
    assert found.raw == b"{}"
    assert found.size > 9_000 * 64


def test_an_inbox_that_is_beyond_all_measure_is_told_apart_and_is_of_use_again_when_it_was_emptied(
    server_bench: ServerBench,
) -> None:
    coordinator = server_bench.coordinator()
    coordinator.ensure_streams(readers=BOTH)
    add(server_bench, *["a"] * 20_000)

    with pytest.raises(ReplyBeyondMeasure, match="far more than any entry may hold"):
        coordinator.receive(readers=BOTH, limit=9, block_ms=0)
    server_bench.worker().report([b"lost with it"])
    with pytest.raises(ReplyBeyondMeasure):
        coordinator.unsettled(readers=LAB, limit=9)
    assert coordinator.sites.cut_inbox("lab", 0) == 2
    assert coordinator.unsettled(readers=LAB, limit=9) == []

    server_bench.worker().report([b"again"])
    assert [each.raw for each in coordinator.receive(readers=BOTH, limit=9, block_ms=0)] == [b"again"]


def ask(bench: ServerBench, person: str, *fields: str) -> None:
    bench.connect().call("XADD", bench.keys.rpc(person), "*", *fields)


def test_what_was_received_of_a_person_and_is_beyond_all_measure_is_dropped(server_bench: ServerBench) -> None:
    coordinator = server_bench.coordinator()
    eve = Readers((), ("eve",))
    coordinator.ensure_streams(readers=eve)
    ask(server_bench, "eve", *["a"] * 20_000)

    with pytest.raises(ReplyBeyondMeasure):
        coordinator.receive(readers=eve, limit=9, block_ms=0)
    ask(server_bench, "eve", "m", "after it")
    assert coordinator.sites.drop_requests("eve") == 1
    assert coordinator.sites.drop_requests("eve") == 0
    assert coordinator.unsettled(readers=eve, limit=9) == []
    assert [each.raw for each in coordinator.receive(readers=eve, limit=9, block_ms=0)] == [b"after it"]


def test_what_others_have_said_is_found_again_beside_a_request_that_is_beyond_all_measure(
    server_bench: ServerBench,
) -> None:
    """Or no coordinator would ever get past its start."""
    coordinator = server_bench.coordinator()
    everybody = Readers(("lab",), (DEFAULT_PERSON, "eve"))
    coordinator.ensure_streams(readers=everybody)
    add(server_bench, "m", b"a report")
    ask(server_bench, DEFAULT_PERSON, "m", "a request")
    ask(server_bench, "eve", *["a"] * 20_000)

    with pytest.raises(ReplyBeyondMeasure):
        coordinator.receive(readers=everybody, limit=9, block_ms=0)
    with pytest.raises(ReplyBeyondMeasure):
        coordinator.unsettled(readers=everybody, limit=9)
    alone = [coordinator.unsettled(readers=each, limit=9) for each in (LAB, Readers((), (DEFAULT_PERSON,)))]
    assert [[each.raw for each in found] for found in alone] == [[b"a report"], [b"a request"]]


def test_a_missing_inbox_is_missed_as_before(server_bench: ServerBench) -> None:
    with pytest.raises(StreamMissing):
        server_bench.coordinator().receive(readers=LAB, limit=9, block_ms=0)


def test_of_a_log_with_chunks_of_any_size_little_is_kept_of_each(server_bench: ServerBench) -> None:
    log = LogKey("lab", "0" * 26, 1)
    connection = server_bench.connect()
    for number in range(3):
        fields = ("s", 1, "p", number * MEGABYTE, "t", b"x" * MEGABYTE)
        connection.call("XADD", ContentKeys(server_bench.keys.namespace).log(log), "*", *fields)
    found = server_bench.client().printed(log, after=EntryId(0, 0), block_ms=0)
    assert [chunk.position for _, chunk in found] == [0, MEGABYTE, 2 * MEGABYTE]
    assert all(200_000 < len(chunk.text) < 300_000 for _, chunk in found)


def test_an_inbox_without_ids_left_takes_reports_again_once_it_was_made_anew(server_bench: ServerBench) -> None:
    coordinator = server_bench.coordinator()
    coordinator.ensure_streams(readers=LAB)
    server_bench.connect().call("XADD", server_bench.keys.inbox("lab"), f"{2**64 - 1}-{2**64 - 1}", "m", b"last")
    (last,) = coordinator.receive(readers=LAB, limit=9, block_ms=0)
    assert last.entry_id == EntryId(2**64 - 1, 2**64 - 1)
    with pytest.raises(BrokerRefused):
        server_bench.worker().report([b"too late"])
    coordinator.sites.forget_site("lab", (), ())
    coordinator.ensure_streams(readers=LAB)
    coordinator.settle([last])
    server_bench.worker().report([b"again"])
    (again,) = coordinator.receive(readers=LAB, limit=9, block_ms=0)
    assert again.raw == b"again"
