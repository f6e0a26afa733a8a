"""What a turn takes in: of each person and each site no more than their share (`people_limits`, `limits`).

A site may write to its inbox whatever it likes: more than anybody can read, and ids after which the stream takes no
other. Inboxes are weighed several times a second, and before each reading for as long as much comes of them: those that
pile up are cut, of those that weigh much little is read at once, and an inbox that was spoiled is made anew. Nothing is
lost by that: whoever is owed an answer repeats what it said.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final, final

from tenure.broker.base import Readers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tenure.broker.base import CoordinatorBroker, Delivery
    from tenure.clock import Clock
    from tenure.coordinator.limits import InboxLimits
    from tenure.coordinator.people_limits import PeopleLimits

LOG: Final = logging.getLogger("tenure.coordinator")

_APART: Final = 16
"""How many entries are read at once of an inbox that has more than that."""

_HEAVY_BYTES: Final = 1024 * 1024
_HEAVY_APART: Final = 4
"""How many entries are read at once of an inbox that weighs more than that."""

_WEIGH_EVERY_MS: Final = 250
"""To weigh an inbox takes a broker longer the more is in it, so not every turn begins with that."""

_WATCHED_MS: Final = 10_000
"""A site of which much came at once is weighed before every turn for this long: more of it may follow."""

_SPOILED: Final = 2**63
"""A broker's own ids are milliseconds; one this high was chosen so that hardly any, or none, is left behind it."""


@final
class Portion:
    """What one turn takes, by iterating over it once; what `InboxLimits` is told meanwhile counts at once.

    Attributes:
        taken: what was iterated over so far; this much is to be settled after the commit.
    """

    def __init__(
        self, at_once: Sequence[Delivery], limits: InboxLimits, people_limits: PeopleLimits, now_ms: int
    ) -> None:
        self.taken: list[Delivery] = []
        self._at_once = at_once
        self._limits = limits
        self._people_limits = people_limits
        self._now_ms = now_ms

    def __iter__(self) -> Iterator[Delivery]:
        """Those without limits first, then each other person's share, and each other site's.

        When there was nothing of all that, the turn is given to people who have used their allowance up.
        """
        for source in (self._at_once, self._people_limits.ration(), self._limits.ration(self._now_ms)):
            for delivery in source:
                self.taken.append(delivery)
                yield delivery
        if not self.taken:
            for delivery in self._people_limits.given_away():
                self.taken.append(delivery)
                yield delivery

    def left(self) -> Sequence[Delivery]:
        """What of the requests and of the free sites was not iterated over, as when one of them broke a rule."""
        return self._at_once[len(self.taken) :]

    def __bool__(self) -> bool:
        """Whether there may be anything."""
        return bool(self._at_once) or 0 in {self._limits.wait_ms(self._now_ms), self._people_limits.wait_ms()}


