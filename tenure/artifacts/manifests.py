"""Reading the manifest of a bundle, believing nothing of it before it was compared."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tenure.artifacts.content import collected, damaged
from tenure.errors import MalformedMessage
from tenure.protocol.artifact import MAX_MANIFEST_BYTES, Blob, open_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tenure.protocol.artifact import Bundle, File, Manifest


def read_manifest(bundle: Bundle, chunks: Iterable[bytes]) -> Manifest:
    """The manifest of the bundle, from the bytes of its content. Raises `ArtifactDamaged`."""
    raw = collected(bundle.manifest, chunks, MAX_MANIFEST_BYTES)
    try:
        manifest = open_manifest(raw)
    except MalformedMessage as error:
        raise damaged(bundle.manifest, f"it is no list of files ({error.message})") from None
    paths = [file.path for file in manifest.files]
    if any(first >= second for first, second in pairwise(paths)):
        raise damaged(bundle.manifest, "it names its files in disorder")
    if len({file.blob.digest for file in manifest.files}) != len(
        {(file.blob.digest, file.blob.size) for file in manifest.files}
    ):
        raise damaged(bundle.manifest, "it gives one content two sizes")
    size = sum(file.blob.size for file in manifest.files)
    if (len(paths), size) != (bundle.files, bundle.size):
        raise damaged(bundle.manifest, f"it names {len(paths)} files of {size} bytes, not what was said of it")
    return manifest


def named_files(blob: Blob, chunks: Iterable[bytes]) -> tuple[File, ...]:
    """The files that a content names, whatever was said of them; none when it is no list of files.

    Raises `ArtifactDamaged` when the bytes are not that content: then nobody knows what it names.
    """
    if blob.size > MAX_MANIFEST_BYTES:
        return ()
    try:
        return open_manifest(collected(blob, chunks, MAX_MANIFEST_BYTES)).files
    except MalformedMessage:
        return ()


def contents(manifest: Manifest) -> list[Blob]:
    """Each content once, in the order of the files."""
    return list({file.blob.digest: file.blob for file in manifest.files}.values())
