"""How much a site may make the coordinator keep for good: names at the broker and in the database, and evidence.

Like the allowance of `limits`, what is used comes back with time, but over days: a fleet that grows, or one that was
cut off and comes back with all its late results, uses the reserve. Beyond that, new names are not answered and rejected
results are not kept; both are said once.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Collection

_SECOND_MS: Final = 1_000
_MEBIBYTE: Final = 1024 * 1024


@final
@dataclass(frozen=True, slots=True)
class SiteQuotas:
    """The quotas of each site that has a credential of its own."""

    workers: int = 5_000
    """At once, executors among them."""
    names: int = 5_000
    names_per_s: int = 20
    """Worker ids that were not known before; executors have one for each task."""
    evidence_bytes: int = 1_024 * _MEBIBYTE
    evidence_bytes_per_s: int = 64 * 1024
    """Rejected results."""


@final
@dataclass(slots=True)
class _Reserve:
    left: int
    """In thousandths, so that milliseconds add up."""
    filled_ms: int

    def take(self, amount: int, now_ms: int, most: int, per_s: int) -> bool:
        """Use up so much, if there is that much left."""
        self.left = min(most * _SECOND_MS, self.left + (now_ms - self.filled_ms) * per_s)
        self.filled_ms = now_ms
        if self.left < amount * _SECOND_MS:
            return False
        self.left -= amount * _SECOND_MS
        return True


@final
@dataclass(slots=True)
class _Used:
    names: _Reserve
    evidence: _Reserve
    known: OrderedDict[str, None] = field(default_factory=OrderedDict[str, None])


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

    def may_name(self, site: str, worker_id: str, present: int, now_ms: int) -> bool:
        """Whether a worker that is not registered may be answered or registered at this site, which has `present`."""
        if site in self._free:
            return True
        if present >= self._rules.workers:
            return False
        used = self._of(site, now_ms)
        if worker_id in used.known:
            return True
        if not used.names.take(1, now_ms, self._rules.names, self._rules.names_per_s):
            return False
        used.known[worker_id] = None
        if len(used.known) > self._rules.names:
            used.known.popitem(last=False)
        return True

    def may_keep(self, site: str, size: int, now_ms: int) -> bool:
        """Whether a rejected result of this size is kept as evidence."""
        if site in self._free:
            return True
        evidence = self._of(site, now_ms).evidence
        return evidence.take(size, now_ms, self._rules.evidence_bytes, self._rules.evidence_bytes_per_s)

    def _of(self, site: str, now_ms: int) -> _Used:
        rules = self._rules
        names = _Reserve(rules.names * _SECOND_MS, now_ms)
        evidence = _Reserve(rules.evidence_bytes * _SECOND_MS, now_ms)
        return self._sites.setdefault(site, _Used(names, evidence))
