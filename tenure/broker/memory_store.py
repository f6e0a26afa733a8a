"""The part of a Redis server that Tenure relies on, in memory: streams with one group each, and values with an end.

No threads, no waiting, and the same result for the same calls. What can go wrong with a real server is asked for by
name: `down`, `full`, `restart`, `flush` and `lose_newest`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar, final

from tenure.broker.base import EntryId
from tenure.errors import BrokerFull, BrokerRefused, BrokerUnreachable, StreamMissing

if TYPE_CHECKING:
    from tenure.clock import Clock

START: Final = EntryId(0, 0)
_LARGEST: Final = 2**64 - 1

_T = TypeVar("_T")


@final
@dataclass(slots=True)
class MemoryStream:
    """One stream and its group: `undelivered` ids wait, some of them deleted; `pending` names each one's holder."""

    entries: dict[EntryId, object] = field(default_factory=dict[EntryId, object])
    last_id: EntryId = START
    position: EntryId = START
    undelivered: deque[EntryId] = field(default_factory=deque[EntryId])
    pending: dict[EntryId, str] = field(default_factory=dict[EntryId, str])

    def copy(self) -> MemoryStream:
        """An independent copy; entries themselves are never changed."""
        return replace(
            self, entries=dict(self.entries), undelivered=self.undelivered.copy(), pending=dict(self.pending)
        )

    def hand_out(self, consumer: str, limit: int) -> list[tuple[EntryId, object]]:
        """The next entries, from now on held by `consumer`."""
        found: list[tuple[EntryId, object]] = []
        while self.undelivered and len(found) < limit:
            at = self.undelivered.popleft()
            if at in self.entries:
                found.append((at, self.entries[at]))
                self.pending[at] = consumer
                self.position = at
        return found

    def held(self, consumer: str, limit: int) -> list[tuple[EntryId, object]]:
        """What `consumer` was handed and nobody has removed, oldest first."""
        mine = sorted(at for at, holder in self.pending.items() if holder == consumer and at in self.entries)
        return [(at, self.entries[at]) for at in mine[:limit]]

    def later(self, after: EntryId) -> list[tuple[EntryId, object]]:
        """Entries later than `after`, oldest first."""
        found: list[tuple[EntryId, object]] = []
        for at in reversed(self.entries):
            if at <= after:
                break
            found.append((at, self.entries[at]))
        return found[::-1]


@final
@dataclass(frozen=True, slots=True)
class _Value:
    raw: bytes
    ends_ms: int | None


@final
class MemoryStore:
    """A server's keys.

    Args:
        clock: decides about ids and the end of values.
        remembered_writes: how many of the newest writes `lose_newest` can take back.

    Attributes:
        down: while True, every call raises `BrokerUnreachable`.
        full: while True, every call that adds something raises `BrokerFull`.
        eviction_policy: what the server says about its settings.
        starts: how often it was started.
    """

    def __init__(self, clock: Clock, *, remembered_writes: int = 0) -> None:
        self.down = False
        self.full = False
        self.eviction_policy = "noeviction"
        self._clock = clock
        self.starts = 1
        self._streams: dict[str, MemoryStream] = {}
        self._values: dict[str, _Value] = {}
        self._journal: deque[tuple[str, MemoryStream | None, _Value | None]] = deque(maxlen=remembered_writes)

    # --- what a server goes through ---

    def restart(self) -> None:
        """Be another server process with the same data."""
        self.starts += 1

    def flush(self) -> None:
        """Lose everything."""
        self._streams.clear()
        self._values.clear()
        self._journal.clear()

    def lose_newest(self, writes: int) -> None:
        """Take back the newest writes, deliveries and acknowledgements included, as a late replica would."""
        for _ in range(min(writes, len(self._journal))):
            key, stream, value = self._journal.pop()
            _put_back(self._streams, key, stream)
            _put_back(self._values, key, value)

    # --- streams ---

    def stream(self, key: str) -> MemoryStream | None:
        """The stream, for reading only."""
        self._check_up()
        return self._streams.get(key)

    def change(self, key: str) -> MemoryStream:
        """The stream, for changing. Raises `StreamMissing`."""
        self._check_up()
        found = self._streams.get(key)
        if found is None:
            raise StreamMissing(f"The broker has lost the stream {key}", "The coordinator makes it again; wait for it")
        self._remember(key)
        return found

    def make_stream(self, key: str) -> None:
        """Make the stream, unless it is there. Raises `BrokerFull`."""
        self._check_room()
        if key not in self._streams:
            self._remember(key)
            self._streams[key] = MemoryStream()

    def add(self, key: str, entry: object, at: EntryId | None = None) -> None:
        """Add an entry under an id higher than the last one, by default one drawn from the clock.

        Raises `StreamMissing` and `BrokerFull`, and `BrokerRefused` when the last id left none.
        """
        self._check_room()
        stream = self.change(key)
        stream.last_id = at or max(EntryId(self._clock.now_ms(), 0), _following(stream.last_id))
        stream.entries[stream.last_id] = entry
        stream.undelivered.append(stream.last_id)

    # --- values ---

    def get(self, key: str) -> bytes | None:
        """The value; None when there is none or its time is over."""
        self._check_up()
        found = self._values.get(key)
        if found is None or (found.ends_ms is not None and found.ends_ms <= self._clock.elapsed_ms()):
            return None
        return found.raw

    def put(self, key: str, raw: bytes, ttl_ms: int | None = None) -> None:
        """Set the value. Raises `BrokerFull`."""
        self._check_room()
        self._remember(key)
        self._values[key] = _Value(raw, None if ttl_ms is None else self._clock.elapsed_ms() + ttl_ms)

    def remove(self, key: str) -> None:
        """Delete the value or stream, if it is there."""
        self._check_up()
        self._remember(key)
        self._values.pop(key, None)
        self._streams.pop(key, None)

    def _remember(self, key: str) -> None:
        if self._journal.maxlen:
            stream = self._streams.get(key)
            self._journal.append((key, stream and stream.copy(), self._values.get(key)))

    def _check_up(self) -> None:
        if self.down:
            raise BrokerUnreachable("The in-memory broker is down", "Set it up again")

    def _check_room(self) -> None:
        self._check_up()
        if self.full:
            raise BrokerFull("The in-memory broker is full and refuses writes", "Make room in it")


def _following(last: EntryId) -> EntryId:
    if last.minor < _LARGEST:
        return EntryId(last.major, last.minor + 1)
    if last.major < _LARGEST:
        return EntryId(last.major + 1, 0)
    raise BrokerRefused("The stream has exhausted the last possible id", "It is to be made anew")


def _put_back(kept: dict[str, _T], key: str, was: _T | None) -> None:
    if was is None:
        kept.pop(key, None)
    else:
        kept[key] = was
