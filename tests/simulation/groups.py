"""A stream whose group is gone, as Redis has it: entries are added and deleted, and no read through the group succeeds.

It stays so until the coordinator makes the group again, from the beginning of the stream.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from tenure.broker.base import EntryId
from tenure.broker.memory_store import START, MemoryStream
from tenure.errors import StreamMissing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tenure.broker.memory_store import MemoryStore


@final
class GroupMissing(StreamMissing):
    """NOGROUP; `what` says what kind of stream it is."""

    def __init__(self, what: str) -> None:
        super().__init__(f"The simulated broker has lost the group of {what}", "The coordinator makes it again")
        self.what = what


@final
class Undelivered(deque[EntryId]):
    """Nobody can tell what a group that is gone has not delivered."""

    def __init__(self, what: str, entries: Iterable[EntryId] = ()) -> None:
        super().__init__(entries)
        self.what = what

    def __bool__(self) -> bool:
        raise GroupMissing(self.what)

    def copy(self) -> Undelivered:
        return Undelivered(self.what, self)


@final
@dataclass(slots=True)
class Groupless(MemoryStream):  # type: ignore[misc]  # final for the product
    """A stream without its group. What asks for pending entries finds none, as with Redis's coordinator."""

    what: str = field(default="", kw_only=True)

    def held(self, consumer: str, limit: int) -> list[tuple[EntryId, object]]:
        raise GroupMissing(self.what)


def lose_group(store: MemoryStore, key: str, what: str) -> bool:
    """Remove the group of a stream; whether there was one. Raises `BrokerUnreachable`."""
    stream = store.stream(key)
    if stream is None or isinstance(stream, Groupless):
        return False
    stream = store.change(key)
    store._streams[key] = Groupless(stream.entries, stream.last_id, START, Undelivered(what), what=what)
    return True


def make_group(store: MemoryStore, key: str) -> None:
    """Make the group again if it is gone; it delivers everything that is still in the stream."""
    if isinstance(store.stream(key), Groupless):
        stream = store.change(key)
        store._streams[key] = MemoryStream(stream.entries, stream.last_id, START, deque(sorted(stream.entries)))
