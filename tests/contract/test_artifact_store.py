"""What every store of artifacts promises. `tenure.artifacts.base.Store` says it in words."""

from collections.abc import Iterator
from dataclasses import replace
from threading import Barrier, Thread

import pytest

from tenure.artifacts.base import Place, uploads_of
from tenure.errors import ArtifactDamaged, UnknownArtifact
from tenure.protocol.artifact import Blob
from tests.fixtures_artifacts import LATER, PLACE, StoreBench, blob_of, cut, noise

SIZES = (0, 1, 8 * 1024 * 1024, 8 * 1024 * 1024 + 1)
SMALL = noise(300_000)


def put(bench: StoreBench, raw: bytes, place: Place = PLACE) -> Blob:
    """The content as an object."""
    blob = blob_of(raw)
    bench.store.stage(place, blob, 0, cut(raw))
    bench.store.promote(place, blob)
    return blob


class Broken(Exception):
    """The connection, so to speak."""


def breaking_off(raw: bytes, after: int) -> Iterator[bytes]:
    yield from cut(raw[:after])
    raise Broken


@pytest.mark.parametrize("size", SIZES)
def test_what_is_promoted_is_read_as_it_was_staged(store_bench: StoreBench, size: int) -> None:
    raw = noise(size)
    blob = blob_of(raw)
    store_bench.store.stage(PLACE, blob, 0, cut(raw))
    assert store_bench.store.staged_bytes(PLACE, blob) == size
    assert b"".join(store_bench.store.read_staged(PLACE, blob)) == raw
    assert not store_bench.store.has(blob)

    store_bench.store.promote(PLACE, blob)
    assert store_bench.store.has(blob)
    assert b"".join(store_bench.store.read(blob)) == raw
    assert b"".join(store_bench.reopen().read(blob)) == raw


def test_chunks_are_small(store_bench: StoreBench) -> None:
    blob = put(store_bench, noise(9 * 1024 * 1024))
    assert max(map(len, store_bench.store.read(blob))) <= 8 * 1024 * 1024


@pytest.mark.parametrize("offset", [0, 1, 299_999, 300_000])
def test_an_object_is_read_from_an_offset(store_bench: StoreBench, offset: int) -> None:
    blob = put(store_bench, SMALL)
    assert b"".join(store_bench.store.read(blob, offset)) == SMALL[offset:]


def test_what_is_not_there_is_unknown(store_bench: StoreBench) -> None:
    blob = blob_of(b"never")
    assert not store_bench.store.has(blob)
    assert not store_bench.store.has(blob, renew=True)
    assert store_bench.store.staged_bytes(PLACE, blob) == 0
    with pytest.raises(UnknownArtifact):
        b"".join(store_bench.store.read(blob))
    with pytest.raises(UnknownArtifact):
        b"".join(store_bench.store.read_staged(PLACE, blob))
    with pytest.raises(UnknownArtifact):
        store_bench.store.promote(PLACE, blob)
    store_bench.store.discard(PLACE)
    store_bench.store.remove(blob.digest)


def test_an_interrupted_upload_goes_on_where_it_was(store_bench: StoreBench) -> None:
    raw = noise(10 * 1024 * 1024)
    blob = blob_of(raw)
    with pytest.raises(Broken):
        store_bench.store.stage(PLACE, blob, 0, breaking_off(raw, 9 * 1024 * 1024))

    again = store_bench.reopen()
    done = again.staged_bytes(PLACE, blob)
    assert 8 * 1024 * 1024 <= done < blob.size
    with pytest.raises(UnknownArtifact):
        b"".join(again.read_staged(PLACE, blob))
    again.stage(PLACE, blob, done, cut(raw[done:]))
    again.promote(PLACE, blob)
    assert b"".join(again.read(blob)) == raw


def test_half_of_a_content_becomes_no_object(store_bench: StoreBench) -> None:
    raw = noise(9 * 1024 * 1024)
    blob = blob_of(raw)
    with pytest.raises(Broken):
        store_bench.store.stage(PLACE, blob, 0, breaking_off(raw, 8 * 1024 * 1024 + 500_000))
    with pytest.raises(UnknownArtifact):
        store_bench.store.promote(PLACE, blob)
    assert not store_bench.store.has(blob)
    assert list(store_bench.store.objects()) == []


@pytest.mark.parametrize("size", [300_000, 9 * 1024 * 1024])
def test_wrong_bytes_become_no_object(store_bench: StoreBench, size: int) -> None:
    blob = blob_of(noise(size))
    store_bench.spoil_staged(PLACE, blob)
    with pytest.raises(ArtifactDamaged):
        store_bench.store.promote(PLACE, blob)
    assert not store_bench.store.has(blob)
    assert list(store_bench.store.objects()) == []

    store_bench.store.stage(PLACE, blob, 0, cut(noise(size)))
    store_bench.store.promote(PLACE, blob)
    assert b"".join(store_bench.store.read(blob)) == noise(size)


