"""A store in whatever `fsspec` opens: S3, Google Cloud Storage, Azure, SFTP and more.

    objects/ab/cdef...                      whole, compared, never changed
    renewed/ab/cdef...                      empty: when that object was last found instead of sent again
    staging/<site>/<task>/<fence>-<nonce>/<digest>/<number>
                                            parts of 8 MiB; an interrupted upload goes on at the next one

What is promoted is read part by part, compared, and written on; it gets the object's name when it is whole. So nobody
can exchange a part between the comparison and the promotion, and memory holds a few parts, whatever the size.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

from tenure.artifacts.addresses import checked_url
from tenure.artifacts.base import PLACE_SITE, Place, StagedPlace, Stored
from tenure.artifacts.content import checked, collected
from tenure.artifacts.object_files import ObjectFiles, changed_ms, open_files
from tenure.clock import SystemEntropy
from tenure.errors import ArtifactError, UnknownArtifact
from tenure.protocol.artifact import Blob

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tenure.artifacts.object_files import Info
    from tenure.clock import Entropy

PART_BYTES: Final = 8 * 1024 * 1024
_MOST_BLOCKS: Final = 9_000
"""An upload to S3 has at most 10,000 parts, so the largest contents are written in larger ones."""

_SHARDS: Final = tuple(f"{number:02x}" for number in range(256))
_REST: Final = re.compile(r"[0-9a-f]{62}")
_TASK: Final = re.compile(r"[0-9A-Z]{26}")
_PLACE: Final = re.compile(r"([1-9][0-9]*)-([0-9a-f]{16,64})")
_CLOCK: Final = "clock"


def open_objects(address: str, options: dict[str, object]) -> ObjectStore:
    """The store at a URL. Raises `MissingExtra` and `InvalidSettings`."""
    return ObjectStore(open_files(address, checked_url(address), options), SystemEntropy())


@final
class ObjectStore:
    """See `tenure.artifacts.base.Store`.

    Args:
        files: where everything is below.
        entropy: names what is being promoted.
    """

    def __init__(self, files: ObjectFiles, entropy: Entropy) -> None:
        self._files = files
        self._entropy = entropy

    def has(self, blob: Blob, *, renew: bool = False) -> bool:
        """See `Store.has`."""
        info = self._files.info(_object(blob.digest))
        if info is None or info.get("size") != blob.size:
            return False
        if renew:
            self._files.write(_renewed(blob.digest), b"")
        return True

    def read(self, blob: Blob, offset: int = 0) -> Iterator[bytes]:
        """See `Store.read`."""
        path = _object(blob.digest)
        if not self.has(blob):
            raise UnknownArtifact(f"The store holds no content {blob.digest[:12]}…")
        return self._pieces((path, start, min(start + PART_BYTES, blob.size)) for start in _starts(offset, blob.size))

    def staged_bytes(self, place: Place, blob: Blob) -> int:
        """See `Store.staged_bytes`."""
        there = dict(self._files.listed(_staged(place, blob.digest)))
        done = 0
        for start in _starts(0, blob.size):
            size = min(PART_BYTES, blob.size - start)
            part = there.get(_number(start))
            if part is None or part.get("size") != size:
                break
            done = start + size
        return done

    def stage(self, place: Place, blob: Blob, offset: int, chunks: Iterable[bytes]) -> None:
        """See `Store.stage`."""
        folder = _staged(place, blob.digest)
        for raw in _parts(chunks, is_empty=blob.size == 0):
            self._files.write(f"{folder}/{_number(offset)}", raw)
            offset += len(raw)

    def read_staged(self, place: Place, blob: Blob) -> Iterator[bytes]:
        """See `Store.read_staged`."""
        if self.has(blob):
            return self.read(blob)
        folder = _staged(place, blob.digest)
        is_there = self.staged_bytes(place, blob) == blob.size
        if blob.size == 0:
            is_there = self._files.info(f"{folder}/{_number(0)}") is not None
        if not is_there:
            raise UnknownArtifact(f"The content {blob.digest[:12]}… is not staged whole")
        starts = _starts(0, blob.size)
        return self._pieces((f"{folder}/{_number(start)}", 0, min(PART_BYTES, blob.size - start)) for start in starts)

    def promote(self, place: Place, blob: Blob) -> None:
        """See `Store.promote`."""
        if self.has(blob):
            return
        staged, target = self.read_staged(place, blob), _object(blob.digest)
        if self._files.writes_are_whole and blob.size <= PART_BYTES:
            self._files.write(target, collected(blob, staged, PART_BYTES))
            return
        draft = f"{_staged(place, blob.digest)}/{self._entropy.token(8)}"
        try:
            block = max(PART_BYTES, blob.size // _MOST_BLOCKS)
            self._files.write_all(draft, checked(blob, staged), block)
            self._files.move(draft, target)
        except BaseException:
            with suppress(ArtifactError):
                self._files.remove(draft)
            raise

    def discard(self, place: Place) -> None:
        """See `Store.discard`."""
        self._files.remove(_place(place), recursive=True)

    def places(self) -> Iterator[StagedPlace]:
        """See `Store.places`."""
        now_ms = self._now_ms()
        for place in self._named_places():
            held = self._files.below(_place(place))
            if held:
                yield StagedPlace(place, min(_age(info, now_ms) for info in held))

    def objects(self) -> Iterator[Stored]:
        """See `Store.objects`."""
        now_ms = self._now_ms()
        for shard in _SHARDS:
            found = self._files.listed(f"objects/{shard}")
            renewed = dict(self._files.listed(f"renewed/{shard}")) if found else {}
            for rest, info in found:
                if _REST.fullmatch(rest) is None:
                    continue
                age_ms = min(_age(info, now_ms), _age(renewed[rest], now_ms) if rest in renewed else now_ms)
                yield Stored(Blob(digest=shard + rest, size=info["size"]), age_ms)

    def remove(self, digest: str, min_age_ms: int = 0) -> None:
        """See `Store.remove`."""
        if min_age_ms:
            now_ms = self._now_ms()
            known = [self._files.info(path) for path in (_object(digest), _renewed(digest))]
            if any(info is not None and _age(info, now_ms) < min_age_ms for info in known):
                return
        self._files.remove(_object(digest))
        self._files.remove(_renewed(digest))

    def close(self) -> None:
        """See `Store.close`; the library lets go by itself."""

    def _named_places(self) -> Iterator[Place]:
        sites = [site for site, _ in self._files.listed("staging") if PLACE_SITE.fullmatch(site)]
        tasks = [(site, task) for site in sites for task, _ in self._files.listed(f"staging/{site}")]
        for site, task in tasks:
            if _TASK.fullmatch(task) is None:
                continue
            for name, _ in self._files.listed(f"staging/{site}/{task}"):
                if (fits := _PLACE.fullmatch(name)) is not None:
                    yield Place(site, task, int(fits[1]), fits[2])

    def _pieces(self, ranges: Iterable[tuple[str, int, int]]) -> Iterator[bytes]:
        for path, start, end in ranges:
            piece = self._files.read(path, start, end)
            if piece is None:
                raise UnknownArtifact("A content of the store was removed while it was read")
            yield piece

    def _now_ms(self) -> int:
        """The time by the clock that stamps the files, which is the store's and not this host's."""
        self._files.write(_CLOCK, b".")
        info = self._files.info(_CLOCK)
        return (changed_ms(info) if info is not None else None) or 0


def _parts(chunks: Iterable[bytes], *, is_empty: bool) -> Iterator[bytes]:
    """The same bytes in parts of the one size; the last one is what is left."""
    held: list[bytes] = []
    size = 0
    for chunk in chunks:
        held.append(chunk)
        size += len(chunk)
        while size >= PART_BYTES:
            last = held.pop()
            cut = len(last) - (size - PART_BYTES)
            part = b"".join([*held, last[:cut]])
            held, size = ([last[cut:]] if cut < len(last) else []), size - PART_BYTES
            yield part
            del part  # two at a time are enough
    if held or is_empty:
        yield b"".join(held)


def _starts(offset: int, size: int) -> range:
    return range(offset, size, PART_BYTES)


def _number(start: int) -> str:
    return f"{start // PART_BYTES:08d}"


def _age(info: Info, now_ms: int) -> int:
    """A store that does not say when a file was written keeps it for ever: nothing in it is ever old."""
    changed = changed_ms(info)
    return max(now_ms - changed, 0) if changed is not None else 0


def _object(digest: str) -> str:
    return f"objects/{digest[:2]}/{digest[2:]}"


def _renewed(digest: str) -> str:
    return f"renewed/{digest[:2]}/{digest[2:]}"


def _place(place: Place) -> str:
    return f"staging/{place.site}/{place.task_id}/{place.fence}-{place.nonce}"


def _staged(place: Place, digest: str) -> str:
    return f"{_place(place)}/{digest}"
