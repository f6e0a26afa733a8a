"""A store that may lose everything, with a copy of every object in one that does not.

The broker is such a store. The coordinator keeps the copies; whoever else reads the broker finds again what the
coordinator has put back. What is verified is copied at that moment, so that nothing that was accepted can be lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from tenure.artifacts.base import OWN, Place
from tenure.artifacts.turns import Turns
from tenure.clock import SystemEntropy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tenure.artifacts.base import StagedPlace, Store, Stored
    from tenure.protocol.artifact import Blob

_NO_TASK: Final = "0" * 26
"""Where contents are staged that go from one store to the other: no task has this id."""
_NONCE_BYTES: Final = 16


@final
class CopiedStore:
    """See `tenure.artifacts.base.Store`.

    Args:
        front: what everybody uses.
        copies: what keeps everything.
    """

    def __init__(self, front: Store, copies: Store) -> None:
        self._front = front
        self._copies = copies
        # Two jobs of one place may read the same content, and must not write one copy of it at the same time.
        self._turns = Turns()

    def has(self, blob: Blob, *, renew: bool = False) -> bool:
        """See `Store.has`; where only one of the two has the object, the other one gets it."""
        copied, there = self._copies.has(blob, renew=renew), self._front.has(blob, renew=renew)
        if copied and not there:
            transfer(self._copies, self._front, blob)
        if there and not copied:
            transfer(self._front, self._copies, blob)
        return copied or there

    def read(self, blob: Blob, offset: int = 0) -> Iterator[bytes]:
        """See `Store.read`."""
        return (self._copies if self._copies.has(blob) else self._front).read(blob, offset)

    def staged_bytes(self, place: Place, blob: Blob) -> int:
        """See `Store.staged_bytes`."""
        return self._front.staged_bytes(place, blob)

    def stage(self, place: Place, blob: Blob, offset: int, chunks: Iterable[bytes]) -> None:
        """See `Store.stage`."""
        self._front.stage(place, blob, offset, chunks)

    def read_staged(self, place: Place, blob: Blob) -> Iterator[bytes]:
        """See `Store.read_staged`; what is read is copied on the way."""
        if not self._copies.has(blob):
            self._copy_staged(place, blob)
        return self._copies.read_staged(place, blob)

    def promote(self, place: Place, blob: Blob) -> None:
        """See `Store.promote`; the copy comes first."""
        if not self._copies.has(blob):
            self._copy_staged(place, blob)
            self._copies.promote(place, blob)
        if not self._front.has(blob):
            transfer(self._copies, self._front, blob)

    def discard(self, place: Place) -> None:
        """See `Store.discard`."""
        self._front.discard(place)
        self._copies.discard(place)

    def places(self) -> Iterator[StagedPlace]:
        """See `Store.places`."""
        found = {staged.place: staged for staged in self._copies.places()}
        for staged in self._front.places():
            if staged.place not in found or found[staged.place].age_ms > staged.age_ms:
                found[staged.place] = staged
        return iter(found.values())

    def objects(self) -> Iterator[Stored]:
        """See `Store.objects`; one that only the broker has is told, too."""
        for stored in self._copies.objects():
            yield stored
        for stored in self._front.objects():
            if not self._copies.has(stored.blob):
                yield stored

    def remove(self, digest: str, min_age_ms: int = 0) -> None:
        """See `Store.remove`."""
        self._front.remove(digest, min_age_ms)
        self._copies.remove(digest, min_age_ms)

    def close(self) -> None:
        """See `Store.close`."""
        self._front.close()
        self._copies.close()

    def _copy_staged(self, place: Place, blob: Blob) -> None:
        with self._turns.of(blob):
            # What was copied whole stays, for the broker may have lost it since.
            if not blob.size:
                self._copies.stage(place, blob, 0, ())
            elif not self._copies.has(blob) and self._copies.staged_bytes(place, blob) < blob.size:
                self._copies.stage(place, blob, 0, self._front.read_staged(place, blob))


def restore(front: Store, copies: Store) -> int:
    """Give each of the two the objects that only the other one has; how many there were.

    The broker may have lost what was copied, and clients put their inputs there without a copy.
    """
    moved = 0
    for source, target in ((copies, front), (front, copies)):
        missing = [stored.blob for stored in source.objects() if not target.has(stored.blob)]
        for blob in missing:
            transfer(source, target, blob)
        moved += len(missing)
    return moved


def transfer(source: Store, target: Store, blob: Blob) -> None:
    """Make an object of one store an object of the other one. Raises `UnknownArtifact` and `ArtifactError`."""
    # A place of its own each time: others may be moving the same content.
    place = Place(OWN, _NO_TASK, 1, SystemEntropy().token(_NONCE_BYTES))
    try:
        target.stage(place, blob, 0, source.read(blob))
        target.promote(place, blob)
    finally:
        target.discard(place)
