"""How much of the coordinator's time each person may take: one who asks for much holds up nobody but themself.

Every person but those that are free of limits has an *allowance* of the coordinator's time, which comes back with time.
A request costs the time that answering it took, and a little for being there at all. Who has used the allowance up, or
their share of this turn, is *held back*: what was received of them waits here, in order, and while something of theirs
waits their stream is read no more than once a second. Turns in which nobody else had anything are given away: they cost
nothing, and who has used the allowance up goes on in them. Nothing is lost by any of that, but a client gives up what
waits longer than its patience, and repeats it until then; a copy of what waits here is not taken a second time.

Deliveries and a clock in, decisions out.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from tenure.broker.base import Delivery
    from tenure.clock import Clock

_MS: Final = 1_000
"""Time is counted in thousandths of a millisecond."""

_REQUEST: Final = 100
"""What a request costs besides the time that is measured, which does not hold the commit and the sending of answers."""

_BYTES_PER_MS: Final = 64 * 1024

_LONGEST_MS: Final = 2_000
"""What one request costs at most: what took longer was a suspended host, or a slow one, and no fault of who asked."""

_AHEAD: Final = 64
_AHEAD_EVERY_MS: Final = 1_000
"""Of who has less than that waiting here, more is read this often, for it may be copies of what waits."""


@final
@dataclass(frozen=True, slots=True)
class PersonLimits:
    """The limits of each person who has a credential of their own."""

    time_ms_per_s: int = 500
    """How much of each second of the coordinator's time a person may take for good."""
    reserve_ms: int = 60_000
    """How much of it a person who was quiet may take before that counts."""
    time_ms_per_turn: int = 50
    """A person's share of one turn; their first request is taken whole."""
    watches: int = 200_000
    """Of how many tasks the ends are told to a person's clients that did not submit them, each time counted once."""


@final
@dataclass(slots=True)
class _Allowance:
    credit: int
    filled_ms: int
    held: OrderedDict[bytes, Delivery] = field(default_factory=OrderedDict[bytes, "Delivery"])
    """What waits, in order, by what it says."""
    ahead_ms: int = 0
    """When more was last read."""
    was_spent: bool = False
    is_remarked: bool = False
    dropped: int = 0
    """Requests that were dropped unread."""
    barred_until_ms: int = 0
    """Until then nothing is read of them."""