def test_promoting_twice_changes_nothing(store_bench: StoreBench) -> None:
    blob = put(store_bench, SMALL)
    store_bench.store.promote(PLACE, blob)
    store_bench.store.promote(LATER, blob)
    assert [stored.blob for stored in store_bench.store.objects()] == [blob]
    assert b"".join(store_bench.store.read_staged(LATER, blob)) == SMALL


def test_two_promote_the_same_content_at_once(store_bench: StoreBench) -> None:
    raw = noise(9 * 1024 * 1024)
    blob, start = blob_of(raw), Barrier(4)
    for place in (PLACE, LATER):
        store_bench.store.stage(place, blob, 0, cut(raw))

    def promote(place: Place) -> None:
        start.wait()
        store_bench.store.promote(place, blob)

    threads = [Thread(target=promote, args=(place,)) for place in (PLACE, LATER, PLACE, LATER)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert b"".join(store_bench.store.read(blob)) == raw


def test_places_do_not_see_each_other(store_bench: StoreBench) -> None:
    blob = blob_of(SMALL)
    store_bench.store.stage(PLACE, blob, 0, cut(SMALL))
    for other in (LATER, replace(PLACE, site="yard"), replace(PLACE, nonce=LATER.nonce)):
        assert store_bench.store.staged_bytes(other, blob) == 0
        with pytest.raises(UnknownArtifact):
            store_bench.store.promote(other, blob)
        store_bench.store.discard(other)
    assert store_bench.store.staged_bytes(PLACE, blob) == blob.size


def test_a_place_is_told_until_it_is_discarded(store_bench: StoreBench) -> None:
    elsewhere = replace(LATER, site=uploads_of("ann"))
    for place in (PLACE, LATER, elsewhere):
        store_bench.store.stage(place, blob_of(SMALL), 0, cut(SMALL))
        store_bench.store.stage(place, blob_of(b"x"), 0, [b"x"])
    assert {staged.place for staged in store_bench.store.places()} == {PLACE, LATER, elsewhere}
    store_bench.store.discard(elsewhere)
    assert {staged.place for staged in store_bench.store.places()} == {PLACE, LATER}
    store_bench.store.discard(PLACE)
    assert [staged.place for staged in store_bench.store.places()] == [LATER]
    assert store_bench.store.staged_bytes(PLACE, blob_of(SMALL)) == 0
    store_bench.store.discard(LATER)
    assert list(store_bench.store.places()) == []


def test_discarding_takes_no_objects(store_bench: StoreBench) -> None:
    blob = put(store_bench, SMALL)
    store_bench.store.discard(PLACE)
    assert b"".join(store_bench.store.read(blob)) == SMALL


def test_objects_are_listed_and_removed(store_bench: StoreBench) -> None:
    blobs = {put(store_bench, noise(size)).digest: size for size in (0, 5, 70_000)}
    found = {stored.blob.digest: stored.blob.size for stored in store_bench.store.objects()}
    assert found == blobs
    assert all(0 <= stored.age_ms < 60_000 for stored in store_bench.store.objects())
    gone = min(blobs)
    store_bench.store.remove(gone)
    assert not store_bench.store.has(Blob(digest=gone, size=blobs[gone]))
    assert {stored.blob.digest for stored in store_bench.store.objects()} == blobs.keys() - {gone}


def test_an_object_that_is_young_is_not_removed(store_bench: StoreBench) -> None:
    blob = put(store_bench, SMALL)
    store_bench.store.remove(blob.digest, 3_600_000)
    assert store_bench.store.has(blob)
    store_bench.store.remove(blob.digest, 0)
    assert not store_bench.store.has(blob)


def test_ages_begin_with_the_promotion_and_anew_with_a_renewal(store_bench: StoreBench) -> None:
    blob = blob_of(SMALL)
    store_bench.store.stage(PLACE, blob, 0, cut(SMALL))
    store_bench.age(50_000_000)
    assert [staged.age_ms // 1_000_000 for staged in store_bench.store.places()] == [50]
    store_bench.store.promote(PLACE, blob)
    assert [stored.age_ms // 1_000_000 for stored in store_bench.store.objects()] == [0]
    store_bench.age(70_000_000)
    assert store_bench.store.has(blob)
    assert [stored.age_ms // 1_000_000 for stored in store_bench.store.objects()] == [70]
    assert store_bench.store.has(blob, renew=True)
    assert [stored.age_ms // 1_000_000 for stored in store_bench.store.objects()] == [0]
    store_bench.store.remove(blob.digest, 60_000_000)
    assert store_bench.store.has(blob)


def test_a_size_that_does_not_fit_is_not_there(store_bench: StoreBench) -> None:
    blob = put(store_bench, SMALL)
    assert not store_bench.store.has(Blob(digest=blob.digest, size=blob.size + 1))
