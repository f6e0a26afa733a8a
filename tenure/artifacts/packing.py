"""From a folder to a bundle: every file is staged once by its content, then the manifest.

Two passes over each file, the second while it is sent: a content must be named before it can be staged. When the two
do not agree, somebody still writes there, and nothing of that content is complete in the staging place. Small files go
side by side.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, final

from tenure.artifacts.below import entries, file_in, folder_below, forbidden, kind_of, root_folder, shown
from tenure.artifacts.content import blob_of, checked, file_chunks, measured
from tenure.artifacts.side_by_side import portions, side_by_side, small_side_by_side
from tenure.errors import ArtifactDamaged, PayloadTooLarge, TooManyFiles, UnknownArtifact
from tenure.protocol.artifact import (
    MAX_FILES,
    MAX_MANIFEST_BYTES,
    Bundle,
    File,
    checked_path,
    encode_manifest,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tenure.artifacts.base import Place, Store
    from tenure.artifacts.stopping import Stop
    from tenure.artifacts.turns import Turns

_TRIES: Final = 3


@final
@dataclass(frozen=True, slots=True)
class Packer:
    """Stages folders in one place of a store."""

    store: Store
    place: Place
    stop: Stop
    most_files: int
    turns: Turns

    def collect(self, folder: str, *, skip_empty: bool) -> Bundle | None:
        """Stage every file below the folder; a folder that is not there is empty. `skip_empty`: None for no file.

        Raises `ForbiddenPath`, `TooManyFiles`, `ArtifactError`.
        """
        try:
            with root_folder(folder) as root:
                names = self._names(self._walk(root, ""))
                return None if skip_empty and not names else self._stage_all(root, names)
        except FileNotFoundError:
            if os.path.lexists(folder):
                raise
            return None if skip_empty else self._finish([])

    def save(self, folder: str, path: str) -> Bundle:
        """Stage one file or folder below the folder, under paths that begin with its own name.

        A program may run beside this: what it changes meanwhile is read again, a few times.
        """
        try:
            checked_path(path)
        except ValueError as error:
            raise forbidden(path, f"is no path of a checkpoint: {error}") from None
        for last in (*[False] * (_TRIES - 1), True):
            try:
                return self._save_once(folder, path)
            except FileNotFoundError:
                if last:
                    raise UnknownArtifact(f"There is no file or folder {shown(path)}") from None
            except ArtifactDamaged:
                if last:
                    raise
        raise AssertionError("unreachable")

    def _save_once(self, folder: str, path: str) -> Bundle:
        parent, _, name = path.rpartition("/")
        with root_folder(folder) as root, folder_below(root, parent) as top:
            found = os.stat(name, dir_fd=top, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                return self._stage_all(top, self._names(self._walk(top, name)))
            return self._stage_all(top, [self._accepted(name, found)])

    # --- finding --------------------------------------------------------------------------------

    def _walk(self, root: int, start: str) -> Iterator[str]:
        """The path of every file below `start`; only one folder is open at a time, however deep they are."""
        folders, seen = [start], 0
        while folders:
            self.stop.check()
            current = folders.pop()
            with folder_below(root, current) as descriptor:
                found = list(entries(descriptor, current))
            for name, state in found:
                path = self._accepted(f"{current}/{name}" if current else name, state)
                if not stat.S_ISDIR(state.st_mode):
                    yield path
                    continue
                folders.append(path)
                seen += 1
                if seen > MAX_FILES:
                    raise TooManyFiles(f"There are more than {MAX_FILES} folders")

    def _accepted(self, path: str, state: os.stat_result) -> str:
        if not stat.S_ISREG(state.st_mode) and not stat.S_ISDIR(state.st_mode):
            raise forbidden(path, f"is {kind_of(state.st_mode)}")
        try:
            return checked_path(path)
        except ValueError as error:
            raise forbidden(path, f"has a name that is not taken: {error}") from None

    def _names(self, paths: Iterator[str]) -> list[str]:
        """All paths, before anything is sent: a forbidden one, or one too many, must not cost an upload of the rest."""
        limit = min(self.most_files, MAX_FILES)
        names = list(islice(paths, limit + 1))
        if len(names) > limit:
            raise TooManyFiles(f"There are more than {limit} files", "Pack them into an archive")
        return names

    # --- staging --------------------------------------------------------------------------------

    def _stage_all(self, root: int, names: list[str]) -> Bundle:
        files: list[File] = []
        staged: set[str] = set()
        for portion in portions(names):
            named = side_by_side(partial(self._named, root), portion)
            fresh = {file.blob.digest: file for file in named if file.blob.digest not in staged}
            small_side_by_side(partial(self._stage, root), fresh.values(), lambda file: file.blob.size)
            staged.update(fresh)
            files.extend(named)
        return self._finish(files)

    def _named(self, root: int, path: str) -> File:
        """The file as the manifest will name it."""
        with self._opened(root, path) as (descriptor, state):
            blob = measured(self.stop.between(file_chunks(descriptor, state.st_size)))
        return File(path=path, blob=blob, executable=bool(state.st_mode & stat.S_IXUSR))

    def _stage(self, root: int, file: File) -> None:
        with self.turns.of(file.blob):
            # A save that was given up may still be at it, and would cut off what is staged beside it.
            self.stop.check()
            if self.store.has(file.blob, renew=True):
                return
            done = self.store.staged_bytes(self.place, file.blob)
            with self._opened(root, file.path) as (descriptor, state):
                # To the end that it has now: a file that has grown since is no longer what was named.
                whole = self.stop.between(file_chunks(descriptor, state.st_size))
                self.store.stage(self.place, file.blob, done, checked(file.blob, whole, done))

    @contextmanager
    def _opened(self, root: int, path: str) -> Generator[tuple[int, os.stat_result]]:
        parent, _, name = path.rpartition("/")
        with folder_below(root, parent) as folder, file_in(folder, name, path) as opened:
            yield opened

    def _finish(self, files: list[File]) -> Bundle:
        raw = encode_manifest(tuple(files))
        if len(raw) > MAX_MANIFEST_BYTES:
            raise PayloadTooLarge(
                f"The list of {len(files)} files is over {MAX_MANIFEST_BYTES} bytes",
                "Use shorter names, or fewer files",
            )
        manifest = blob_of(raw)
        if not self.store.has(manifest, renew=True):
            self.store.stage(self.place, manifest, 0, iter([raw]))
        return Bundle(manifest=manifest, files=len(files), size=sum(file.blob.size for file in files))
