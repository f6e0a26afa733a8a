"""Files and folders of this host into the store: hashed first, sent only when they are not there, checked at the end.

A content becomes an object only by its promotion, which checks the digest: an upload that breaks off, or a file that
changes meanwhile, leaves nothing that anybody could mistake for it.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import BinaryIO, Final, TypeAlias, final

from tenure.artifacts.base import Place, Store
from tenure.artifacts.content import CHUNK_BYTES, measured
from tenure.artifacts.turns import Turns
from tenure.errors import ArtifactDamaged, ArtifactStoreUnreachable, ForbiddenPath, UsageError
from tenure.protocol.artifact import MAX_FILES, Blob, Bundle, File, checked_path, encode_manifest

Moved: TypeAlias = Callable[[int], object]
"""Told of every portion of bytes that has been dealt with, in any thread."""

_TRIES: Final = 3
_AT_ONCE: Final = 8
_PORTION: Final = 1_000


@final
@dataclass(frozen=True, slots=True)
class Local:
    """One file of this host: where it lies, its path in the bundle, its size, and whether it can be run."""

    source: Path
    path: str
    size: int
    executable: bool


def local_files(path: Path) -> Iterator[Local]:
    """The file, or every file below the folder.

    Raises:
        UsageError: it is not there or cannot be read.
        ForbiddenPath: something in it is neither a file nor a folder, or has a name that cannot travel.
    """
    try:
        found = path.stat()
        if S_ISREG(found.st_mode):
            yield Local(path, path.name, found.st_size, bool(found.st_mode & 0o100))
        elif S_ISDIR(found.st_mode):
            yield from _below(path, "")
        else:
            raise ForbiddenPath(f"{path} is neither a file nor a folder")
    except OSError as error:
        raise UsageError(f"{error.filename or path} cannot be read: {error.strerror}") from error


def _below(folder: Path, prefix: str) -> Iterator[Local]:
    with os.scandir(folder) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        found = entry.stat(follow_symlinks=False)
        if S_ISDIR(found.st_mode):
            yield from _below(folder / entry.name, f"{prefix}{entry.name}/")
        elif S_ISREG(found.st_mode):
            source = folder / entry.name
            yield Local(source, _travelling(prefix + entry.name, source), found.st_size, bool(found.st_mode & 0o100))
        else:
            raise ForbiddenPath(
                f"{folder / entry.name} is a link, a device or a pipe", "Put the file itself there, or leave it out"
            )


def _travelling(path: str, source: Path) -> str:
    try:
        return checked_path(path)
    except ValueError as error:
        raise ForbiddenPath(f"{str(source)!r} cannot be sent: {error}") from None


@final
class Upload:
    """One upload into a store.

    Args:
        store: where to.
        place: where it is staged; nobody else's.
        moved: told of progress.
    """

    def __init__(self, store: Store, place: Place, moved: Moved) -> None:
        self._store = store
        self._place = place
        self._moved = moved
        # A folder may hold the same content many times, and several files are sent at once.
        self._turns = Turns()

    def file(self, local: Local) -> Blob:
        """The file as an object. Raises `UsageError` when it cannot be read, `ArtifactError`s of the store."""
        try:
            # Opened once: what is sent is what was hashed, even if another file takes its place meanwhile.
            with local.source.open("rb") as file:
                return self._content(file, str(local.source))
        except OSError as error:
            raise UsageError(f"{local.source} cannot be read: {error.strerror}") from error

    def folder(self, files: Sequence[Local]) -> Bundle:
        """The files and their manifest as objects. Errors as of `file`."""
        if len(files) > MAX_FILES:
            raise UsageError(
                f"the folder holds {len(files)} files", f"At most {MAX_FILES} can travel together; pack it"
            )
        remaining = iter(files)
        entries: list[File] = []
        with ThreadPoolExecutor(_AT_ONCE) as senders:
            while portion := list(islice(remaining, _PORTION)):
                blobs = list(senders.map(self.file, portion))
                entries += [
                    File(path=local.path, blob=blob, executable=local.executable)
                    for local, blob in zip(portion, blobs, strict=True)
                ]
        raw = encode_manifest(tuple(entries))
        manifest = self._content(io.BytesIO(raw), "the list of files", told=False)
        return Bundle(manifest=manifest, files=len(entries), size=sum(entry.blob.size for entry in entries))

    def _content(self, file: BinaryIO, name: str, *, told: bool = True) -> Blob:
        blob = measured(_chunks(file, 0, _unheard))
        moved: Moved = self._moved if told else _unheard
        with self._turns.of(blob):
            if self._store.has(blob, renew=True):
                moved(blob.size)
                return blob
            try:
                self._stage(file, blob, moved)
                self._store.promote(self._place, blob)
            except ArtifactDamaged:
                remedy = "Send it again when nobody writes it"
                raise UsageError(f"{name} was changed while it was sent", remedy) from None
        return blob

    def _stage(self, file: BinaryIO, blob: Blob, moved: Moved) -> None:
        for tries in range(1, _TRIES + 1):
            try:
                offset = self._store.staged_bytes(self._place, blob)
                self._store.stage(self._place, blob, offset, _chunks(file, offset, moved))
            except ArtifactStoreUnreachable:
                if tries == _TRIES:
                    raise
            else:
                return


def _unheard(_: int) -> None:
    return


def _chunks(file: BinaryIO, offset: int, moved: Moved) -> Iterator[bytes]:
    file.seek(offset)
    while chunk := file.read(CHUNK_BYTES):
        yield chunk
        moved(len(chunk))
