"""What a site writes where it may, and in what amounts, does not reach further than it should."""

from tenure.broker.base import EntryId, Readers, WorkerAddress
from tenure.protocol.message import MAX_ENTRY_BYTES
from tests.contract.conftest import ServerBench

LARGE = WorkerAddress("lab", "lab.large")
SMALL = WorkerAddress("lab", "lab.small")
PLAIN = WorkerAddress("default", "w1")
LAB = Readers(sites=("lab",))


def test_of_a_heartbeat_no_more_is_read_than_one_may_have(server_bench: ServerBench) -> None:
    beats = {LARGE: b"x" * (MAX_ENTRY_BYTES + 1_000), SMALL: b"small", PLAIN: b"plain"}
    for address, beat in beats.items():
        server_bench.connect().call("SET", server_bench.keys.heartbeat(address), beat)
    absent = WorkerAddress("lab", "lab.absent")
    found = server_bench.coordinator().sites.heartbeats([PLAIN, LARGE, absent, SMALL])
    assert [len(beat) if beat is not None else None for beat in found] == [5, MAX_ENTRY_BYTES + 1, None, 5]


def test_an_inbox_without_ids_left_takes_reports_again_once_it_was_made_anew(server_bench: ServerBench) -> None:
    coordinator = server_bench.coordinator()
    coordinator.ensure_streams(readers=LAB)
    server_bench.connect().call("XADD", server_bench.keys.inbox("lab"), f"{2**64 - 1}-{2**64 - 1}", "m", b"last")
    (last,) = coordinator.receive(readers=LAB, limit=9, block_ms=0)
    assert last.entry_id == EntryId(2**64 - 1, 2**64 - 1)
    coordinator.sites.forget_site("lab", (), ())
    coordinator.ensure_streams(readers=LAB)
    coordinator.settle([last])
    server_bench.worker().report([b"again"])
    (again,) = coordinator.receive(readers=LAB, limit=9, block_ms=0)
    assert again.raw == b"again"
