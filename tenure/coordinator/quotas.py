"""How much a site may make the coordinator keep for good: records, names and evidence.

What is used comes back with time, over a day. A fleet that grows, that starts all its workers anew, or that was cut off
and comes back with all its late results, uses the reserve. Beyond that nothing that counts is lost:

- A site whose *records* are used up is offered nothing more until some have come back, for what it does with offers is
  what fills the tables. What it holds goes on, and its results are taken.
- Half of the records are for offers alone, so that workers that start anew without end cost a site no work. When the
  other half is used up, workers come and go without an event, and new *names* are not answered: whoever said them says
  them again.
- Rejected results beyond the quota of *evidence* are not kept.

The first time that a site comes to the end of one, that is on record; then it is counted.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from collections.abc import Collection

_DAY_MS: Final = 86_400_000
_SECOND_MS: Final = 1_000
_MEBIBYTE: Final = 1024 * 1024

_UNDONE: Final = 4
"""Records of an offer that came to nothing: its lease, and that it was offered, taken and over."""
_NAMED: Final = 2
"""Records of a new name: its row, and that it is gone again."""
_EVIDENCE_BYTES: Final = 1_024
"""What the record of a rejected result takes up besides the result."""


@final
@dataclass(frozen=True, slots=True)
class SiteQuotas:
    """The quotas of each site that has a credential of its own. What may be kept in a day is also the reserve."""

    workers: int = 5_000
    """At once, executors among them."""
    executors_per_s: int = 20
    """New executors, of which nothing is kept when they have left; there is one for each task that is launched."""
    executors: int = 5_000
    """New executors at once."""
    records_per_day: int = 1_000_000
    """Rows of the database that stay: of workers, of offers that came to nothing, and of the events about both."""
    evidence_bytes_per_day: int = 1_024 * _MEBIBYTE
    """Rejected results."""


@final
@dataclass(slots=True)
class _Reserve:
    """Something that is used up and comes back: `per_period` of it in `period_ms`, and never more than `most`."""

    most: int
    per_period: int
    period_ms: int
    left: int
    """In parts of `period_ms`, so that milliseconds add up; below nothing when more was used than there was."""
    filled_ms: int

    def fill(self, now_ms: int) -> None:
        """Take up what has come back meanwhile."""
        self.left = min(self.most * self.period_ms, self.left + (now_ms - self.filled_ms) * self.per_period)
        self.filled_ms = now_ms

    def has(self, amount: int, now_ms: int) -> bool:
        """Whether there is so much left."""
        self.fill(now_ms)
        return self.left >= amount * self.period_ms

    def use(self, amount: int) -> None:
        """Use up so much, whether it is there or not."""
        self.left -= amount * self.period_ms

    def take(self, amount: int, now_ms: int, spare: int = 0) -> bool:
        """Use up so much, if it is there and leaves some to `spare`."""
        enough = self.has(amount + spare, now_ms)
        if enough:
            self.use(amount)
        return enough


@final
@dataclass(slots=True)
class _Used:
    records: _Reserve
    evidence: _Reserve
    executors: _Reserve
    known: OrderedDict[str, None] = field(default_factory=OrderedDict[str, None])
    refused: Counter[str] = field(default_factory=Counter[str])


@final
class Quotas:
    """What each site has left of its quotas. Used by the coordinator's thread only.

    Args:
        rules: the quotas.
        free: sites that have none.
    """

    def __init__(self, rules: SiteQuotas, free: Collection[str]) -> None:
        self._rules = rules
        self._free = frozenset(free)
        self._sites: dict[str, _Used] = {}
        self._without: frozenset[str] = frozenset()

    def may_name(self, site: str, worker_id: str, present: int, now_ms: int, *, is_executor: bool) -> bool:
        """Whether a worker that is not registered may be answered or registered at this site, which has `present`."""
        if site in self._free:
            return True
        used = self._of(site, now_ms)
        if present >= self._rules.workers:
            return self._refuse(used, "workers")
        name = f"{worker_id} executor" if is_executor else worker_id
        if name in used.known:
            return True
        taken = used.executors.take(1, now_ms) if is_executor else self._take_records(used, _NAMED, now_ms)
        if not taken:
            return self._refuse(used, "workers")
        used.known[name] = None
        if len(used.known) > self._rules.workers:
            used.known.popitem(last=False)
        return True

    def may_keep(self, site: str, size: int, now_ms: int) -> bool:
        """Whether a rejected result of this size, which is not kept already, is kept as evidence."""
        if site in self._free:
            return True
        used = self._of(site, now_ms)
        return used.evidence.has(size + _EVIDENCE_BYTES, now_ms) or self._refuse(used, "evidence")

    def note_kept(self, site: str, size: int, now_ms: int) -> None:
        """A rejected result of this size was kept as evidence."""
        if site not in self._free:
            self._of(site, now_ms).evidence.use(size + _EVIDENCE_BYTES)

    def may_record(self, site: str, now_ms: int) -> bool:
        """Whether an event that a worker of this site brings about is recorded."""
        if site in self._free:
            return True
        used = self._of(site, now_ms)
        return self._take_records(used, 1, now_ms) or self._refuse(used, "events")

    def note_undone(self, site: str, now_ms: int) -> None:
        """Something that was offered to this site came to nothing; that is recorded in any case."""
        if site not in self._free:
            self._of(site, now_ms).records.use(_UNDONE)

    def without_records(self, now_ms: int) -> frozenset[str]:
        """The sites that may be offered nothing now."""
        return frozenset(site for site, used in self._sites.items() if not used.records.has(_UNDONE, now_ms))

    def compare(self, now_ms: int) -> tuple[frozenset[str], frozenset[str]]:
        """The sites that came to the end of their records since this was asked last, and those that have some again."""
        before, self._without = self._without, self.without_records(now_ms)
        for site in self._without - before:
            self._refuse(self._sites[site], "offers")
        return self._without - before, before - self._without

    def is_first(self, site: str, what: str) -> bool:
        """Whether what was just refused is the first of its kind from this site: that is on record, the rest counted.

        This does not go by the number of refusals that are recorded of a principal: whoever had used those up could go
        over a quota unseen.
        """
        used = self._sites.get(site)
        return used is not None and used.refused[what] == 1

    def shown(self, site: str, now_ms: int) -> dict[str, Any]:
        """What people may want to know of a site's quotas."""
        if site in self._free:
            return {}
        used = self._of(site, now_ms)
        used.records.fill(now_ms)
        return {
            "records_left": max(used.records.left // _DAY_MS, 0),
            "workers_not_answered": used.refused["workers"],
            "events_not_recorded": used.refused["events"],
            "evidence_not_kept": used.refused["evidence"],
        }

    def _take_records(self, used: _Used, amount: int, now_ms: int) -> bool:
        return used.records.take(amount, now_ms, spare=self._rules.records_per_day // 2)

    def _refuse(self, used: _Used, what: str) -> bool:
        used.refused[what] += 1
        return False

    def _of(self, site: str, now_ms: int) -> _Used:
        used = self._sites.get(site)
        if used is None:
            rules = self._rules
            used = self._sites[site] = _Used(
                records=_reserve(rules.records_per_day, rules.records_per_day, _DAY_MS, now_ms),
                evidence=_reserve(rules.evidence_bytes_per_day, rules.evidence_bytes_per_day, _DAY_MS, now_ms),
                executors=_reserve(rules.executors, rules.executors_per_s, _SECOND_MS, now_ms),
            )
        return used


def _reserve(most: int, per_period: int, period_ms: int, now_ms: int) -> _Reserve:
    """A full one."""
    return _Reserve(most, per_period, period_ms, most * period_ms, now_ms)
