"""Mutants of what a site may make the coordinator do and keep."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import mutant

_LIMITS: Final = "coordinator/limits.py"
_INTAKE: Final = "coordinator/intake.py"
_QUOTAS: Final = "coordinator/quotas.py"

MUTANTS: Final = (
    mutant(
        "no_share_of_a_turn",
        "no site takes more than its share of a turn",
        _LIMITS,
        " and allowance.spent < self._rules.units_per_turn",
        "",
    ),
    mutant(
        "no_allowance",
        "a site that has used its allowance up is not read",
        _LIMITS,
        "if allowance.held or allowance.credit <= 0:",
        "if allowance.held:",
    ),
    mutant(
        "free_rubbish",
        "what cannot be read costs whoever sent it",
        _LIMITS,
        "self.charge(delivery.site, 1 + len(delivery.raw) // _UNREADABLE_BYTES_PER_UNIT)",
        "self.charge(delivery.site, 0)",
    ),
    mutant(
        "endless_inbox",
        "an inbox that piles up is cut",
        _LIMITS,
        "if count > max(most, len(allowance.held)):",
        "if count < 0:",
    ),
    mutant(
        "spoiled_inbox_left",
        "an inbox without ids left is made anew",
        _INTAKE,
        "            self._broker.sites.forget_site(site, (), ())\n",
        "",
    ),
    mutant(
        "endless_names",
        "a site does not make up workers without end",
        _QUOTAS,
        "if not used.names.take(1, now_ms, self._rules.names, self._rules.names_per_s):",
        "if now_ms < 0:",
    ),
    mutant(
        "endless_workers",
        "a site has only so many workers at once",
        _QUOTAS,
        "        if present >= self._rules.workers:\n            return False\n",
        "",
    ),
    mutant(
        "endless_evidence",
        "rejected results of a site are kept up to a quota",
        _QUOTAS,
        "return evidence.take(size, now_ms, self._rules.evidence_bytes, self._rules.evidence_bytes_per_s)",
        "return True",
    ),
)
