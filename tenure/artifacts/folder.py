"""A store in a folder that all hosts share, such as an NFS mount.

    objects/ab/cdef...                                whole, compared, never changed
    staging/<site>/<task>/<fence>-<nonce>/<digest>    as many bytes as have come so far

An object comes into being by a rename, so nobody ever sees half of one. Before that it is read to its last byte.

The folder itself is not made here: one that is missing is most likely not mounted.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from tenure.artifacts.base import PLACE_SITE, Place, StagedPlace, Stored
from tenure.artifacts.content import damaged, file_chunks, verify
from tenure.artifacts.folder_files import (
    MS,
    changed_ms,
    is_same,
    is_whole,
    make_folders,
    names,
    opened,
    sync_folder,
    write_all,
)
from tenure.errors import ArtifactStoreFull, ArtifactStoreUnreachable, UnknownArtifact
from tenure.protocol.artifact import Blob

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

_STAGE: Final = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_TASK: Final = re.compile(r"[0-9A-Z]{26}")
_PLACE: Final = re.compile(r"([1-9][0-9]*)-([0-9a-f]{16,64})")
_COMPARISONS: Final = 5
OBJECTS: Final = "objects"
STAGING: Final = "staging"


@final
class FolderStore:
    """See `tenure.artifacts.base.Store`.

    Args:
        folder: where the store is.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._objects = folder / OBJECTS
        self._staging = folder / STAGING

    def has(self, blob: Blob, *, renew: bool = False) -> bool:
        """See `Store.has`."""
        with self._translated():
            path = self._object(blob.digest)
            try:
                if not is_whole(path, blob):
                    return False
                if renew:
                    # A folder that several users write to may refuse this; then the content is sent once more.
                    os.utime(path, follow_symlinks=False)
            except (FileNotFoundError, PermissionError):
                return False
            return True

    def read(self, blob: Blob, offset: int = 0) -> Iterator[bytes]:
        """See `Store.read`."""
        return self._read(self._object(blob.digest), blob, offset)

    def staged_bytes(self, place: Place, blob: Blob) -> int:
        """See `Store.staged_bytes`."""
        with self._translated():
            try:
                state = os.lstat(self._staged(place, blob.digest))
            except FileNotFoundError:
                return 0
            return min(state.st_size, blob.size) if stat.S_ISREG(state.st_mode) else 0

    def stage(self, place: Place, blob: Blob, offset: int, chunks: Iterable[bytes]) -> None:
        """See `Store.stage`."""
        path, begins = self._staged(place, blob.digest), offset == 0
        with self._translated():
            self._check_is_there()
            make_folders(path.parent)
            descriptor = os.open(path, _STAGE, 0o666)
        try:
            with self._translated():
                os.ftruncate(descriptor, offset)
            for chunk in chunks:
                with self._translated():
                    write_all(descriptor, chunk, offset)
                offset += len(chunk)
        finally:
            # Also after an interruption: what is there counts as staged, so it must not be lost with the power.
            with self._translated():
                os.fsync(descriptor)
                os.close(descriptor)
                if begins:
                    sync_folder(path.parent)

    def read_staged(self, place: Place, blob: Blob) -> Iterator[bytes]:
        """See `Store.read_staged`."""
        if self.has(blob):
            return self.read(blob)
        if self.staged_bytes(place, blob) < blob.size:
            raise UnknownArtifact(f"The content {blob.digest[:12]}… is not staged whole")
        return self._read(self._staged(place, blob.digest), blob, 0)

    def promote(self, place: Place, blob: Blob) -> None:
        """See `Store.promote`."""
        if self.has(blob):
            return
        try:
            self._promote(place, blob)
        except UnknownArtifact:
            if not self.has(blob):  # else somebody has promoted the same content at the same time
                raise

    def _promote(self, place: Place, blob: Blob) -> None:
        if self.staged_bytes(place, blob) < blob.size:
            raise UnknownArtifact(f"The content {blob.digest[:12]}… is not staged whole")
        source, target = self._staged(place, blob.digest), self._object(blob.digest)
        with self._translated(), opened(source, blob) as descriptor:
            _compare(descriptor, blob)
            os.fsync(descriptor)
            os.fchmod(descriptor, os.fstat(descriptor).st_mode & 0o444 | 0o400)
            os.utime(descriptor)  # an object's age begins now
            make_folders(target.parent)
            try:
                source.rename(target)
            except FileNotFoundError:
                raise UnknownArtifact(f"The content {blob.digest[:12]}… was discarded meanwhile") from None
            sync_folder(target.parent)

    def discard(self, place: Place) -> None:
        """See `Store.discard`."""
        folder = self._place(place)
        with self._translated():
            try:
                shutil.rmtree(folder)
            except FileNotFoundError:
                pass
            except OSError:
                if not folder.is_symlink():
                    raise
                folder.unlink()
            with suppress(OSError):  # another attempt's place is there, too, or just came
                folder.parent.rmdir()

    def places(self) -> Iterator[StagedPlace]:
        """See `Store.places`."""
        with self._translated():
            now_ms = self._now_ms()
            for place in self._named_places():
                folder = self._place(place)
                ages = [changed_ms(folder / held) for held in names(folder, _DIGEST)]
                # A place without anything is what a crash between two steps leaves; it is told, to be discarded.
                newest = max([*ages, changed_ms(folder)])
                yield StagedPlace(place, max(now_ms - newest, 0))

    def objects(self) -> Iterator[Stored]:
        """See `Store.objects`."""
        with self._translated():
            now_ms = self._now_ms()
            for first in names(self._objects, re.compile(r"[0-9a-f]{2}")):
                for rest in names(self._objects / first, re.compile(r"[0-9a-f]{62}")):
                    with suppress(FileNotFoundError):
                        state = os.lstat(self._objects / first / rest)
                        blob = Blob(digest=first + rest, size=state.st_size)
                        yield Stored(blob, max(now_ms - state.st_mtime_ns // MS, 0))

    def remove(self, digest: str, min_age_ms: int = 0) -> None:
        """See `Store.remove`."""
        path = self._object(digest)
        with self._translated(), suppress(FileNotFoundError):
            if not min_age_ms or self._now_ms() - changed_ms(path) >= min_age_ms:
                path.unlink()

    def close(self) -> None:
        """See `Store.close`; there is nothing to let go of."""

    # --- paths ----------------------------------------------------------------------------------

    def _object(self, digest: str) -> Path:
        _check(_DIGEST, digest)
        return self._objects / digest[:2] / digest[2:]

    def _place(self, place: Place) -> Path:
        task = self._staging / _check(PLACE_SITE, place.site) / _check(_TASK, place.task_id)
        return task / _check(_PLACE, f"{place.fence}-{place.nonce}")

    def _staged(self, place: Place, digest: str) -> Path:
        return self._place(place) / _check(_DIGEST, digest)

    def _named_places(self) -> Iterator[Place]:
        for site in names(self._staging, PLACE_SITE):
            for task in names(self._staging / site, _TASK):
                for name in names(self._staging / site / task, _PLACE):
                    fence, _, nonce = name.partition("-")
                    yield Place(site, task, int(fence), nonce)

    # --- reading --------------------------------------------------------------------------------

    def _read(self, path: Path, blob: Blob, offset: int) -> Iterator[bytes]:
        with self._translated(), opened(path, blob) as descriptor:
            # To its end: a file that has more in it is not what its name says.
            yield from file_chunks(descriptor, max(blob.size, os.fstat(descriptor).st_size), offset)

    def _now_ms(self) -> int:
        """The time by the clock that stamps the files, which is a file server's and not this host's."""
        self._check_is_there()
        try:
            with tempfile.TemporaryFile(dir=self._folder, prefix=".clock-", buffering=0) as probe:
                probe.write(b".")
                return os.fstat(probe.fileno()).st_mtime_ns // MS
        except OSError as error:
            if error.errno not in _FULL:
                raise
        # Without a byte: in a full store nothing is wanted more than a collection.
        os.utime(self._folder)
        return changed_ms(self._folder)

    def _check_is_there(self) -> None:
        if not self._folder.is_dir():
            raise ArtifactStoreUnreachable(
                f"The folder of artifacts {self._folder} is not there", "Mount it on this host, or make it"
            )

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or type(error).__name__
            where = f"the folder of artifacts {self._folder}"
            if error.errno in _FULL:
                raise ArtifactStoreFull(f"There is no room in {where}: {reason}", "Free space there") from error
            raise ArtifactStoreUnreachable(
                f"Something in {where} cannot be read or written: {reason}", "Check the mount and who may write there"
            ) from error


def _compare(descriptor: int, blob: Blob) -> None:
    """Read the file; again when it was changed meanwhile, if only by another promotion, which sets its time."""
    for _ in range(_COMPARISONS):
        before = os.fstat(descriptor)
        verify(blob, file_chunks(descriptor, before.st_size))
        if is_same(os.fstat(descriptor), before):
            return
    raise damaged(blob, "somebody writes to it while it is compared")


def _check(pattern: re.Pattern[str], name: str) -> str:
    """The name, when it is one that this store gives: names become paths here."""
    if pattern.fullmatch(name) is None:
        raise UnknownArtifact(f"{name!r} names nothing that a store of artifacts may hold")
    return name
