"""What tasks print and where the store is, as every implementation of the faces passes it on."""

import pytest

from tenure.broker.base import CoordinatorBroker, EntryId, LogChunk, LogKey
from tenure.broker.keys import ContentKeys
from tenure.errors import BrokerFull, BrokerUnreachable
from tests.contract.conftest import Bench, ServerBench

START = EntryId(0, 0)
LOG = LogKey("lab", "0" * 26, 7)
WEEK_S = 7 * 24 * 3_600


def chunk(position: int, text: str = "text\n", stream: int = 1) -> LogChunk:
    return LogChunk(stream, position, text)


def test_what_is_printed_is_read_in_order_and_unchanged(bench: Bench) -> None:
    printed = [chunk(0, "éa\n\x00\x1b[31m"), chunk(7, "🦀", stream=2), chunk(8, "gone", stream=0), chunk(12, "")]
    bench.worker().print(LOG, printed, keep=10)

    found = bench.client().printed(LOG, after=START, block_ms=0)

    assert [each for _, each in found] == printed
    assert sorted(at for at, _ in found) == [at for at, _ in found]


def test_reading_goes_on_from_where_the_reader_stands(bench: Bench) -> None:
    worker, client = bench.worker(), bench.client()
    worker.print(LOG, [chunk(0), chunk(5)], keep=10)
    last, _ = client.printed(LOG, after=START, block_ms=0)[-1]
    worker.print(LOG, [chunk(10)], keep=10)

    assert [each for _, each in client.printed(LOG, after=last, block_ms=0)] == [chunk(10)]
    assert len(client.printed(LOG, after=START, block_ms=0)) == 3


def test_exactly_the_newest_chunks_are_kept(bench: Bench) -> None:
    for position in range(0, 500, 5):
        bench.worker().print(LOG, [chunk(position)], keep=3)

    assert [each.position for _, each in bench.client().printed(LOG, after=START, block_ms=0)] == [485, 490, 495]


def test_each_attempt_of_each_site_has_a_log_of_its_own(bench: Bench) -> None:
    bench.worker().print(LOG, [chunk(0)], keep=3)

    for other in (LogKey("lab", "0" * 26, 8), LogKey("lab", "1" * 26, 7), LogKey("yard", "0" * 26, 7)):
        assert bench.client().printed(other, after=START, block_ms=0) == []


def test_nothing_to_print_makes_no_log(bench: Bench) -> None:
    bench.worker().print(LOG, [], keep=3)

    assert bench.client().printed(LOG, after=START, block_ms=0) == []


def test_a_text_that_no_wire_takes_keeps_its_length(server_bench: ServerBench) -> None:
    server_bench.worker().print(LOG, [chunk(0, "a\udc80b")], keep=3)

    assert [each.text for _, each in server_bench.client().printed(LOG, after=START, block_ms=0)] == ["a?b"]


def test_a_full_broker_refuses_what_is_printed(bench: Bench) -> None:
    worker = bench.worker()
    worker.print(LOG, [chunk(0)], keep=3)
    bench.fill()

    with pytest.raises(BrokerFull):
        worker.print(LOG, [chunk(5)], keep=3)
    bench.make_room()
    worker.print(LOG, [chunk(5)], keep=3)
    assert [each.position for _, each in bench.client().printed(LOG, after=START, block_ms=0)] == [0, 5]


def test_a_log_is_lost_with_the_data_and_begins_anew(bench: Bench) -> None:
    worker = bench.worker()
    worker.print(LOG, [chunk(0)], keep=3)
    bench.flush()

    assert bench.client().printed(LOG, after=START, block_ms=0) == []
    worker.print(LOG, [chunk(5)], keep=3)
    assert [each.position for _, each in bench.client().printed(LOG, after=START, block_ms=0)] == [5]


def test_a_log_expires_and_each_chunk_renews_it(server_bench: ServerBench) -> None:
    key, server = ContentKeys(server_bench.keys.namespace).log(LOG), server_bench.server
    server_bench.worker().print(LOG, [chunk(0)], keep=3)
    server.admin("EXPIRE", key, 10)
    server_bench.worker().print(LOG, [chunk(5)], keep=3)

    assert server.admin("TTL", key) in range(WEEK_S - 10, WEEK_S + 1)


@pytest.mark.parametrize(
    "fields",
    [
        ("x", "y"),
        ("s", "1", "p", "0"),
        ("s", "one", "p", "0", "t", ""),
        ("s", "1", "p", "9" * 4_300, "t", "text"),
        ("s", "1", "p", "9" * 4_301, "t", "text"),
        ("s", "1", "p", "-1", "t", "text"),
    ],
)
def test_what_no_worker_of_ours_wrote_is_left_out(server_bench: ServerBench, fields: tuple[str, ...]) -> None:
    key = ContentKeys(server_bench.keys.namespace).log(LOG)
    server_bench.server.admin("XADD", key, "1-1", *fields)
    assert server_bench.client().printed(LOG, after=START, block_ms=10) == []
    for number in range(250):
        server_bench.server.admin("XADD", key, f"1-{number + 2}", *fields)
    server_bench.worker().print(LOG, [chunk(0)], keep=300)

    assert [each for _, each in server_bench.client().printed(LOG, after=START, block_ms=0)] == [chunk(0)]


def test_where_the_store_is_is_seen_by_everyone_and_lost_with_the_data(bench: Bench, opened: CoordinatorBroker) -> None:
    def seen() -> set[str]:
        return {bench.worker().store_address(), bench.client().store_address()}

    assert seen() == {""}
    opened.mark("m1", "s3://bucket/é")
    assert seen() == {"s3://bucket/é"}
    opened.mark("m2")
    assert seen() == {""}
    opened.mark("m3", "broker:")
    assert opened.state().marker == "m3"
    bench.flush()
    assert seen() == {""}


def test_closed_faces_say_so(bench: Bench) -> None:
    worker, client = bench.worker(), bench.client()
    worker.close()
    client.close()

    for call in (
        lambda: worker.print(LOG, [chunk(0)], keep=1),
        worker.store_address,
        lambda: client.printed(LOG, after=START, block_ms=0),
        client.store_address,
    ):
        with pytest.raises(BrokerUnreachable, match="closed"):
            call()
