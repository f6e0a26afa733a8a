"""From the store to a folder: each file is written under a name of its own, compared, and then given its name.

Nothing is written outside of the folder, whatever a manifest says and whatever links lie there already.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from tenure.artifacts.below import forbidden, make_folder, root_folder
from tenure.artifacts.content import checked
from tenure.artifacts.manifests import read_manifest
from tenure.protocol.artifact import Blob, Bundle

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tenure.artifacts.base import Store
    from tenure.artifacts.stopping import Stop
    from tenure.protocol.artifact import Input

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PLAIN: Final = 0o666
_EXECUTABLE: Final = 0o777


@final
@dataclass(slots=True)
class Unpacker:
    """Fetches contents into one folder."""

    store: Store
    stop: Stop
    files: int = 0
    """How many files were written."""
    size: int = 0
    """How many bytes they hold."""
    _open: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])

    def fetch(self, folder: str, wanted: Iterable[Input]) -> None:
        """Write all of it below the folder, which is made when it is not there.

        Raises `UnknownArtifact`, `ArtifactDamaged`, `ForbiddenPath`, or OSError for the folder's own disk.
        """
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - the other calls here have no Path form either
        with root_folder(folder) as root:
            try:
                for one in wanted:
                    self._fetch_one(root, one)
            finally:
                self._leave(0)

    def _fetch_one(self, root: int, wanted: Input) -> None:
        if isinstance(wanted.content, Blob):
            self._write(root, wanted.path, wanted.content, executable=False)
            return
        bundle: Bundle = wanted.content
        manifest = read_manifest(bundle, self.store.read(bundle.manifest))
        if not manifest.files:
            self._enter(root, f"{wanted.path}/")
        for file in manifest.files:
            self._write(root, f"{wanted.path}/{file.path}", file.blob, executable=file.executable)

    def _write(self, root: int, path: str, blob: Blob, *, executable: bool) -> None:
        self.stop.check()
        folder, name = self._enter(root, path), path.rpartition("/")[2]
        temporary = f".{blob.digest[:16]}.part"
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        descriptor = os.open(temporary, _NEW, _EXECUTABLE if executable else _PLAIN, dir_fd=folder)
        try:
            with open(descriptor, "wb", buffering=0) as written:  # noqa: PTH123 - a descriptor has no path
                for chunk in checked(blob, self.stop.between(self.store.read(blob))):
                    _write_all(written.fileno(), chunk)
            self._give_name(folder, temporary, name, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
        self.files += 1
        self.size += blob.size

    def _give_name(self, folder: int, temporary: str, name: str, path: str) -> None:
        try:
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except (IsADirectoryError, NotADirectoryError):
            raise forbidden(path, "is a folder, where a file is to be written") from None

    # --- the folders on the way -----------------------------------------------------------------

    def _enter(self, root: int, path: str) -> int:
        """The open folder that `path` lies in. Those on the way stay open for the next path, which is near."""
        parts = path.split("/")[:-1]
        common = 0
        while common < min(len(parts), len(self._open)) and self._open[common][0] == parts[common]:
            common += 1
        self._leave(common)
        for depth in range(common, len(parts)):
            above = self._open[-1][1] if self._open else root
            opened = make_folder(above, parts[depth], "/".join(parts[: depth + 1]))
            self._open.append((parts[depth], opened))
        return self._open[-1][1] if self._open else root

    def _leave(self, depth: int) -> None:
        while len(self._open) > depth:
            os.close(self._open.pop()[1])


def _write_all(descriptor: int, chunk: bytes) -> None:
    rest = memoryview(chunk)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
