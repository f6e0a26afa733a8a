"""A client's way to the store of files: what tasks are given, and what they leave.

The store is opened when it is first needed, so a client that moves no files needs none. Safe to share between threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import Final, TypeAlias, TypeVar, final

from pydantic import ValidationError

from tenure.artifacts.base import Place, Store, uploads_of
from tenure.artifacts.manifests import read_manifest
from tenure.broker.keys import DEFAULT_PERSON
from tenure.client.downloading import Download, checked_chunks, files_of
from tenure.client.uploading import Moved, Upload, local_files
from tenure.clock import Clock, Entropy
from tenure.errors import ArtifactError, UnknownArtifact, UsageError
from tenure.protocol.artifact import Blob, Bundle, File, Input
from tenure.protocol.message import describe

Given: TypeAlias = str | Path | Blob | Bundle
"""What a task may be given as an input: a file or folder of this host, or a content that is in the store already."""

OpenStore: TypeAlias = Callable[[], Store]

_DIGITS: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PLACE_PREFIX: Final = "UPLOAD"
_ID_LENGTH: Final = 26
_LOOK_MS: Final = 100
_ON_ITS_WAY_MS: Final = 60_000
_Stamp: TypeAlias = tuple[str, int, int, int]
_Content = TypeVar("_Content", Blob, Bundle)


def _silent(_: int) -> None:
    return


@final
class Contents:
    """See the module.

    Args:
        open_store: opens the store; raises `UsageError` when the fleet has none.
        clock: paces waiting for a content that is on its way.
        entropy: names places and files that are not whole yet.
        person: who uploads.
    """

    def __init__(self, open_store: OpenStore, clock: Clock, entropy: Entropy, person: str = DEFAULT_PERSON) -> None:
        self._open_store = open_store
        self._clock = clock
        self._entropy = entropy
        self._uploads = uploads_of(person)
        self._lock = Lock()
        self._opened: Store | None = None
        self._sent: dict[_Stamp, Future[Blob]] = {}

    @property
    def store(self) -> Store:
        """The store, opened once."""
        with self._lock:
            if self._opened is None:
                self._opened = self._open_store()
            return self._opened

    def upload(self, path: str | Path, moved: Moved = _silent) -> Blob | Bundle:
        """A file as a blob, a folder as a bundle; what the store has already is not sent again.

        Raises:
            UsageError: it is not there, cannot be read, or was changed meanwhile.
            ForbiddenPath: the folder holds something that is neither a file nor a folder.
            ArtifactError: the store is full, away or refuses.
        """
        source = Path(path)
        files = list(local_files(source))
        if source.is_dir():
            return self._staging(lambda upload: upload.folder(files), moved)
        stamp = _stamp(source)
        with self._lock:
            known = self._sent.get(stamp)
            mine: Future[Blob] = Future()
            if known is None:
                self._sent[stamp] = mine
        if known is not None:
            # Another task of this client is given the same file: one upload serves both.
            blob = known.result()
            moved(blob.size)
            return blob
        try:
            blob = self._staging(lambda upload: upload.file(files[0]), moved)
        except BaseException as error:
            with self._lock:
                del self._sent[stamp]
            mine.set_exception(error)
            raise
        mine.set_result(blob)
        return blob

    def inputs(self, given: Mapping[str, Given]) -> tuple[Input, ...]:
        """The inputs as an envelope names them, uploaded first where they are paths. Raises as `upload` does."""
        named = [(_input(path, Blob(digest="0" * 64, size=0)), content) for path, content in sorted(given.items())]
        refuse_nested(given)  # a wrong name costs no upload
        found: list[Input] = []
        for checked, content in named:
            ready = content if isinstance(content, Blob | Bundle) else self.upload(content)
            found.append(checked.model_copy(update={"content": ready}))
        return tuple(found)

    def download(self, content: Blob | Bundle, target: Path, moved: Moved = _silent, *, force: bool = False) -> None:
        """Put a bundle's files below the folder `target`, or a blob's bytes into the file `target`.

        Raises:
            UsageError: a file is there already with other content (unless `force`), or cannot be written.
            UnknownArtifact, ArtifactError: the store does not have it, or what it has is damaged.
        """
        if isinstance(content, Blob):
            Download(self.store, self._entropy, moved, force=force).file(content, target)
        else:
            self.unpack(self.files(content), target, moved, force=force)

    def unpack(self, files: Sequence[File], target: Path, moved: Moved = _silent, *, force: bool = False) -> None:
        """Put some files of a bundle below the folder `target`. Raises as `download` does."""
        Download(self.store, self._entropy, moved, force=force).bundle(files, target)

    def fetch(self, bundle: Bundle, folder: Path, force: bool) -> None:  # noqa: FBT001 - `handle.Fetch`
        """Download what a task has left, which may still be on its way to its place. Raises as `download` does."""
        self.await_bundle(bundle, _ON_ITS_WAY_MS)
        self.download(bundle, folder, force=force)

    def files(self, bundle: Bundle) -> tuple[File, ...]:
        """The files of a bundle. Raises `UnknownArtifact` and `ArtifactError`s."""
        return files_of(self.store, bundle)

    def staged_files(self, place: Place, bundle: Bundle) -> tuple[File, ...]:
        """The files of a bundle that waits in a staging place. Raises `UnknownArtifact` and `ArtifactError`s."""
        chunks = self.store.read_staged(place, bundle.manifest)
        return read_manifest(bundle, chunks).files

    def read(self, blob: Blob) -> Iterator[bytes]:
        """An object's bytes, checked. Raises `UnknownArtifact` and `ArtifactError`s."""
        return checked_chunks(self.store, blob)

    def await_bundle(self, bundle: Bundle, patience_ms: int) -> None:
        """Wait until an accepted bundle has been moved to its place, where its list comes last.

        Raises `UnknownArtifact` when it is not there in time.
        """
        until_ms = self._clock.elapsed_ms() + patience_ms
        while not self.store.has(bundle.manifest):
            if self._clock.elapsed_ms() >= until_ms:
                raise UnknownArtifact(
                    f"the store does not hold {bundle.manifest.digest}",
                    "It may still be on its way; see `tenure artifacts list`",
                )
            self._clock.sleep_ms(_LOOK_MS)

    def close(self) -> None:
        """Let go of the store."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _staging(self, work: Callable[[Upload], _Content], moved: Moved) -> _Content:
        store, place = self.store, self._place()
        try:
            return work(Upload(store, place, moved))
        finally:
            with suppress(ArtifactError):  # what stays behind is collected later
                store.discard(place)

    def _place(self) -> Place:
        rest = (_DIGITS[self._entropy.below(len(_DIGITS))] for _ in range(_ID_LENGTH - len(_PLACE_PREFIX)))
        return Place(self._uploads, _PLACE_PREFIX + "".join(rest), 1, self._entropy.token(16))


def refuse_nested(names: Iterable[str]) -> None:
    """Raise `UsageError` when an input would lie inside another one, which has its own place for itself."""
    known = frozenset(names)
    for name in sorted(known):
        outer = next((str(parent) for parent in PurePosixPath(name).parents if str(parent) in known), None)
        if outer is not None:
            raise UsageError(
                f"the input {name!r} would lie inside the input {outer!r}",
                "Give them names of which none lies in another, or give one folder that holds both",
            )


def _input(path: str, content: Blob | Bundle) -> Input:
    try:
        return Input(path=path, content=content)
    except ValidationError as error:
        raise UsageError(f"an input cannot be called {path[:80]!r}: {describe(error)}") from None


def _stamp(path: Path) -> _Stamp:
    found = path.stat()
    return (str(path.absolute()), found.st_ino, found.st_size, found.st_mtime_ns)
