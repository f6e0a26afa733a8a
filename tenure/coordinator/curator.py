"""The coordinator's dealings with its porter: what is under way, what has ended, and what waits for another try.

It knows nothing of the database, and nothing here is lost that matters: what was accepted and is not in the store, what
is checked, and which logs are to be kept is on record, or is told again by whoever waits for it. What has ended is kept
until a turn that took it up was committed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final, final

from tenure.coordinator.errands import AdoptionCheck, CheckpointCheck, Collecting, LogKeeping, Restoring, ResultCheck

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.artifacts.base import Porter
    from tenure.artifacts.jobs import Ended
    from tenure.coordinator.collection import Gathering
    from tenure.coordinator.errands import Errand, Key

_FIRST_WAIT_MS: Final = 500
_LONGEST_WAIT_MS: Final = 15_000
"""Well below the time that a further attempt waits for a checkpoint, which is often all that keeps it waiting."""
_READERS: Final = (ResultCheck, CheckpointCheck, AdoptionCheck, LogKeeping)
"""Errands that may find an old object in place of a new one: it must not be collected after that."""

End = tuple["Errand", "Ended"]


@final
@dataclass(frozen=True, slots=True)
class _Tries:
    """How often an errand could not be done, until when it waits, and the number of the job that failed last."""

    count: int = 0
    until_ms: int = 0
    job: int = 0


@final
class Curator:
    """Begins errands and hears of their ends.

    Args:
        porter: who does them; None when the fleet has no store.
        address: where the store is, as it is announced.
    """

    def __init__(self, porter: Porter | None, address: str) -> None:
        self.address = address if porter is not None else ""
        self.gathering: Gathering | None = None
        """What the next collection has to keep, as far as it has been read."""
        self._porter = porter
        self._numbers = count(1)
        self._looks = count(1)
        self._under_way: dict[int, Errand] = {}
        self._reading = 0
        self._held: list[Errand] = []
        self._collection: Collecting | None = None
        self._is_collecting = False
        self._keys: set[Key] = set()
        self._counts: Counter[str | int] = Counter()
        self._ended: list[tuple[int, Ended]] = []
        self._tries: dict[Key, _Tries] = {}

    @property
    def ready(self) -> bool:
        """Whether there is a store."""
        return self._porter is not None

    def knows(self, key: Key) -> bool:
        """Whether that errand is under way."""
        return key in self._keys

    def under_way(self, prefix: str) -> int:
        """How many errands are under way, and have not ended, whose keys begin with that word."""
        return self._counts[prefix] - sum(self._under_way[number].key[0] == prefix for number, _ in self._ended)

    def begin(self, errands: Sequence[Errand]) -> None:
        """Begin errands that are not under way; after the commit of the turn that decided them."""
        for errand in errands:
            if errand.key in self._keys:
                continue
            self._keys.add(errand.key)
            self._counts[errand.key[0]] += 1
            if isinstance(errand, _READERS):
                self._held.append(errand)
            elif isinstance(errand, Collecting) and not errand.dry_run:
                self._collection = errand
            else:
                self._submit(errand)
        self._begin_held()

    def restore(self) -> None:
        """Have the store put back what it has lost together with the broker's data; after each look at the broker."""
        if self._porter is not None:
            self.begin([Restoring(next(self._looks))])

    def listen(self) -> list[End]:
        """The errands that have ended and were not taken up yet."""
        if self._porter is None:
            return []
        self._ended.extend((end.number, end) for end in self._porter.ended() if end.number in self._under_way)
        return [(self._under_way[number], end) for number, end in self._ended]

    def settle(self, ends: Sequence[End]) -> None:
        """Forget ends that were taken up, after the commit."""
        for errand, end in ends:
            if self._under_way.pop(end.number, None) is not None:
                self._keys.discard(errand.key)
                self._counts[errand.key[0]] -= 1
                self._reading -= isinstance(errand, _READERS)
                if errand is self._collection:
                    self._collection, self._is_collecting = None, False
        if ends:
            self._ended = [(number, end) for number, end in self._ended if number in self._under_way]
            self._begin_held()

    def busy(self) -> bool:
        """Whether the loop should look again soon."""
        return self._porter is not None and (self.gathering is not None or self._porter.busy())

    def failed(self, key: Key, end: Ended, elapsed_ms: int) -> int:
        """Note that an errand could not be done for now; how often that was so. It waits longer each time.

        One end counts once: it is taken up again when the turn that took it up could not be committed.
        """
        before = self._tries.get(key, _Tries())
        if before.job == end.number:
            return before.count
        tries = before.count + 1
        wait_ms = min(_LONGEST_WAIT_MS, _FIRST_WAIT_MS << min(tries, 16))
        self._tries[key] = _Tries(tries, elapsed_ms + wait_ms, end.number)
        return tries

    def waits(self, key: Key, elapsed_ms: int) -> bool:
        """Whether that errand is under way, or is not to be tried again yet."""
        return key in self._keys or self._tries.get(key, _Tries()).until_ms > elapsed_ms

    def succeeded(self, key: Key) -> None:
        """Forget the failures of an errand that is decided."""
        self._tries.pop(key, None)

    def _begin_held(self) -> None:
        """Begin what may begin. A collection waits for readers to end, and readers for a collection."""
        if self._collection is None:
            held, self._held = self._held, []
            for errand in held:
                self._reading += 1
                self._submit(errand)
        elif not self._reading and not self._is_collecting:
            self._is_collecting = True
            self._submit(self._collection)

    def _submit(self, errand: Errand) -> None:
        if self._porter is not None:
            number = next(self._numbers)
            self._under_way[number] = errand
            self._porter.submit(errand.job(number))
