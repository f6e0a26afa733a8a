"""How much of the coordinator's time each person may take: one who asks for much holds up nobody but themself.

Every person but those that are free of limits has an *allowance* of the coordinator's time, which comes back with time.
A request costs the time that answering it took, and a little for being there at all. Who has used the allowance up, or
their share of this turn, is *held back*: what was received of them waits here, in order, and their stream is not read
meanwhile. Nothing is lost by that, and clients wait for answers as long as they like.

Deliveries and a clock in, decisions out.
"""

from __future__ import annotations

from collections import deque
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
    held: deque[Delivery] = field(default_factory=deque["Delivery"])
    was_spent: bool = False
    is_remarked: bool = False


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

    def readable(self, people: Sequence[str]) -> tuple[str, ...]:
        """Whose streams may be read now. What is known of people who are not among these is forgotten."""
        for gone in self._people.keys() - set(people):
            del self._people[gone]
        return tuple(person for person in people if person in self._free or self._may_be_read(person))

    def wait_ms(self) -> int | None:
        """How long until somebody who is held back may go on; None when there is nobody."""
        waits: list[int] = []
        for person in self._people:
            allowance = self._of(person)
            if allowance.credit <= 0:
                waits.append(1 - allowance.credit // self._rules.time_ms_per_s)
            elif allowance.held:
                return 0
        return min(waits, default=None)

    def arrived(self, received: Sequence[Delivery]) -> list[Delivery]:
        """Take over what was read of people who have limits; answers the rest."""
        rest: list[Delivery] = []
        for delivery in received:
            if delivery.person and delivery.person not in self._free:
                self._of(delivery.person).held.append(delivery)
            else:
                rest.append(delivery)
        return rest

    def ration(self) -> Iterator[Delivery]:
        """What is taken of them in this turn, one by one; the time until the next is asked for is what one has cost."""
        for person in list(self._people):
            allowance, spent = self._of(person), 0
            while allowance.held and allowance.credit > 0 and spent < self._rules.time_ms_per_turn * _MS:
                delivery = allowance.held.popleft()
                began_ms = self._clock.elapsed_ms()
                yield delivery
                cost = (self._clock.elapsed_ms() - began_ms) * _MS + _REQUEST + len(delivery.raw) * _MS // _BYTES_PER_MS
                allowance.credit -= cost
                spent += cost
            allowance.was_spent |= allowance.credit <= 0

    def remarks(self) -> list[str]:
        """What should be on record: who has used their allowance up for the first time."""
        new = [name for name, each in self._people.items() if each.was_spent and not each.is_remarked]
        for name in new:
            self._people[name].is_remarked = True
        return [f"{name} asks for more than a person may of the coordinator's time: requests wait." for name in new]

    def forget(self) -> None:
        """Drop what waits here: the broker is about to give all of it again."""
        for allowance in self._people.values():
            allowance.held.clear()

    def _may_be_read(self, person: str) -> bool:
        allowance = self._of(person)
        return not allowance.held and allowance.credit > 0

    def _of(self, person: str) -> _Allowance:
        """A person's allowance, with what has come back meanwhile."""
        full, now_ms = self._rules.reserve_ms * _MS, self._clock.elapsed_ms()
        allowance = self._people.setdefault(person, _Allowance(full, now_ms))
        grown = (now_ms - allowance.filled_ms) * self._rules.time_ms_per_s  # each ms brings that many thousandths
        allowance.credit = min(full, allowance.credit + grown)
        allowance.filled_ms = now_ms
        return allowance
