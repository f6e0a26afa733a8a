"""Addresses of stores, what they open, and what errors may not say."""

from pathlib import Path

import pytest

from tenure.artifacts.addresses import checked_url, folder_of
from tenure.artifacts.folder import FolderStore
from tenure.artifacts.jobs import Discard, StagingPlace
from tenure.artifacts.object_files import ObjectFiles, changed_ms, open_files
from tenure.artifacts.opening import open_store
from tenure.artifacts.porter_orders import PorterSettings
from tenure.artifacts.porter_tools import Tools
from tenure.artifacts.stopping import Stop
from tenure.errors import ArtifactStoreFull, ArtifactStoreUnreachable, InvalidSettings, MissingExtra, UnknownArtifact
from tests.fixtures_artifacts import PLACE, blob_of


@pytest.mark.parametrize(
    ("address", "folder"),
    [("/srv/a", "/srv/a"), ("file:///srv/a%20b", "/srv/a b"), ("s3://b/p", None), ("broker:", None)],
)
def test_the_folder_of_an_address(address: str, folder: str | None) -> None:
    assert folder_of(address) == (Path(folder) if folder is not None else None)


@pytest.mark.parametrize("address", ["", "relative/path", "/", "/srv/../etc", "file://host/srv", "broker", "s3:b"])
def test_what_is_no_folder_is_refused(address: str) -> None:
    with pytest.raises(InvalidSettings):
        folder_of(address)


@pytest.mark.parametrize(
    "address", ["s3://", "s3://b/../c", "sftp://me:hunter2@host/p", "s3://key@b", "://x", "s3://[b"]
)
def test_what_is_no_url_of_a_store_is_refused_without_repeating_it(address: str) -> None:
    with pytest.raises(InvalidSettings) as raised:
        checked_url(address)
    assert "hunter2" not in str(raised.value)


def test_a_folder_must_be_there_unless_it_may_be_made(tmp_path: Path) -> None:
    address = str(tmp_path / "store")
    with pytest.raises(ArtifactStoreUnreachable, match="not there"):
        open_store(address)
    with pytest.raises(ArtifactStoreUnreachable):
        open_store(str(tmp_path / "not" / "mounted"), make_folder=True)
    assert isinstance(open_store(address, make_folder=True), FolderStore)
    assert isinstance(open_store(address), FolderStore)


def test_a_folder_that_vanishes_is_unreachable_and_not_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    store = open_store(str(folder), make_folder=True)
    folder.rmdir()
    with pytest.raises(ArtifactStoreUnreachable, match="not there"):
        store.stage(PLACE, blob_of(b"x"), 0, [b"x"])
    assert not folder.exists()


def test_the_broker_must_be_known() -> None:
    with pytest.raises(InvalidSettings, match="broker"):
        open_store("broker:")


def test_an_unknown_protocol_and_an_unknown_option_are_refused() -> None:
    with pytest.raises(InvalidSettings):
        open_store("nonsense://x/y")
    with pytest.raises((InvalidSettings, ArtifactStoreUnreachable)):
        open_files("s3://b/p", "s3", {"key": 1, "username": "a-secret-name"}).info("x")


def test_a_library_that_is_missing_is_named() -> None:
    with pytest.raises(MissingExtra, match="artifacts") as raised:
        open_store("gs://bucket/p")
    assert "pip install" in str(raised.value)


class Refusing:
    """A file system whose every answer repeats what it was told."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __getattr__(self, name: str) -> object:
        def refuse(*_: object, **__: object) -> object:
            raise self.error

        return refuse


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("no access for very-secret-value and very-secret"), ArtifactStoreUnreachable),
        (OSError(28, "very-secret-value has filled the bucket"), ArtifactStoreFull),
        (PermissionError(13, "nested-secret"), ArtifactStoreUnreachable),
    ],
)
def test_no_option_appears_in_an_error(error: Exception, kind: type[Exception]) -> None:
    options = {"secret": "very-secret", "key": "very-secret-value", "client": {"list": ["nested-secret"]}}
    files = ObjectFiles(Refusing(error), "b/p", options, "s3")  # type: ignore[arg-type]
    for call in (
        lambda: files.info("x"),
        lambda: files.listed("x"),
        lambda: files.read("x", 0, 1),
        lambda: files.write("x", b""),
        lambda: files.remove("x"),
    ):
        with pytest.raises(kind) as raised:
            call()
        assert "secret" not in str(raised.value)
        assert raised.value.__cause__ is None


def test_settings_show_nothing_secret() -> None:
    settings = PorterSettings(
        address="broker:", options={"k": "hidden"}, broker_url="hidden", environment={"A": "hidden"}
    )
    assert "hidden" not in repr(settings)


@pytest.mark.parametrize(
    ("info", "ms"),
    [
        ({"mtime": 1.5}, 1_500),
        ({"updated": "1970-01-01T00:00:02+00:00"}, 2_000),
        ({"LastModified": "", "created": 3}, 3_000),
        ({"updated": "yesterday"}, None),
        ({}, None),
    ],
)
def test_when_a_file_was_written(info: dict[str, object], ms: int | None) -> None:
    assert changed_ms(info) == ms


@pytest.mark.parametrize("name", ["../x", "A" * 64, "", "0" * 63])
def test_names_never_become_other_paths(tmp_path: Path, name: str) -> None:
    store = FolderStore(tmp_path)
    with pytest.raises(UnknownArtifact):
        store.remove(name)


def test_a_library_that_fails_while_it_is_opened_ends_the_job_and_its_words_stay_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some connect when they are opened: a job that nobody ended would be waited for for ever."""

    def refuse(*_: object, **__: object) -> None:
        raise ConnectionRefusedError("hunter2")

    monkeypatch.setattr("tenure.artifacts.porter_tools.open_store", refuse)
    place = StagingPlace(site=PLACE.site, task_id=PLACE.task_id, fence=PLACE.fence, nonce=PLACE.nonce)
    ended = Tools(PorterSettings(address=str(tmp_path))).carry(Discard(number=3, place=place), Stop())
    assert ended.number == 3
    assert ended.problem is not None
    assert (ended.problem.code, "hunter2" in ended.problem.message) == ("artifact_store_unreachable", False)
