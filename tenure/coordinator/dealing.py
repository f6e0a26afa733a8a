"""Which site gets the next of several tasks that any of them could take. Pure.

The site with the fewest live leases comes first, so that one that says it has endless room, or that takes leases and
never ends them, gets no more than others. A site that let an offer lie, gave one back or lost it comes after all others
until it has done better. That it takes another one is no better: it may give that back, too.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping

_Place = tuple[bool, int, str]

_LONG_HOLD_MS: Final = 60_000
"""A site that has kept a lease for that long is at work on it; long tasks bring no result for hours."""


@final
class Idle:
    """The sites of which something came back undone, since when, until a result of theirs is accepted."""

    def __init__(self) -> None:
        self._since: dict[str, int] = {}

    def __contains__(self, site: object) -> bool:
        return site in self._since

    def __iter__(self) -> Iterator[str]:
        return iter(self._since)

    def __len__(self) -> int:
        return len(self._since)

    def add(self, site: str, now_ms: int) -> None:
        """Something of this site came back undone."""
        self._since[site] = now_ms

    def discard(self, site: str) -> None:
        """A result of this site was accepted, or it takes part no more."""
        self._since.pop(site, None)

    def note_hold(self, site: str, bound_ms: int, now_ms: int) -> None:
        """A site holds a lease that was bound at that moment: good, if it was after all that came back."""
        if self._since.get(site, now_ms) < bound_ms <= now_ms - _LONG_HOLD_MS:
            self.discard(site)


@final
class Deal:
    """Deals tasks to sites that have room.

    Args:
        rooms: how many more each site can be given; sites without room are left out.
        holding: how many live leases each site has.
        idle: the sites that come last.
    """

    def __init__(self, rooms: Mapping[str, int], holding: Mapping[str, int], idle: Container[str]) -> None:
        self.room = sum(rooms.values())
        self._left = dict(rooms)
        self._queue: list[_Place] = []
        for site in rooms:
            heappush(self._queue, (site in idle, holding.get(site, 0), site))

    def next(self, fits: Callable[[str], bool] | None = None) -> str:
        """The site whose turn it is among those that fit, one less in its room; "" when there is none."""
        passed: list[_Place] = []
        found = ""
        while self._queue and not found:
            place = heappop(self._queue)
            is_idle, held, site = place
            if fits is not None and not fits(site):
                passed.append(place)
                continue
            found = site
            self._left[site] -= 1
            if self._left[site] > 0:
                heappush(self._queue, (is_idle, held + 1, site))
        for place in passed:
            heappush(self._queue, place)
        return found
