"""Which site gets the next of several tasks that any of them could take. Pure.

The site with the fewest live leases comes first, so that one that says it has endless room, or that takes leases and
never ends them, gets no more than others; a site that let an offer lie comes after all others until it takes one.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

_Place = tuple[bool, int, str]


@final
class Deal:
    """Deals tasks to sites that have room.

    Args:
        rooms: how many more each site can be given; sites without room are left out.
        holding: how many live leases each site has.
        idle: the sites that let an offer lie.
    """

    def __init__(self, rooms: Mapping[str, int], holding: Mapping[str, int], idle: Collection[str]) -> None:
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
