"""Contents as streams of chunks: hashing them, and comparing them with what they should be while they pass.

Nothing here holds more than one chunk, so the size of a content does not matter.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Final

from tenure.errors import ArtifactDamaged
from tenure.protocol.artifact import Blob

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CHUNK_BYTES: Final = 1024 * 1024


def blob_of(raw: bytes) -> Blob:
    """The blob of bytes that are in memory anyway."""
    return Blob(digest=hashlib.sha256(raw).hexdigest(), size=len(raw))


def measured(chunks: Iterable[bytes]) -> Blob:
    """The blob of these chunks."""
    running, size = hashlib.sha256(), 0
    for chunk in chunks:
        running.update(chunk)
        size += len(chunk)
    return Blob(digest=running.hexdigest(), size=size)


def checked(blob: Blob, chunks: Iterable[bytes], skip: int = 0) -> Iterator[bytes]:
    """The chunks again, without the first `skip` bytes; all of them are compared with the blob on their way.

    The last chunk is passed on only when everything is right, so whoever writes what comes out of here never has a
    whole content that is wrong. Raises `ArtifactDamaged`.
    """
    running, size = hashlib.sha256(), 0
    for chunk in chunks:
        running.update(chunk)
        begin, size = size, size + len(chunk)
        if size > blob.size:
            # What is wrong is not known, the content or the size that was said: the rest is not read for that.
            raise ArtifactDamaged(f"The content {_short(blob)} has more bytes than the {blob.size} said of it")
        if size == blob.size and running.hexdigest() != blob.digest:
            raise damaged(blob, "its bytes have another digest")
        if size > skip:
            yield chunk[max(skip - begin, 0) :]
    if size < blob.size and running.hexdigest() == blob.digest:
        raise ArtifactDamaged(f"The content {_short(blob)} has {size} bytes, fewer than the {blob.size} said of it")
    if size < blob.size:
        raise damaged(blob, f"only {size} of its {blob.size} bytes are there")
    if running.hexdigest() != blob.digest:  # an empty content has no last chunk
        raise damaged(blob, "its bytes have another digest")


def verify(blob: Blob, chunks: Iterable[bytes]) -> None:
    """Read the chunks to their end and compare. Raises `ArtifactDamaged`."""
    for _ in checked(blob, chunks):
        pass


def collected(blob: Blob, chunks: Iterable[bytes], limit_bytes: int) -> bytes:
    """The content as one piece, for the few that are small by their kind. Raises `ArtifactDamaged`."""
    if blob.size > limit_bytes:
        raise damaged(blob, f"its {blob.size} bytes are over the limit of {limit_bytes}")
    return b"".join(checked(blob, chunks))


def file_chunks(descriptor: int, size: int, offset: int = 0) -> Iterator[bytes]:
    """The bytes of an open file from `offset` to `size`, or to its end when that comes first.

    A file that somebody still adds to therefore has an end.
    """
    while offset < size:
        chunk = os.pread(descriptor, min(CHUNK_BYTES, size - offset), offset)
        if not chunk:
            return
        yield chunk
        offset += len(chunk)


def damaged(blob: Blob, why: str) -> ArtifactDamaged:
    """The error that says what is wrong with a content."""
    return ArtifactDamaged(f"The content {_short(blob)} is damaged: {why}")


def _short(blob: Blob) -> str:
    return f"{blob.digest[:12]}…"
