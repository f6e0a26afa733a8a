"""A store in this process's memory, for tests."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final, final

from tenure.artifacts.base import StagedPlace, Stored
from tenure.artifacts.content import verify
from tenure.errors import UnknownArtifact
from tenure.protocol.artifact import Blob

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tenure.artifacts.base import Place
    from tenure.clock import Clock

_CHUNK: Final = 64 * 1024


@final
class MemoryStore:
    """See `tenure.artifacts.base.Store`.

    Args:
        clock: what ages are measured by.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._objects: dict[str, tuple[bytes, int]] = {}
        self._staged: dict[Place, dict[str, bytes]] = {}
        self._touched: dict[Place, int] = {}

    def has(self, blob: Blob, *, renew: bool = False) -> bool:
        """See `Store.has`."""
        with self._lock:
            found = self._objects.get(blob.digest)
            if found is not None and renew:
                self._objects[blob.digest] = (found[0], self._clock.elapsed_ms())
            return found is not None and len(found[0]) == blob.size

    def read(self, blob: Blob, offset: int = 0) -> Iterator[bytes]:
        """See `Store.read`."""
        if blob.digest not in self._objects:
            raise UnknownArtifact(f"The store holds no content {blob.digest[:12]}…")
        return _cut(self._objects[blob.digest][0][offset:])

    def staged_bytes(self, place: Place, blob: Blob) -> int:
        """See `Store.staged_bytes`."""
        return len(self._staged.get(place, {}).get(blob.digest, b""))

    def stage(self, place: Place, blob: Blob, offset: int, chunks: Iterable[bytes]) -> None:
        """See `Store.stage`."""
        self._add(place, blob.digest, offset, b"")
        for chunk in chunks:
            self._add(place, blob.digest, offset, chunk)
            offset += len(chunk)

    def _add(self, place: Place, digest: str, offset: int, chunk: bytes) -> None:
        with self._lock:
            held = self._staged.setdefault(place, {})
            held[digest] = held.get(digest, b"")[:offset] + chunk
            self._touched[place] = self._clock.elapsed_ms()

    def read_staged(self, place: Place, blob: Blob) -> Iterator[bytes]:
        """See `Store.read_staged`."""
        if blob.digest in self._objects:
            return self.read(blob)
        found = self._staged.get(place, {}).get(blob.digest)
        if found is None or len(found) < blob.size:
            raise UnknownArtifact(f"The content {blob.digest[:12]}… is not staged whole")
        return _cut(found)

    def promote(self, place: Place, blob: Blob) -> None:
        """See `Store.promote`."""
        if self.has(blob):
            return
        verify(blob, self.read_staged(place, blob))
        with self._lock:
            raw = self._staged[place].pop(blob.digest, None)
            if raw is not None:  # else somebody has just promoted it
                self._objects[blob.digest] = (raw, self._clock.elapsed_ms())

    def discard(self, place: Place) -> None:
        """See `Store.discard`."""
        with self._lock:
            self._staged.pop(place, None)
            self._touched.pop(place, None)

    def places(self) -> Iterator[StagedPlace]:
        """See `Store.places`."""
        now_ms = self._clock.elapsed_ms()
        with self._lock:
            held = [place for place, contents in self._staged.items() if contents]
            return iter([StagedPlace(place, now_ms - self._touched[place]) for place in held])

    def objects(self) -> Iterator[Stored]:
        """See `Store.objects`."""
        now_ms = self._clock.elapsed_ms()
        with self._lock:
            found = list(self._objects.items())
        return iter([Stored(Blob(digest=d, size=len(raw)), now_ms - since) for d, (raw, since) in found])

    def remove(self, digest: str, min_age_ms: int = 0) -> None:
        """See `Store.remove`."""
        with self._lock:
            found = self._objects.get(digest)
            if found is not None and self._clock.elapsed_ms() - found[1] >= min_age_ms:
                del self._objects[digest]

    def close(self) -> None:
        """See `Store.close`."""


def _cut(raw: bytes) -> Iterator[bytes]:
    return (raw[start : start + _CHUNK] for start in range(0, len(raw), _CHUNK))
