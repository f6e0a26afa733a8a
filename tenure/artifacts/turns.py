"""One at a time for each content: two threads that write one content into one place would spoil each other's work."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from tenure.protocol.artifact import Blob

_LOCKS: Final = 64


@final
class Turns:
    """Few locks for any number of contents, so that two of them seldom wait for each other."""

    def __init__(self) -> None:
        self._locks = tuple(Lock() for _ in range(_LOCKS))

    def of(self, blob: Blob) -> Lock:
        """What whoever writes this content holds meanwhile."""
        return self._locks[int(blob.digest[:8], 16) % _LOCKS]
