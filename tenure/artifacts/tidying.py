"""Removing what nobody needs any more: old objects that no manifest names, and old staging places."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.artifacts.jobs import Ended, place_of
from tenure.artifacts.manifests import named_files
from tenure.errors import UnknownArtifact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tenure.artifacts.base import Place, Store
    from tenure.artifacts.jobs import Tidy
    from tenure.artifacts.stopping import Stop
    from tenure.protocol.artifact import Bundle, File


def tidy(store: Store, job: Tidy, stop: Stop) -> Ended:
    """Remove, and answer how much it was. Nothing is removed unless every manifest that is there could be read."""
    kept_places = {place_of(place) for place in job.keep_places}
    # As bytes, because there may be millions.
    kept = {bytes.fromhex(blob.digest) for blob in job.blobs}
    for bundle in job.bundles:
        stop.check()
        kept.add(bytes.fromhex(bundle.manifest.digest))
        kept.update(bytes.fromhex(file.blob.digest) for file in _files_of(store, bundle, kept_places))
    files, size = 0, 0
    for digest, found in _removable_objects(store, job, kept):
        stop.check()
        if not job.dry_run:
            store.remove(digest, job.min_age_ms)
        files, size = files + 1, size + found
    for place in _removable_places(store, job, kept_places):
        stop.check()
        if not job.dry_run:
            store.discard(place)
        files += 1
    return Ended(number=job.number, files=files, size=size)


def _files_of(store: Store, bundle: Bundle, places: set[Place]) -> tuple[File, ...]:
    """What the bundle's manifest names, an object or still staged in a place that is kept; nothing when it is lost.

    A client may have named as a bundle what is no list of files, and never will be: that names nothing.
    """
    try:
        return named_files(bundle.manifest, store.read(bundle.manifest))
    except UnknownArtifact:
        pass
    for place in places:
        try:
            return named_files(bundle.manifest, store.read_staged(place, bundle.manifest))
        except UnknownArtifact:
            continue
    return ()


def _removable_objects(store: Store, job: Tidy, kept: set[bytes]) -> Iterator[tuple[str, int]]:
    for stored in store.objects():
        if stored.age_ms >= job.min_age_ms and bytes.fromhex(stored.blob.digest) not in kept:
            yield stored.blob.digest, stored.blob.size


def _removable_places(store: Store, job: Tidy, kept: set[Place]) -> Iterator[Place]:
    for staged in store.places():
        if staged.age_ms >= job.min_age_ms and staged.place not in kept:
            yield staged.place
