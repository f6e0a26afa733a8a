"""The files of an object store through `fsspec`: the few calls that are made, and what their errors mean.

Libraries put into their errors what they were told, so every text is searched for the options' values before it
leaves: keys must not reach a log or a dashboard.
"""

from __future__ import annotations

import errno
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from importlib import import_module
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, final

from tenure.artifacts.side_by_side import SMALL_BYTES
from tenure.errors import ArtifactStoreFull, ArtifactStoreUnreachable, InvalidSettings, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_TIMES: Final = ("LastModified", "last_modified", "mtime", "updated", "modified", "created")
_MOST_TEXT: Final = 300
_SHORT: Final = 4
_AT_ONCE: Final = 2
"""How many large parts are on their way at a time: each is held several times over by the libraries below."""

_FLAT: Final = frozenset({"abfs", "abfss", "az", "gcs", "gs", "memory", "s3", "s3a"})
"""Object stores proper: no folders to be made (asked to make one, some make a bucket), and every write is atomic."""

Info = dict[str, Any]


class _FileSystem(Protocol):
    """What is used of `fsspec`'s file systems, with the types that they do not state."""

    def info(self, path: str) -> Info: ...
    def ls(self, path: str, detail: bool = ...) -> list[Info]: ...  # noqa: FBT001 - theirs
    def find(self, path: str, *, detail: bool = ...) -> dict[str, Info]: ...
    def cat_file(self, path: str, *, start: int, end: int) -> bytes: ...
    def pipe_file(self, path: str, value: bytes) -> object: ...
    def open(self, path: str, mode: str, block_size: int) -> Any: ...  # noqa: ANN401 - a file of the library's own
    def makedirs(self, path: str, exist_ok: bool = ...) -> None: ...  # noqa: FBT001 - theirs
    def mv(self, path1: str, path2: str) -> object: ...
    def rm(self, path: str, recursive: bool = ...) -> object: ...  # noqa: FBT001 - theirs


