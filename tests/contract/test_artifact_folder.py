"""What only a store in a folder meets: a full disk, and files that others have added to."""

import errno
import tempfile
from pathlib import Path
from typing import Never

import pytest

from tenure.artifacts.base import Place
from tenure.artifacts.content import blob_of, verify
from tenure.artifacts.folder import FolderStore
from tenure.errors import ArtifactDamaged

PLACE = Place("lab", "0" * 26, 1, "a" * 16)


def test_a_full_folder_still_tells_ages_and_so_can_be_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, blob = FolderStore(tmp_path), blob_of(b"content")
    store.stage(PLACE, blob, 0, [b"content"])
    store.promote(PLACE, blob)
    store.stage(PLACE, blob_of(b"more"), 0, [b"mo"])

    def no_room(**_: object) -> Never:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", no_room)

    assert [stored.age_ms < 60_000 for stored in store.objects()] == [True]
    assert [staged.age_ms < 60_000 for staged in store.places()] == [True]
    store.remove(blob.digest, min_age_ms=60_000)
    assert store.has(blob)
    store.remove(blob.digest)
    assert not store.has(blob)


def test_an_object_with_more_in_it_than_its_name_says_is_damaged(tmp_path: Path) -> None:
    store, blob = FolderStore(tmp_path), blob_of(b"content")
    store.stage(PLACE, blob, 0, [b"content"])
    store.promote(PLACE, blob)
    path = tmp_path / "objects" / blob.digest[:2] / blob.digest[2:]
    path.chmod(0o600)
    path.write_bytes(b"content and more")
    with pytest.raises(ArtifactDamaged, match="more bytes than the 7"):
        verify(blob, store.read(blob))
