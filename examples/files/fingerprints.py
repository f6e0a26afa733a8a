"""The digest and the word count of a text file, as a handler."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TypedDict


class Fingerprint(TypedDict):
    """What `fingerprint` answers."""

    sha256: str
    words: int


def fingerprint(path: str) -> Fingerprint:
    """The sha256 of a file's bytes, and how many words it has."""
    content = Path(path).read_bytes()
    return {"sha256": hashlib.sha256(content).hexdigest(), "words": len(content.decode("utf-8").split())}