@final
class ObjectFiles:
    """Files below one root. Safe to use from several threads.

    Args:
        system: the opened file system.
        root: what all paths are below.
        options: what the library was told; kept out of messages.
        protocol: the kind of file system, as the address names it.
    """

    def __init__(self, system: _FileSystem, root: str, options: Mapping[str, object], protocol: str) -> None:
        self._system = system
        self._root = root.rstrip("/")
        self._secrets = tuple(sorted(_texts(options), key=len, reverse=True))
        self._name = f"The {protocol}:// store of artifacts"
        self._is_flat = protocol in _FLAT
        self._moving = BoundedSemaphore(_AT_ONCE)

    @property
    def writes_are_whole(self) -> bool:
        """Whether a file appears only when it has been written to its end."""
        return self._is_flat

    def info(self, path: str) -> Info | None:
        """What is known about a file; None when it is not there."""
        with self._translated():
            try:
                return self._system.info(self._at(path))
            except FileNotFoundError:
                return None

    def listed(self, path: str) -> list[tuple[str, Info]]:
        """Name and info of everything directly below, sorted by name; nothing when it is not there."""
        with self._translated():
            try:
                found = self._system.ls(self._at(path), detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return []
        return sorted((str(info["name"]).rstrip("/").rpartition("/")[2], info) for info in found)

    def below(self, path: str) -> list[Info]:
        """The info of every file below, however deep."""
        with self._translated():
            try:
                return list(self._system.find(self._at(path), detail=True).values())
            except FileNotFoundError:
                return []

    def read(self, path: str, start: int, end: int) -> bytes | None:
        """That range of a file; None when it is not there."""
        with self._turn(end - start), self._translated():
            try:
                return self._system.cat_file(self._at(path), start=start, end=end) if end > start else b""
            except FileNotFoundError:
                return None

    def write(self, path: str, raw: bytes) -> None:
        """A whole file at once."""
        with self._turn(len(raw)), self._translated():
            self._make_parent(path)
            self._system.pipe_file(self._at(path), raw)

    def write_all(self, path: str, chunks: Iterable[bytes], block_bytes: int) -> None:
        """A file that is larger than memory should hold. When the chunks break off, what is there is not whole."""
        with self._translated():
            self._make_parent(path)
            file = self._system.open(self._at(path), "wb", block_bytes)
        try:
            for chunk in chunks:
                with self._turn(len(chunk)), self._translated():
                    file.write(chunk)
        except BaseException:
            _give_up(file)
            raise
        with self._translated():
            file.close()

    def move(self, path: str, target: str) -> None:
        """Give a file another name; it is there under that name whole or not at all."""
        with self._translated():
            self._make_parent(target)
            self._system.mv(self._at(path), self._at(target))

    def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file or a whole folder; nothing happens when it is not there."""
        with self._translated():
            try:
                self._system.rm(self._at(path), recursive=recursive)
            except FileNotFoundError:
                return

    def _turn(self, size: int) -> AbstractContextManager[object]:
        return self._moving if size > SMALL_BYTES else nullcontext()

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _make_parent(self, path: str) -> None:
        parent = self._at(path).rpartition("/")[0]
        if not self._is_flat:
            self._system.makedirs(parent, exist_ok=True)

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - each library has errors of its own
            text = self._scrubbed(error)
            if isinstance(error, OSError) and error.errno in _FULL:
                raise ArtifactStoreFull(f"There is no room in {self._name}: {text}", "Free space there") from None
            # Without the cause: it would bring the text that was just cleaned into every traceback.
            raise ArtifactStoreUnreachable(
                f"{self._name} cannot be used: {text}", "Check its address, the options file, and the rights"
            ) from None

    def _scrubbed(self, error: Exception) -> str:
        text = f"{type(error).__name__}: {error}"
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return " ".join(text.split())[:_MOST_TEXT]


def open_files(address: str, protocol: str, options: dict[str, object]) -> ObjectFiles:
    """The files at a URL. Raises `MissingExtra` and `InvalidSettings`."""
    extra = "s3" if protocol in {"s3", "s3a"} else "artifacts"
    try:
        to_system = cast("Callable[..., tuple[_FileSystem, str]]", import_module("fsspec.core").url_to_fs)
        # Not kept in the library's own cache, which never forgets a key; and no listing from before.
        system, root = to_system(address, skip_instance_cache=True, use_listings_cache=False, **options)
    except ImportError:
        raise MissingExtra(
            f"The library for {protocol}:// is not installed",
            f"pip install 'tenure[{extra}]', or what it needs besides",
        ) from None
    except (TypeError, ValueError, KeyError) as error:
        raise InvalidSettings(
            f"The {protocol}:// store of artifacts cannot be opened ({type(error).__name__})",
            "The protocol is unknown, or the options file names an option that its library does not know",
        ) from None
    return ObjectFiles(system, root, options, protocol)


def changed_ms(info: Info) -> int | None:
    """When a file was last written, by the store's own clock; None when the store does not say."""
    for key in _TIMES:
        match info.get(key):
            case datetime() as moment:
                aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
                return int(aware.timestamp() * 1000)
            case int() | float() as seconds:
                return int(seconds * 1000)
            case str() as text if text:
                try:
                    return int(datetime.fromisoformat(text).timestamp() * 1000)
                except ValueError:
                    continue
            case _:
                continue
    return None


def _texts(value: object) -> Iterator[str]:
    """Every text in the options that is long enough to mean something."""
    if isinstance(value, dict):
        for part in cast("dict[object, object]", value).values():
            yield from _texts(part)
    elif isinstance(value, list | tuple):
        for part in cast("list[object]", value):
            yield from _texts(part)
    elif isinstance(value, str) and len(value) >= _SHORT:
        yield value


def _give_up(file: Any) -> None:  # noqa: ANN401 - a file of the library's own
    """Leave a file unwritten: closing it would complete it."""
    with suppress(Exception):
        file.discard()
    with suppress(AttributeError):
        file.closed = True
