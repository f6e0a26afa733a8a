"""What only the store at the broker has: limits, expiry, and copies that outlive the broker."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tenure.artifacts import broker as broker_store
from tenure.artifacts.base import Place, Store
from tenure.artifacts.broker_logs import BrokerLogs
from tenure.artifacts.copies import CopiedStore, restore
from tenure.artifacts.folder import FolderStore
from tenure.artifacts.opening import open_store
from tenure.broker.base import LogChunk, LogKey
from tenure.broker.keys import ContentKeys, Keys
from tenure.broker.redis_worker import RedisWorker
from tenure.broker.url import BrokerUrl
from tenure.errors import ArtifactStoreFull, ArtifactStoreUnreachable, UnknownArtifact
from tenure.protocol.artifact import Blob
from tenure.testing import SeededEntropy
from tests.fixtures_artifacts import LATER, PLACE, blob_of, cut, noise
from tests.servers import Server

RAW = noise(700_000)


@pytest.fixture
def server(own_server: Callable[..., Server]) -> Server:
    return own_server()


@pytest.fixture
def front(server: Server) -> Iterator[Store]:
    store = open_store("broker:", {}, BrokerUrl(server.url), "main")
    yield store
    store.close()


@pytest.fixture
def copied(front: Store, tmp_path: Path) -> CopiedStore:
    return CopiedStore(front, FolderStore(tmp_path))


def staged(store: Store, raw: bytes) -> Blob:
    store.stage(PLACE, blob_of(raw), 0, cut(raw))
    return blob_of(raw)


def test_a_content_that_is_too_large_is_refused_and_the_remedy_named(front: Store) -> None:
    blob = Blob(digest="0" * 64, size=broker_store.MAX_CONTENT_BYTES + 1)
    with pytest.raises(ArtifactStoreFull, match="--artifacts"):
        front.stage(PLACE, blob, 0, iter([]))


def test_all_contents_together_have_a_limit(server: Server) -> None:
    keys = ContentKeys("main")
    stores = [
        broker_store.BrokerStore(BrokerUrl(server.url), keys, SeededEntropy(), total_bytes=1_000_000) for _ in "ab"
    ]
    stores[0].promote(PLACE, staged(stores[0], noise(600_000)))
    staged(stores[1], noise(400_000))
    with pytest.raises(ArtifactStoreFull, match="1000000"):
        staged(stores[1], b"x")
    with pytest.raises(ArtifactStoreFull):
        staged(stores[0], noise(400_001))
    stores[0].discard(PLACE)
    staged(stores[1], b"x")
    for store in stores:
        store.close()


def test_a_server_without_memory_is_full(front: Store, server: Server) -> None:
    server.admin("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(ArtifactStoreFull, match="memory limit"):
        staged(front, RAW)


def test_a_server_that_is_gone_is_unreachable(front: Store, server: Server) -> None:
    server.stop()
    with pytest.raises(ArtifactStoreUnreachable):
        front.has(blob_of(RAW))


def test_what_is_staged_expires_and_an_object_does_not_for_a_lifetime(front: Store, server: Server) -> None:
    day_ms = 24 * 3_600_000
    blob = staged(front, RAW)
    key = ContentKeys("main").staged(f"{PLACE.site}:{PLACE.task_id}:{PLACE.fence}:{PLACE.nonce}", blob.digest)
    left_ms = server.admin("PTTL", key)
    assert isinstance(left_ms, int)
    assert 34 * day_ms < left_ms <= 35 * day_ms
    front.promote(PLACE, blob)
    left_ms = server.admin("PTTL", ContentKeys("main").stored(blob.digest))
    assert isinstance(left_ms, int)
    assert left_ms > 36_000 * day_ms
    assert server.admin("EXISTS", key) == 0
    assert server.admin("DBSIZE") == 1


def test_namespaces_do_not_see_each_other(front: Store, server: Server) -> None:
    blob = staged(front, RAW)
    front.promote(PLACE, blob)
    other = open_store("broker:", {}, BrokerUrl(server.url), "mainly")
    assert not other.has(blob)
    assert list(other.objects()) == []
    other.close()


def test_losing_all_of_the_broker_loses_no_object(front: Store, copied: CopiedStore, server: Server) -> None:
    blob = staged(front, RAW)
    copied.promote(PLACE, blob)
    server.admin("FLUSHALL")
    assert not front.has(blob)
    assert b"".join(copied.read(blob)) == RAW
    assert copied.has(blob)
    assert b"".join(front.read(blob)) == RAW


def test_everything_is_put_back_in_one_go(front: Store, copied: CopiedStore, server: Server, tmp_path: Path) -> None:
    blobs = [staged(front, noise(size)) for size in (0, 10, 300_000)]
    for blob in blobs:
        copied.promote(PLACE, blob)
    server.admin("FLUSHALL")
    assert restore(front, FolderStore(tmp_path)) == 3
    assert {stored.blob.digest for stored in front.objects()} == {blob.digest for blob in blobs}
    assert restore(front, FolderStore(tmp_path)) == 0
    assert [b"".join(front.read(blob)) for blob in blobs] == [noise(0), noise(10), noise(300_000)]


def test_what_a_client_has_put_there_gets_its_copy(front: Store, server: Server, tmp_path: Path) -> None:
    blob = staged(front, RAW)
    front.promote(PLACE, blob)
    assert restore(front, FolderStore(tmp_path)) == 1
    server.admin("FLUSHALL")
    assert b"".join(FolderStore(tmp_path).read(blob)) == RAW


def test_what_was_verified_survives_the_broker(front: Store, copied: CopiedStore, server: Server) -> None:
    """Between acceptance and promotion the staged content may be lost: by then it was read, and so copied."""
    blob = staged(front, RAW)
    assert b"".join(copied.read_staged(PLACE, blob)) == RAW
    server.admin("FLUSHALL")
    copied.promote(PLACE, blob)
    assert b"".join(front.read(blob)) == RAW
    assert b"".join(copied.read(blob)) == RAW


def test_what_was_never_read_is_lost_with_the_broker(front: Store, copied: CopiedStore, server: Server) -> None:
    blob = staged(front, RAW)
    server.admin("FLUSHALL")
    with pytest.raises(UnknownArtifact):
        b"".join(copied.read_staged(PLACE, blob))
    with pytest.raises(UnknownArtifact):
        copied.promote(PLACE, blob)
    assert list(copied.objects()) == []


def test_both_halves_are_listed_discarded_and_removed(front: Store, copied: CopiedStore) -> None:
    blob = staged(front, RAW)
    front.stage(LATER, blob, 0, cut(RAW))
    b"".join(copied.read_staged(PLACE, blob))
    assert sorted(staged.place for staged in copied.places()) == [PLACE, LATER]
    copied.promote(PLACE, blob)
    copied.discard(PLACE)
    copied.discard(LATER)
    assert list(copied.places()) == []
    assert [stored.blob for stored in copied.objects()] == [blob]
    copied.remove(blob.digest)
    assert list(copied.objects()) == []
    assert not front.has(blob)


def test_many_may_bring_the_same_content_into_the_store_at_once(front: Store, copied: CopiedStore) -> None:
    """Checkpoints of many tasks are alike: that they come together harms none of them."""
    blob = blob_of(RAW)
    places = [Place(PLACE.site, PLACE.task_id, fence, PLACE.nonce) for fence in range(1, 17)]
    for place in places:
        front.stage(place, blob, 0, cut(RAW))

    def promote(place: Place) -> None:
        copied.promote(place, blob)

    with ThreadPoolExecutor(len(places)) as threads:
        assert list(threads.map(promote, places)) == [None] * len(places)
    assert b"".join(front.read(blob)) == RAW


def test_many_may_compare_the_same_staged_content_at_once(front: Store, copied: CopiedStore) -> None:
    """A checkpoint and the outputs of an attempt may hold the same file."""
    blob = staged(front, RAW)

    def read(place: Place) -> bytes:
        return b"".join(copied.read_staged(place, blob))

    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(read, [PLACE] * 16)) == [RAW] * 16


def test_a_log_is_read_to_its_end_and_then_expires(server: Server) -> None:
    keys, log = ContentKeys("main"), LogKey("lab", PLACE.task_id, 3)
    worker = RedisWorker(server.connect(), Keys("main"), site="lab", worker_id="w")
    chunks = [LogChunk(1 + number % 2, 10 * number, f"{number:09}\n") for number in range(450)]
    worker.print(log, chunks, 10_000)
    worker.close()
    logs = BrokerLogs(BrokerUrl(server.url), keys)
    assert list(logs.chunks(log)) == chunks
    logs.expire(log)
    left_ms = server.admin("PTTL", keys.log(log))
    assert isinstance(left_ms, int)
    assert 0 < left_ms <= 3_600_000
    assert list(logs.chunks(log)) == chunks
    assert list(logs.chunks(LogKey("lab", PLACE.task_id, 4))) == []
    logs.close()