@final
class Intake:
    """Reads for the coordinator.

    Args:
        broker: the coordinator's face.
        limits: the allowances of the sites.
        people_limits: the allowances of the people.
        clock: time.
        batch_limit: how many entries of each stream are read at once.
    """

    def __init__(
        self,
        broker: CoordinatorBroker,
        limits: InboxLimits,
        people_limits: PeopleLimits,
        clock: Clock,
        batch_limit: int,
    ) -> None:
        self._broker = broker
        self._limits = limits
        self._people_limits = people_limits
        self._clock = clock
        self._batch_limit = batch_limit
        self._spoiled: set[str] = set()
        self._heavy: set[str] = set()
        self._exhausted: set[str] = set()
        self._watched: dict[str, int] = {}
        self._weighed_ms: int | None = None
        self._remarks: list[tuple[str, str]] = []

    def receive(self, readers: Readers, block_ms: int) -> Portion:
        """Read what has come, waiting up to `block_ms`, or until a site that is held back may go on."""
        now_ms = self._clock.elapsed_ms()
        together, lagging = self._limits.readable(readers.sites, now_ms)
        self._weigh_in_time(readers.sites, (*together, *lagging), now_ms)
        heavy = [site for site in (*together, *lagging) if site in self._heavy]
        waits_ms = [each for each in (self._limits.wait_ms(now_ms), self._people_limits.wait_ms()) if each is not None]
        if not self._exhausted.issuperset(heavy):  # they are read after the others, and have something
            waits_ms.append(0)
        found = self._broker.receive(
            readers=Readers(self._light(together), self._people_limits.readable(readers.people)),
            limit=self._batch_limit,
            block_ms=min([block_ms, *waits_ms]),
        )
        at_once = self._take_over(found, self._batch_limit)
        for site in heavy:
            found = self._broker.receive(readers=Readers((site,)), limit=_HEAVY_APART, block_ms=0)
            self._take_over(found, _HEAVY_APART)
            (self._exhausted.discard if found else self._exhausted.add)(site)
        if light := self._light(lagging):
            found = self._broker.receive(readers=Readers(light), limit=_APART, block_ms=0)
            self._take_over(found, _APART)
        self._limits.quiet(lagging)
        return Portion(at_once, self._limits, self._people_limits, self._clock.elapsed_ms())

    def unsettled(self, readers: Readers) -> Portion:
        """What was received before and never settled, what waited for its turn here included; all of it at once."""
        self._limits.forget()
        self._people_limits.forget()
        self._limits.readable(readers.sites, self._clock.elapsed_ms())
        self._weigh(readers.sites)
        light = Readers(self._light(readers.sites), readers.people)
        found = self._broker.unsettled(readers=light, limit=self._batch_limit)
        for site in (each for each in readers.sites if each in self._heavy):
            found += self._broker.unsettled(readers=Readers((site,)), limit=_HEAVY_APART)
        self._note_spoiled(found)  # it may be the one that the coordinator died after
        return Portion(found, self._limits, self._people_limits, self._clock.elapsed_ms())

    def tend(self, readers: Readers) -> list[tuple[str, str]]:
        """Make those inboxes anew that were spoiled; sites, and what people should know of their inboxes."""
        remarks, self._remarks = self._remarks, []
        remarks += [("", text) for text in self._people_limits.remarks()]
        for site in self._spoiled.intersection(readers.sites):
            self._broker.sites.forget_site(site, (), ())
            remarks.append((site, f"The inbox of {site} was made anew: an entry had left no ids for others."))
        if self._spoiled:
            self._broker.ensure_streams(readers=readers)
            self._spoiled.clear()
        return remarks

    def _weigh_in_time(self, sites: Sequence[str], readable: Sequence[str], now_ms: int) -> None:
        """Weigh all inboxes now and then, and in between those of which much came when they were read last."""
        if self._weighed_ms is None or now_ms - self._weighed_ms >= _WEIGH_EVERY_MS:
            self._weighed_ms = now_ms
            self._watched = {site: until_ms for site, until_ms in self._watched.items() if until_ms > now_ms}
            self._exhausted.intersection_update(self._heavy)
            self._heavy.intersection_update(sites)
            self._weigh(sites)
        else:
            self._weigh([site for site in readable if site in self._watched])

    def charge_refused(self, refused: Sequence[Delivery], time_ms: int) -> None:
        """Charge those whose entries the store refused for the time that was lost to that, in equal parts."""
        for delivery in refused:
            self._limits.charge_unreadable(delivery, time_ms // len(refused))
            self._people_limits.charge_refused(delivery.person, time_ms // len(refused))

    def _weigh(self, sites: Sequence[str]) -> None:
        """Cut the inboxes that pile up, unread, and note which ones weigh much."""
        limited = Readers(tuple(site for site in sites if site not in self._limits.free))
        if not limited.sites:
            return
        backlogs = self._broker.sites.waiting(limited)
        for site, keep in self._limits.floods(backlogs).items():
            self._cut(site, keep)
            left = self._broker.sites.waiting(Readers((site,)))
            if self._limits.floods(left):  # its entries are not alike, and what was left is the heaviest of it
                self._cut(site, 0)
        self._heavy.difference_update(backlogs)
        self._heavy.update(site for site, backlog in backlogs.items() if backlog.size > _HEAVY_BYTES)

    def _cut(self, site: str, keep: int) -> None:
        cut = self._broker.sites.cut_inbox(site, keep)
        LOG.warning("%d entries were cut off the inbox of %s unread", cut, site)
        if cut and self._limits.was_cut(site, cut):
            self._remarks.append((site, f"The inbox of {site} had piled up: {cut} entries were cut off unread."))

    def _light(self, sites: Sequence[str]) -> tuple[str, ...]:
        return tuple(site for site in sites if site not in self._heavy)

    def _note_spoiled(self, found: Sequence[Delivery]) -> None:
        self._spoiled.update(each.site for each in found if each.site and each.entry_id.major >= _SPOILED)

    def _take_over(self, found: Sequence[Delivery], asked: int) -> list[Delivery]:
        self._note_spoiled(found)
        self._watch(found, asked)
        rest = self._people_limits.arrived(self._limits.arrived(found, asked, self._clock.elapsed_ms()))
        if copies := self._people_limits.copies():
            self._broker.settle(copies)  # before the commit: the first of each is still unsettled
        return rest

    def _watch(self, found: Sequence[Delivery], asked: int) -> None:
        counts: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for delivery in found:
            counts[delivery.site] += 1
            sizes[delivery.site] += max(len(delivery.raw), delivery.size)
        until_ms = self._clock.elapsed_ms() + _WATCHED_MS
        much = (site for site in counts if site and (counts[site] >= asked or sizes[site] > _HEAVY_BYTES))
        self._watched.update(dict.fromkeys(much, until_ms))
