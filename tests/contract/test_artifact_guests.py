"""The store at a broker that knows its users: sites and people write to places of their own and are never refused."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from redis.exceptions import NoPermissionError

from tenure.artifacts.base import OWN, Place, Store, uploads_of
from tenure.artifacts.opening import open_store
from tenure.artifacts.packing import Packer
from tenure.artifacts.stopping import Stop
from tenure.artifacts.turns import Turns
from tenure.broker.keys import ContentKeys
from tenure.broker.url import BrokerUrl
from tenure.client.contents import Contents
from tenure.errors import ArtifactDamaged, ArtifactStoreUnreachable, UnknownArtifact
from tenure.protocol.artifact import Blob
from tenure.protocol.principal_messages import Role
from tenure.testing import ManualClock, SeededEntropy
from tests.fixtures_artifacts import LATER, PLACE, blob_of, cut, noise
from tests.secured import SecuredBroker
from tests.secured_bench import SecuredBench

DAY_MS = 24 * 3_600_000
RAW = noise(700_000)


@pytest.fixture
def refusing_nothing(secured_broker: SecuredBroker) -> Iterator[SecuredBroker]:
    """A broker that has refused nobody anything when the test is over."""
    yield secured_broker
    assert SecuredBench.refusals_of(secured_broker) == []


def store(url: str) -> Store:
    return open_store("broker:", {}, BrokerUrl(url), "main")


@pytest.fixture
def coordinator(secured_broker: SecuredBroker) -> Iterator[Store]:
    with closing(store(secured_broker.coordinator_url)) as opened:
        yield opened


@pytest.fixture
def site(secured_broker: SecuredBroker) -> Iterator[Store]:
    with closing(store(secured_broker.site_url("lab"))) as opened:
        yield opened


@pytest.fixture
def person(secured_broker: SecuredBroker) -> Iterator[Contents]:
    url = secured_broker.person_url("anna", Role.SUBMITTER)
    with closing(Contents(lambda: store(url), ManualClock(), SeededEntropy(), "anna")) as contents:
        yield contents


def put(coordinator: Store, raw: bytes) -> Blob:
    place = Place(OWN, "0" * 25 + "B", 1, "c" * 16)
    coordinator.stage(place, blob_of(raw), 0, cut(raw))
    coordinator.promote(place, blob_of(raw))
    return blob_of(raw)


def age(secured: SecuredBroker, blob: Blob, ms: int) -> None:
    key = ContentKeys("main").stored(blob.digest)
    left_ms = secured.admin("PTTL", key)
    assert isinstance(left_ms, int)
    secured.admin("PEXPIRE", key, left_ms - ms)


def test_what_a_site_stages_the_coordinator_promotes(
    refusing_nothing: SecuredBroker, coordinator: Store, site: Store
) -> None:
    blob = blob_of(RAW)
    site.stage(PLACE, blob, 0, cut(RAW[:300_000]))
    assert site.staged_bytes(PLACE, blob) == 300_000
    site.stage(PLACE, blob, 300_000, cut(RAW[300_000:]))

    assert b"".join(coordinator.read_staged(PLACE, blob)) == RAW
    coordinator.promote(PLACE, blob)
    coordinator.discard(PLACE)

    assert b"".join(site.read(blob)) == RAW
    assert list(coordinator.places()) == []


def test_a_site_counts_on_an_object_only_while_it_is_young(
    refusing_nothing: SecuredBroker, coordinator: Store, site: Store
) -> None:
    """It may not lengthen an object's life, and an old one may be collected before its result is accepted."""
    blob = put(coordinator, RAW)
    assert site.has(blob, renew=True)

    age(refusing_nothing, blob, DAY_MS)

    assert site.has(blob)
    assert not site.has(blob, renew=True)
    assert coordinator.has(blob, renew=True)
    assert site.has(blob, renew=True)


