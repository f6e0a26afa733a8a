"""Contents that are named by what they hold: files, folders of files, and paths that cannot leave a folder.

A `Blob` is the content of one file. A `Bundle` is a folder: the blob of its manifest says which files it holds, so that
a message names any number of files in constant size. A manifest's bytes are made once and never serialised again.
"""

from __future__ import annotations

import json
from typing import Annotated, Final

from pydantic import AfterValidator, Field, TypeAdapter

from tenure.protocol.message import Count, Digest, Message, Name, decode

MAX_MANIFEST_BYTES: Final = 32 * 1024 * 1024
MAX_FILES: Final = 100_000
MAX_PATH_BYTES: Final = 1_024
_MAX_PART_BYTES: Final = 255
_CONTROLS: Final = frozenset(map(chr, (*range(32), *range(127, 160))))


def checked_path(path: str) -> str:
    """The path itself when it stays below the folder that it is relative to. Raises ValueError."""
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise ValueError("a path must be UTF-8") from None
    parts = path.split("/")
    if not 0 < size <= MAX_PATH_BYTES or any(len(part.encode()) > _MAX_PART_BYTES for part in parts):
        raise ValueError("a path must be 1 to 1024 bytes long, each part of it at most 255")
    if any(part in {"", ".", ".."} for part in parts):
        raise ValueError("a path must be relative and may not hold empty parts, '.' or '..'")
    if not _CONTROLS.isdisjoint(path):
        raise ValueError("a path may not hold control characters")
    return path


RelativePath = Annotated[str, AfterValidator(checked_path)]
"""A path below some folder, with `/` between its parts."""


class Blob(Message):
    """The content of one file: its sha256 and its size in bytes."""

    digest: Digest
    size: Count


class Bundle(Message):
    """The content of one folder: its manifest, how many files it has, and their size in bytes together."""

    manifest: Blob
    files: Count
    size: Count


class File(Message):
    """One file of a bundle."""

    path: RelativePath
    blob: Blob
    executable: bool = False


class Manifest(Message):
    """The files of a bundle, sorted by path, each path once."""

    files: Annotated[tuple[File, ...], Field(max_length=MAX_FILES)]


class Input(Message):
    """What a task finds at `inputs/<path>`: a file or a whole folder."""

    path: RelativePath
    content: Blob | Bundle


class Checkpoint(Message):
    """The newest checkpoint that was accepted of a task: the next attempt finds it at `checkpoint/<name>`.

    `attempt` and `fence` say who made it; `ordinal` numbers the checkpoints of that attempt.
    """

    name: Name
    attempt: Annotated[int, Field(ge=1)]
    fence: Annotated[int, Field(ge=1)]
    ordinal: Count
    bundle: Bundle


MANIFEST: Final = TypeAdapter(Manifest)


def encode_manifest(files: tuple[File, ...]) -> bytes:
    """The bytes of the manifest of these files."""
    ordered = tuple(sorted(files, key=lambda file: file.path))
    fields = Manifest(files=ordered).model_dump(mode="json", exclude_defaults=True)
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def open_manifest(raw: bytes) -> Manifest:
    """Parse a manifest's bytes. Raises `PayloadTooLarge` or `MalformedMessage`."""
    return decode(MANIFEST, raw, MAX_MANIFEST_BYTES)
