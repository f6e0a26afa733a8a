"""Contents of the store into files and folders of this host, each file whole or not at all, every digest checked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, final

from tenure.artifacts.base import Store
from tenure.artifacts.content import checked, file_chunks, measured
from tenure.artifacts.manifests import read_manifest
from tenure.client.uploading import Moved
from tenure.clock import Entropy
from tenure.errors import ForbiddenPath, UsageError
from tenure.protocol.artifact import Blob, Bundle, File
from tenure.protocol.message import MAX_INT

_AT_ONCE: Final = 8
_PORTION: Final = 1_000


def checked_chunks(store: Store, blob: Blob) -> Iterator[bytes]:
    """The object's bytes; the last chunk comes only when all of them have the digest that they should have.

    Raises:
        UnknownArtifact: it is not there.
        ArtifactDamaged: its bytes are others.
        ArtifactStoreUnreachable: the store does not answer.
    """
    return checked(blob, store.read(blob))


def files_of(store: Store, bundle: Bundle) -> tuple[File, ...]:
    """The files of a bundle. Raises as `checked_chunks` does, and when it is no list of files."""
    return read_manifest(bundle, store.read(bundle.manifest)).files


@final
class Download:
    """Files from a store into a folder.

    Args:
        store: where from.
        entropy: names files that are not whole yet.
        force: whether files that are there already are replaced; without it only equal ones are let be.
        moved: told of progress.
    """

    def __init__(self, store: Store, entropy: Entropy, moved: Moved, *, force: bool = False) -> None:
        self._store = store
        self._entropy = entropy
        self._moved = moved
        self._force = force

    def bundle(self, files: Sequence[File], folder: Path) -> None:
        """Put all files below `folder`, which is made when it is not there; folders made for nothing are removed again.

        Raises:
            UsageError: a file is there already with other content, or something cannot be written; in the first case
                nothing was written.
            ForbiddenPath: a link in `folder` leads elsewhere.
            UnknownArtifact, ArtifactError: see `checked_chunks`.
        """
        made: list[Path] = []
        try:
            self._bring(files, folder, made)
        except BaseException as error:
            for place in reversed(made):
                with suppress(OSError):  # one that is not empty stays
                    place.rmdir()
            if isinstance(error, OSError):
                raise UsageError(f"{error.filename or folder} cannot be written: {error.strerror}") from error
            raise

    def file(self, blob: Blob, target: Path) -> None:
        """Put one object at `target`. Raises as `bundle` does."""
        name = target.name
        if not name:
            raise UsageError(f"{target} names no file")
        self.bundle([File(path=name, blob=blob)], target.parent)

    def _bring(self, files: Sequence[File], folder: Path, made: list[Path]) -> None:
        for place in reversed([folder, *folder.parents]):
            _make_folder(place, made)
        missing = [file for file in files if not self._is_there(file.blob, folder / file.path)]
        for parent in sorted({file.path.rpartition("/")[0] for file in missing}):
            _make_folders(folder, parent, made)
        remaining: Iterator[File] = iter(missing)
        with ThreadPoolExecutor(_AT_ONCE) as fetchers:
            while portion := list(islice(remaining, _PORTION)):
                list(fetchers.map(partial(self._fetch, folder), portion))

    def _is_there(self, blob: Blob, target: Path) -> bool:
        if not os.path.lexists(target):
            return False
        if target.is_symlink() or not target.is_file():
            raise UsageError(f"{target} is there already and is no file", "Move it away, or choose another folder")
        if target.stat().st_size == blob.size and _digest_of(target) == blob.digest:
            self._moved(blob.size)
            return True
        if not self._force:
            raise UsageError(
                f"{target} is there already and is another file",
                "Move it away, or choose another folder; `tenure result` and `tenure artifacts get` have --force",
            )
        return False

    def _fetch(self, folder: Path, file: File) -> None:
        target = folder / file.path
        draft = target.with_name(f".tenure-{self._entropy.token(8)}")
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            with os.fdopen(descriptor, "wb") as written:
                for chunk in checked_chunks(self._store, file.blob):
                    written.write(chunk)
                    self._moved(len(chunk))
                if file.executable:
                    mode = os.fstat(descriptor).st_mode
                    os.fchmod(descriptor, mode | (mode & 0o444) >> 2)
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)


def _make_folder(place: Path, made: list[Path]) -> None:
    if not place.is_dir():
        place.mkdir(exist_ok=True)
        made.append(place)


def _make_folders(folder: Path, parent: str, made: list[Path]) -> None:
    place = folder
    for part in filter(None, parent.split("/")):
        place /= part
        if place.is_symlink():
            raise ForbiddenPath(f"{place} is a link and leads elsewhere", "Choose another folder")
        _make_folder(place, made)


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return measured(file_chunks(file.fileno(), MAX_INT)).digest
