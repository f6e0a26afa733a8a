"""Executions of user code as a history shows them, and the faults after which two of them may overlap."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.history import ResultRow, Started, Submitted

LIAR: Final = "elsewhere.liar"
"""The worker whose results nobody produced; they count when it was given the lease."""
NORTH: Final = "north"
"""A second site of honest workers."""
ALWAYS_VOIDING: Final = frozenset({"false_end"})
"""Faults after which any task may overlap: what was taken for a proof was none."""
VOIDING: Final = frozenset({"split", "failover", "evicted_heartbeat", "twin", "let_in_longer"}) | ALWAYS_VOIDING
"""Faults after which ordinary tasks may overlap."""
CLAIMED_VOIDING: Final = VOIDING | {"copy", "liar", "group_lost"}
"""Faults after which tasks that start on their claim may overlap."""
_VOIDING_BY_KIND: Final = MappingProxyType(
    {"exclusive": ALWAYS_VOIDING, "granted": VOIDING, "claimed": CLAIMED_VOIDING}
)

_RATES_DIFFER: Final = 1.01
"""By how much the clock that a timeout is measured with may be faster than true time, and then some."""


def home_of(worker_id: str) -> str:
    """The site that workers with such ids are of."""
    first, dot, _ = worker_id.partition(".")
    return first if dot and first in {NORTH, "elsewhere"} else "default"


def term_ms(ttl_ms: int) -> int:
    """For how long an executor that hears of nothing may go on: ttl, grace and margin, as the design has them."""
    return ttl_ms + (500 + ttl_ms // 20) + (250 + ttl_ms // 20)


def is_alone(kind: str, at: int, struck: Mapping[str, int]) -> bool:
    """Whether one execution at a time was still promised then to tasks of that kind; `struck` says what struck when."""
    return all(struck.get(fault, at + 1) > at for fault in _VOIDING_BY_KIND[kind])


@final
@dataclass(slots=True)
class Execution:
    """One execution of user code; `spells` are the times in which it was really running."""

    fact: Started
    spells: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    since: int = -1
    over: bool = False
    ended_at: int = -1
    value: str = ""
    how: str = ""

    def produced(self, result: ResultRow, wanted: Submitted) -> bool:
        """Whether it came to that result. One that was ended from outside fails only a task whose time it had used."""
        if self.how in {"value", "failure"}:
            return self.how == ("failure" if result.is_failure else "value") and self.value in result.said
        lasted_ms = (self.ended_at - self.fact.at) * _RATES_DIFFER
        return result.failure_kind == "timeout" and wanted.timeout_ms is not None and lasted_ms >= wanted.timeout_ms

    def meets(self, other: Execution) -> int | None:
        """The first moment at which both were running; None when there is none."""
        return min((max(a, c) for a, b in self.spells for c, d in other.spells if a < d and c < b), default=None)
