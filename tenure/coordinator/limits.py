"""How much of the coordinator's time the inbox of a site may take: a site that floods it holds up nobody but itself.

Every site but those that are free of limits has an *allowance* in units, which comes back with time. An entry costs one
unit, one more for each JSON object in it (every event is one) and one per 2 KiB; one that cannot be read costs much
more. A site that has used its allowance up, or its share of this turn, is *held back*: what was received of it waits
here, in order, and its inbox is not read meanwhile. What piles up in an inbox beyond all measure is cut off by the
broker unread, for whoever is owed an answer repeats what it said.

Pure: deliveries and times in, decisions out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from tenure.broker.base import Backlog, Delivery

_BYTES_PER_UNIT: Final = 2_048
_UNREADABLE_BYTES_PER_UNIT: Final = 16
"""To find out that something cannot be read may take long."""

_SECOND_MS: Final = 1_000


@final
@dataclass(frozen=True, slots=True)
class SiteLimits:
    """The limits of each site that has a credential of its own."""

    units_per_s: int = 8_000
    burst: int = 8_000
    """How much of its allowance a site that was quiet may use at once, in several turns."""
    units_per_turn: int = 100
    """A site's share of one turn; its first entry is taken whole."""
    most_waiting: int = 5_000
    """Entries in an inbox beyond which it is cut."""
    most_waiting_bytes: int = 64 * 1024 * 1024
    """Bytes of the broker's memory that an inbox takes up, beyond which it is cut."""
    kept_waiting: int = 500
    """How many entries are left when an inbox is cut."""


@final
@dataclass(slots=True)
class _Allowance:
    credit: int
    """In thousandths of a unit, so that milliseconds add up."""
    filled_ms: int
    spent: int = 0
    """In this turn."""
    held: deque[Delivery] = field(default_factory=deque["Delivery"])
    lagging: bool = False
    """Its last reading brought as much as was asked for: there is more."""
    waiting: int = 0
    cut: int = 0
    turns_held_back: int = 0