def test_a_folder_of_outputs_is_packed_by_a_site(
    refusing_nothing: SecuredBroker, coordinator: Store, site: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "outputs"
    folder.mkdir()
    (folder / "new.bin").write_bytes(RAW)
    (folder / "old.bin").write_bytes(b"old")
    put(coordinator, b"old")

    bundle = Packer(site, LATER, Stop(), 10, Turns()).collect(str(folder), skip_empty=False)

    assert bundle is not None
    assert (bundle.files, bundle.size) == (2, len(RAW) + 3)
    assert coordinator.staged_bytes(LATER, blob_of(RAW)) == len(RAW)
    assert coordinator.staged_bytes(LATER, blob_of(b"old")) == 0, "what is there already is not sent again"


def test_a_person_uploads_and_downloads(
    refusing_nothing: SecuredBroker, coordinator: Store, person: Contents, tmp_path: Path
) -> None:
    source, target = tmp_path / "a.bin", tmp_path / "b.bin"
    source.write_bytes(RAW)

    blob = person.upload(source)
    assert isinstance(blob, Blob)
    person.download(blob, target)

    assert target.read_bytes() == RAW
    assert list(coordinator.places()) == []
    assert [each.blob for each in coordinator.objects()] == [blob]


def test_what_a_person_relies_on_is_not_collected_however_old_it_is(
    refusing_nothing: SecuredBroker, coordinator: Store, person: Contents, tmp_path: Path
) -> None:
    blob = put(coordinator, RAW)
    age(refusing_nothing, blob, 2 * DAY_MS)
    source = tmp_path / "a.bin"
    source.write_bytes(RAW)

    assert person.upload(source) == blob

    coordinator.remove(blob.digest, DAY_MS)
    assert coordinator.has(blob)
    (found,) = coordinator.objects()
    assert found.age_ms < DAY_MS / 2


@pytest.mark.parametrize("look", ["list", "remove"])
def test_what_a_person_relied_on_once_grows_old_again(
    coordinator: Store, person: Contents, secured_broker: SecuredBroker, look: str
) -> None:
    blob = put(coordinator, RAW)
    assert person.store.has(blob, renew=True)
    if look == "list":
        assert [found.age_ms for found in coordinator.objects()] == [0]
    else:
        coordinator.remove(blob.digest, DAY_MS)

    age(secured_broker, blob, 2 * DAY_MS)
    coordinator.remove(blob.digest, DAY_MS)

    assert not coordinator.has(blob)


def test_nobody_but_the_coordinator_replaces_a_content_that_is_there(
    coordinator: Store, person: Contents, secured_broker: SecuredBroker
) -> None:
    """A submitter reads the digests of others' results, and may write to places of one's own whatever there is."""
    blob, place = put(coordinator, RAW), Place(uploads_of("anna"), "0" * 25 + "C", 1, "d" * 16)
    keys = ContentKeys("main")
    draft, target = keys.staged(f"@anna:{place.task_id}:1:{place.nonce}", "0" * 64), keys.stored(blob.digest)
    with closing(secured_broker.connect(secured_broker.person_url("anna", Role.SUBMITTER))) as anna:
        anna.call("SET", draft, b"nothing of the kind")
        assert isinstance(anna.call_all([("RENAME", draft, target)])[0], NoPermissionError)
        assert anna.call("RENAMENX", draft, target) == 0

    assert b"".join(coordinator.read(blob)) == RAW


def test_a_name_that_is_taken_by_something_else_is_an_error_and_no_success(
    coordinator: Store, person: Contents, secured_broker: SecuredBroker
) -> None:
    blob, place = blob_of(RAW), Place(uploads_of("anna"), "0" * 25 + "C", 1, "d" * 16)
    secured_broker.admin("SET", ContentKeys("main").stored(blob.digest), "half of it")
    person.store.stage(place, blob, 0, cut(RAW))

    with pytest.raises(ArtifactDamaged, match="something else under the name"):
        person.store.promote(place, blob)

    # One that dies here can leave nothing that outlives what it was for.
    assert secured_broker.admin("KEYS", ContentKeys("main").staged("*", "*")) == []


def test_an_upload_that_breaks_off_leaves_nothing(
    refusing_nothing: SecuredBroker, coordinator: Store, person: Contents
) -> None:
    place = Place(uploads_of("anna"), "0" * 25 + "C", 1, "d" * 16)
    wrong = Blob(digest="0" * 64, size=len(RAW))
    person.store.stage(place, wrong, 0, cut(RAW))
    with pytest.raises(UnknownArtifact):
        person.store.promote(place, blob_of(RAW))
    assert [each.place for each in coordinator.places()] == [place]

    person.store.discard(place)

    assert list(coordinator.places()) == []


def test_nobody_stages_in_the_place_of_somebody_else(coordinator: Store, site: Store, person: Contents) -> None:
    blob = blob_of(RAW)
    foreign = [
        (site, Place("lab2", LATER.task_id, 1, "a" * 16)),
        (site, Place(uploads_of("lab"), LATER.task_id, 1, "a" * 16)),
        (site, Place(OWN, LATER.task_id, 1, "a" * 16)),
        (person.store, PLACE),
        (person.store, Place(uploads_of("bert"), LATER.task_id, 1, "a" * 16)),
        (person.store, Place("anna", LATER.task_id, 1, "a" * 16)),
    ]
    for guest, place in foreign:
        with pytest.raises(ArtifactStoreUnreachable, match="does not allow"):
            guest.stage(place, blob, 0, cut(RAW))

    assert list(coordinator.places()) == []


def test_a_site_neither_reads_what_another_has_staged_nor_promotes(
    coordinator: Store, site: Store, secured_broker: SecuredBroker
) -> None:
    blob = blob_of(RAW)
    site.stage(PLACE, blob, 0, cut(RAW))
    other = store(secured_broker.site_url("lab2"))
    with closing(other), pytest.raises(ArtifactStoreUnreachable, match="does not allow"):
        b"".join(other.read_staged(PLACE, blob))
    with pytest.raises(ArtifactStoreUnreachable, match="does not allow"):
        site.promote(PLACE, blob)
    with pytest.raises(ArtifactStoreUnreachable, match="does not allow"):
        list(site.objects())

    assert not coordinator.has(blob)