@final
class PeopleLimits:
    """The allowances of all people. Used by the coordinator's thread only.

    Args:
        rules: the limits.
        free: people who have none.
        clock: time.
    """

    def __init__(self, rules: PersonLimits, free: Collection[str], clock: Clock) -> None:
        self._rules = rules
        self._free = frozenset(free)
        self._clock = clock
        self._people: dict[str, _Allowance] = {}
        self._copies: list[Delivery] = []

    def readable(self, people: Sequence[str]) -> tuple[str, ...]:
        """Whose streams may be read now. What is known of people who are not among these is forgotten."""
        for gone in self._people.keys() - set(people):
            del self._people[gone]
        return tuple(person for person in people if person in self._free or self._may_be_read(person))

    def wait_ms(self) -> int | None:
        """0 when something waits here, for somebody goes on in every turn; None when nothing does."""
        return 0 if any(allowance.held for allowance in self._people.values()) else None

    def arrived(self, received: Sequence[Delivery]) -> list[Delivery]:
        """Take over what was read of people who have limits; answers the rest."""
        rest: list[Delivery] = []
        for delivery in received:
            if not delivery.person or delivery.person in self._free:
                rest.append(delivery)
                continue
            allowance = self._of(delivery.person)
            if delivery.raw in allowance.held:
                self._copies.append(delivery)
                self._charge(allowance, _cost(delivery))
            else:
                allowance.held[delivery.raw] = delivery
        return rest

    def copies(self) -> list[Delivery]:
        """What arrived while the same waited here; to be settled at once and not taken. Each is answered only once."""
        copies, self._copies = self._copies, []
        return copies

    def ration(self) -> Iterator[Delivery]:
        """What is taken of them in this turn, one by one; the time until the next is asked for is what one has cost."""
        for person in list(self._people):
            allowance, spent = self._of(person), 0
            while allowance.held and allowance.credit > 0 and spent < self._rules.time_ms_per_turn * _MS:
                _, delivery = allowance.held.popitem(last=False)
                cost, began_ms = _cost(delivery), self._clock.elapsed_ms()
                self._charge(allowance, cost)
                try:
                    yield delivery
                finally:  # also when taking it broke a rule, and nothing more is asked for
                    took = self._took(began_ms)
                    self._charge(allowance, took)
                spent += cost + took

    def given_away(self) -> Iterator[Delivery]:
        """A share of a turn for each that is held back, one by one, for turns in which nobody has anything else."""
        for person in list(self._people):
            allowance, spent = self._of(person), 0
            while allowance.held and spent < self._rules.time_ms_per_turn * _MS:
                _, delivery = allowance.held.popitem(last=False)
                began_ms = self._clock.elapsed_ms()
                yield delivery
                spent += _cost(delivery) + self._took(began_ms)

    def charge_refused(self, person: str, time_ms: int) -> None:
        """Charge for the time that was lost to a request which the store refused."""
        if person in self._people:
            self._charge(self._of(person), min(time_ms, _LONGEST_MS) * _MS)

    def was_dropped(self, person: str, count: int) -> bool:
        """Charge for what was beyond all measure, and dropped with other requests; whether that is the first time.

        Nothing more is read of this person for a while, for what is not read cannot be held back.
        """
        allowance = self._of(person)
        allowance.dropped += count
        if person not in self._free:
            self._charge(allowance, _LONGEST_MS * _MS)
            allowance.barred_until_ms = allowance.filled_ms + _LONGEST_MS
        return 0 < count == allowance.dropped

    def remarks(self) -> list[str]:
        """What should be on record: who has used their allowance up for the first time."""
        new = [name for name, each in self._people.items() if each.was_spent and not each.is_remarked]
        for name in new:
            self._people[name].is_remarked = True
        return [
            f"{name} asks for more than a person may of the coordinator's time: requests wait for others."
            for name in new
        ]

    def forget(self, people: Sequence[str] | None = None) -> None:
        """Drop what waits here, of these people or of all: the broker is about to give all of it again."""
        for person in self._people if people is None else self._people.keys() & set(people):
            self._people[person].held.clear()
        self._copies.clear()

    def _may_be_read(self, person: str) -> bool:
        allowance = self._of(person)
        if allowance.filled_ms < allowance.barred_until_ms:
            return False
        ahead = len(allowance.held) < _AHEAD and allowance.filled_ms - allowance.ahead_ms >= _AHEAD_EVERY_MS
        if ahead or not allowance.held:
            allowance.ahead_ms = allowance.filled_ms
            return True
        return False

    def _charge(self, allowance: _Allowance, cost: int) -> None:
        """Use up so much; nobody gets into more debt than a whole reserve brings back."""
        allowance.credit = max(allowance.credit - cost, -self._rules.reserve_ms * _MS)
        allowance.was_spent |= allowance.credit <= 0

    def _took(self, began_ms: int) -> int:
        return min(self._clock.elapsed_ms() - began_ms, _LONGEST_MS) * _MS

    def _of(self, person: str) -> _Allowance:
        """A person's allowance, with what has come back meanwhile."""
        full, now_ms = self._rules.reserve_ms * _MS, self._clock.elapsed_ms()
        allowance = self._people.setdefault(person, _Allowance(full, now_ms))
        grown = (now_ms - allowance.filled_ms) * self._rules.time_ms_per_s  # each ms brings that many thousandths
        allowance.credit = min(full, allowance.credit + grown)
        allowance.filled_ms = now_ms
        return allowance


def _cost(delivery: Delivery) -> int:
    """What a request costs besides the time that is measured."""
    return _REQUEST + max(len(delivery.raw), delivery.size) * _MS // _BYTES_PER_MS