@final
class InboxLimits:
    """The allowances of all sites. Used by the coordinator's thread only.

    Args:
        rules: the limits.
        free: sites that have none.

    Attributes:
        free: sites that have no allowance.
    """

    def __init__(self, rules: SiteLimits, free: Collection[str]) -> None:
        self._rules = rules
        self.free = frozenset(free)
        self._sites: dict[str, _Allowance] = {}

    def readable(self, sites: Sequence[str], now_ms: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Whose inboxes may be read now: those that are read together, and those that lag and are read by themselves.

        A site that is held back is in neither. What is known of sites that are not among these is forgotten.
        """
        for gone in self._sites.keys() - set(sites):
            del self._sites[gone]
        quick: list[str] = []
        apart: list[str] = []
        for site in sites:
            if site in self.free:
                quick.append(site)
                continue
            allowance = self._of(site, now_ms)
            if allowance.held or allowance.credit <= 0:
                continue
            (apart if allowance.lagging else quick).append(site)
        return tuple(quick), tuple(apart)

    def wait_ms(self, now_ms: int) -> int | None:
        """How long until a site that lags or is held back may go on; None when there is none."""
        waits: list[int] = []
        for site, allowance in self._sites.items():
            self._of(site, now_ms)
            if allowance.credit <= 0:
                waits.append(1 - allowance.credit // self._rules.units_per_s)
            elif allowance.held or allowance.lagging:
                return 0
        return min(waits, default=None)

    def arrived(self, received: Sequence[Delivery], asked: int, now_ms: int) -> list[Delivery]:
        """Take over what was read of sites that have limits, at most `asked` entries of each; answers the rest."""
        rest: list[Delivery] = []
        counts: dict[str, int] = {}
        for delivery in received:
            site = delivery.site
            if not site or site in self.free:
                rest.append(delivery)
                continue
            self._of(site, now_ms).held.append(delivery)
            counts[site] = counts.get(site, 0) + 1
        for site, count in counts.items():
            self._sites[site].lagging = count >= asked
        return rest

    def quiet(self, sites: Sequence[str]) -> None:
        """These sites lagged, were read by themselves, and nothing of them is left that was not received."""
        for site in sites:
            if not self._sites[site].held:
                self._sites[site].lagging = False

    def ration(self, now_ms: int) -> Iterator[Delivery]:
        """What is taken of those sites in this turn, one by one; what is charged in between counts at once."""
        for site, allowance in self._sites.items():
            self._of(site, now_ms)
            allowance.spent = 0
            while allowance.held and allowance.credit > 0 and allowance.spent < self._rules.units_per_turn:
                delivery = allowance.held.popleft()
                self._charge(site, _cost(delivery))
                yield delivery
            allowance.turns_held_back += bool(allowance.held)

    def _charge(self, site: str, units: int) -> None:
        """Use up so much of a site's allowance; it may go into debt, which time pays."""
        allowance = self._sites.get(site)
        if allowance is not None and site not in self.free:
            allowance.spent += units
            allowance.credit -= units * _SECOND_MS

    def charge_unreadable(self, delivery: Delivery, lost_ms: int = 0) -> None:
        """Charge for an entry that could not be read or broke a rule, and for the time that was lost to it."""
        self._charge(delivery.site, min(self._rules.burst, self._rules.units_per_s * lost_ms // _SECOND_MS))
        self._charge(delivery.site, 1 + _size(delivery) // _UNREADABLE_BYTES_PER_UNIT)

    def afford(self, site: str, units: int, now_ms: int) -> bool:
        """Use up so much of a site's allowance, if there is any of it left."""
        allowed = self._of(site, now_ms).credit > 0
        if allowed:
            self._charge(site, units)
        return allowed

    def floods(self, waiting: Mapping[str, Backlog]) -> dict[str, int]:
        """Which inboxes are to be cut, and how many entries to leave in each.

        What is left of one that is too large is half of what it may hold if its entries are alike, which is not sure.
        """
        found: dict[str, int] = {}
        for site, backlog in waiting.items():
            allowance = self._sites.get(site)
            if allowance is None:
                continue
            allowance.waiting = backlog.entries
            if backlog.entries > max(self._rules.most_waiting, len(allowance.held)):
                found[site] = self._rules.kept_waiting
            if backlog.size > self._rules.most_waiting_bytes:
                fitting = backlog.entries * self._rules.most_waiting_bytes // (2 * backlog.size)
                found[site] = min(self._rules.kept_waiting, fitting)
        return found

    def was_cut(self, site: str, count: int) -> bool:
        """Note that so many entries were cut off an inbox; whether that is the first time for this site."""
        allowance = self._sites.setdefault(site, _Allowance(self._rules.burst * _SECOND_MS, 0))
        allowance.cut += count
        return allowance.cut == count

    def forget(self) -> None:
        """Drop what waits here: the broker is about to give all of it again."""
        for allowance in self._sites.values():
            allowance.held.clear()
            allowance.lagging = False

    def shown(self, site: str) -> dict[str, Any]:
        """What people may want to know of a site's inbox."""
        allowance = self._sites.get(site) or _Allowance(0, 0)
        return {
            "inbox_waiting": allowance.waiting,
            "inbox_held_back": len(allowance.held),
            "inbox_turns_held_back": allowance.turns_held_back,
            "inbox_cut": allowance.cut,
        }

    def _of(self, site: str, now_ms: int) -> _Allowance:
        """A site's allowance, with what has come back meanwhile."""
        full = self._rules.burst * _SECOND_MS
        allowance = self._sites.get(site)
        if allowance is None:
            allowance = self._sites[site] = _Allowance(full, now_ms)
        grown = (now_ms - allowance.filled_ms) * self._rules.units_per_s
        allowance.credit = min(full, allowance.credit + grown)
        allowance.filled_ms = now_ms
        return allowance


def _cost(delivery: Delivery) -> int:
    return 1 + delivery.raw.count(b"{") + _size(delivery) // _BYTES_PER_UNIT


def _size(delivery: Delivery) -> int:
    return max(len(delivery.raw), delivery.size)
