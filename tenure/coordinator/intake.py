"""What a turn takes in: of each person and each site no more than their share (`people_limits`, `limits`).

A site may write to its inbox whatever it likes: more than anybody can read, and ids after which the stream takes no
other. Inboxes are weighed several times a second, and before each reading for as long as much comes of them: those that
pile up are cut, of those that weigh much little is read at once, and an inbox that was spoiled is made anew. Nothing is
lost by that: whoever is owed an answer repeats what it said.

What was received before and never settled, as after a fault, is read again first, and in the same shares. A stream that
holds what is beyond all measure spoils the reading of all that are read with it: then each is read by itself, and what
was received of that one is dropped.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final, TypeAlias, final

from tenure.broker.base import Delivery, EntryId, Readers
from tenure.errors import ReplyBeyondMeasure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tenure.broker.base import CoordinatorBroker
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

_LOST_MS: Final = 60_000
"""What is beyond all measure costs as much time as one entry may cost."""

_Origin: TypeAlias = "tuple[str, str]"
"""A site and "", or "" and a person."""


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
        self._behind: set[_Origin] = set()
        self._given: set[_Origin] = set()
        self._spoiled: set[str] = set()
        self._emptied: set[str] = set()
        self._heavy: dict[str, int] = {}
        self._exhausted: set[str] = set()
        self._watched: dict[str, int] = {}
        self._weighed_ms: int | None = None
        self._remarks: list[tuple[str, str]] = []

    def receive(self, readers: Readers, block_ms: int) -> Portion:
        """Read what has come, waiting up to `block_ms`, or until a site that is held back may go on."""
        now_ms = self._clock.elapsed_ms()
        together, lagging = self._limits.readable(readers.sites, now_ms)
        self._weigh_in_time(readers.sites, (*together, *lagging), now_ms)
        people = self._people_limits.readable(readers.people)
        if self._behind:
            self._behind.intersection_update(_origins(readers))
        self._given.clear()
        at_once = self._catch_up(_origins(Readers((*together, *lagging), people))) if self._behind else []
        ready, lagging = self._ready(Readers(together, people)), self._ready(Readers(lagging)).sites
        heavy = [site for site in (*ready.sites, *lagging) if site in self._heavy]
        is_waited_for = not self._given and self._exhausted.issuperset(heavy)  # these are read after the others
        waits_ms = (
            block_ms if is_waited_for else 0,
            self._limits.wait_ms(self._clock.elapsed_ms()),
            self._people_limits.wait_ms(),
        )
        others = Readers(self._light(ready.sites), ready.people)
        found = self._receive(others, self._batch_limit, min(each for each in waits_ms if each is not None))
        at_once += self._take_over(found, self._batch_limit)
        for site in heavy:
            found = self._receive(Readers((site,)), _HEAVY_APART, 0)
            at_once += self._take_over(found, _HEAVY_APART)
            (self._exhausted.discard if found else self._exhausted.add)(site)
        if light := self._light(lagging):
            at_once += self._take_over(self._receive(Readers(light), _APART, 0), _APART)
        self._limits.quiet(lagging)
        return Portion(at_once, self._limits, self._people_limits, self._clock.elapsed_ms())

    def start_over(self, readers: Readers) -> None:
        """Believe nothing about what was read before: what was received and never settled is read again."""
        self._limits.forget()
        self._people_limits.forget()
        self._behind = set(_origins(readers))
        self._weighed_ms = None

    def tend(self, readers: Readers) -> None:
        """Make those inboxes anew that were spoiled."""
        anew = tuple(site for site in readers.sites if site in self._spoiled or site in self._emptied)
        for site in anew:
            self._broker.sites.forget_site(site, (), ())
        if anew:
            self._broker.ensure_streams(readers=Readers(anew))
        for site in anew:
            if site in self._spoiled:
                self._remark(site, f"The inbox of {site} was made anew: an entry had left no ids for others.")
        self._spoiled.clear()
        self._emptied.clear()

    def remarks(self) -> list[tuple[str, str]]:
        """Sites, and what people should know of their inboxes, until it is on record; "" where it is not of a site."""
        self._remarks += [("", text) for text in self._people_limits.remarks()]
        return list(self._remarks)

    def recorded(self, remarks: Sequence[tuple[str, str]]) -> None:
        """These oldest remarks are on record."""
        del self._remarks[: len(remarks)]

    def _weigh_in_time(self, sites: Sequence[str], readable: Sequence[str], now_ms: int) -> None:
        """Weigh all inboxes now and then, and in between those of which much came when they were read last."""
        if self._weighed_ms is None or now_ms - self._weighed_ms >= _WEIGH_EVERY_MS:
            self._weighed_ms = now_ms
            self._watched = {site: until_ms for site, until_ms in self._watched.items() if until_ms > now_ms}
            self._exhausted.intersection_update(self._heavy)
            self._heavy = {site: size for site, size in self._heavy.items() if site in sites}
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
        for site, backlog in backlogs.items():
            before = self._heavy.pop(site, 0)
            if backlog.size > _HEAVY_BYTES:
                self._heavy[site] = backlog.size
            if backlog.size > before:  # there is something again
                self._exhausted.discard(site)

    def _cut(self, site: str, keep: int) -> None:
        cut = self._broker.sites.cut_inbox(site, keep)
        if cut and not keep:
            self._emptied.add(site)
        if cut and self._limits.was_cut(site, cut):
            self._remark(site, f"The inbox of {site} had piled up: {cut} entries were cut off unread.")

    def _drop(self, origin: _Origin) -> None:
        """Nobody else has lost anything by that, and what cannot be read would be given again and again."""
        site, person = origin
        if site:
            self._limits.charge_unreadable(Delivery(EntryId(0, 0), b"", site), _LOST_MS)
            self._cut(site, 0)
            return
        dropped = self._broker.sites.drop_requests(person)
        if self._people_limits.was_dropped(person, dropped):
            self._remark("", f"{dropped} requests of {person} were dropped unread: one is larger than any may be.")

    def _remark(self, site: str, text: str) -> None:
        LOG.warning("%s", text)
        self._remarks.append((site, text))

    def _ready(self, readers: Readers) -> Readers:
        """Those of them of whom what is new may be read.

        Not of those who were given what is unsettled in this turn: beyond measure they would be given it once more.
        """
        out = self._behind | self._given
        return _readers([each for each in _origins(readers) if each not in out]) if out else readers

    def _light(self, sites: Sequence[str]) -> tuple[str, ...]:
        return tuple(site for site in sites if site not in self._heavy)

    def _note_spoiled(self, found: Sequence[Delivery]) -> None:
        self._spoiled.update(each.site for each in found if each.site and each.entry_id.major >= _SPOILED)

    def _catch_up(self, origins: Sequence[_Origin]) -> list[Delivery]:
        """Of those of these that are behind, what was received before and never settled; answers what has no limits."""
        behind = _readers([each for each in origins if each in self._behind])
        # It is all given again, and whoever has so little waiting here that more of it is read is among them.
        self._people_limits.forget(behind.people)
        light = Readers(self._light(behind.sites), behind.people)
        at_once = self._take_over(self._unsettled(light, self._batch_limit), self._batch_limit)
        for site in (each for each in behind.sites if each in self._heavy):
            at_once += self._take_over(self._unsettled(Readers((site,)), _HEAVY_APART), _HEAVY_APART)
        return at_once

    def _receive(self, readers: Readers, limit: int, block_ms: int) -> list[Delivery]:
        """What is new, of each of these by itself when together it is beyond all measure."""
        origins = _origins(readers)
        try:
            return self._broker.receive(readers=readers, limit=limit, block_ms=block_ms)
        except ReplyBeyondMeasure:
            self._people_limits.forget(readers.people)  # what was received of them before is given again, too
            self._behind.update(origins)
            return self._each_alone(origins, limit)

    def _unsettled(self, readers: Readers, limit: int) -> list[Delivery]:
        """What was received before and never settled; who has no more of it than that is not behind any more."""
        origins = _origins(readers)
        found: list[Delivery] = []
        if not origins:
            return found
        try:
            found = self._broker.unsettled(readers=readers, limit=limit)
        except ReplyBeyondMeasure:
            if len(origins) > 1:
                return self._each_alone(origins, limit)
            self._drop(*origins)
        counts = Counter((each.site, each.person) for each in found)
        self._given.update(counts)
        self._behind.difference_update(each for each in origins if counts[each] < limit)
        return found

    def _each_alone(self, origins: Sequence[_Origin], limit: int) -> list[Delivery]:
        return [each for origin in origins for each in self._unsettled(_readers([origin]), limit)]

    def _take_over(self, found: Sequence[Delivery], asked: int) -> list[Delivery]:
        if found:
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


def _origins(readers: Readers) -> list[_Origin]:
    return [(site, "") for site in readers.sites] + [("", person) for person in readers.people]


def _readers(origins: Sequence[_Origin]) -> Readers:
    return Readers(tuple(site for site, _ in origins if site), tuple(person for _, person in origins if person))
