"""Mutants of what campaigns admit, and of how what they reserved is settled."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Edit, Mutant, mutant

_ADMISSION: Final = "coordinator/admission.py"
_CHARGES: Final = "coordinator/charges.py"
_DIRECTIVES: Final = "coordinator/directives.py"
_OF_A_RESULT: Final = (
    "            FROM lease l WHERE l.task_id = NEW.task_id AND l.fence = NEW.fence AND l.state = 'COMPLETED'), 0),"
)
_SCHEMAS: Final = ("coordinator/store/schema.sql", "coordinator/store/migrations/0006_campaigns.sql")


def _schema(name: str, rule: str, old: str, new: str) -> Mutant:
    return Mutant(name, rule, tuple(Edit(file, old, new) for file in _SCHEMAS))


_ADMITTED: Final = (
    mutant(
        "over_budget_admitted",
        "a submission over a campaign's budget is refused with the numbers",
        _CHARGES,
        "used + reserved + asked <= most",
        "used + reserved <= most",
    ),
    mutant(
        "reserved_spent_twice",
        "what is reserved is nobody else's",
        _CHARGES,
        "used + reserved + asked <= most",
        "used + asked <= most",
    ),
    mutant(
        "closed_campaign_admits",
        "a closed campaign takes no submission",
        _CHARGES,
        'if campaign["state"] != CampaignState.OPEN:',
        'if campaign["state"] == "":',
    ),
    mutant(
        "campaign_before_its_time",
        "a campaign takes nothing before it begins",
        _CHARGES,
        "turn.now_ms < starts_ms:",
        "turn.now_ms < 0:",
    ),
    mutant(
        "campaign_after_its_time",
        "a campaign takes nothing from its end on",
        _CHARGES,
        "turn.now_ms >= ends_ms:",
        "turn.now_ms > ends_ms:",
    ),
    mutant(
        "anybodys_campaign",
        "a campaign that names people is for nobody else",
        _CHARGES,
        "if people and principal not in people:",
        "if people and not principal:",
    ),
    mutant(
        "any_capability",
        "a campaign that names capabilities allows no other",
        _CHARGES,
        "if capabilities and capability not in capabilities:",
        "if capabilities and not capability:",
    ),
    mutant(
        "any_device",
        "a task asks only for devices that its campaign names",
        _CHARGES,
        "if denied := sorted(wanted - devices):",
        "if denied := sorted(wanted - devices - wanted):",
    ),
    mutant(
        "device_unasked",
        "a task comes to no device that its campaign does not name, asked for or not",
        _CHARGES,
        "if not wanted and (denied :=",
        "if wanted and (denied :=",
    ),
    mutant(
        "time_of_one_attempt",
        "time is reserved for every attempt that may follow without asking",
        _CHARGES,
        "1 + envelope.retry.lost + envelope.retry.failed",
        "1",
    ),
    mutant(
        "repeat_judged_again",
        "a repeated submission is answered as before, whatever has become of its campaign",
        _CHARGES,
        "    if not fresh:\n        return []\n",
        "",
    ),
    mutant(
        "refused_submission_recorded",
        "a submission that is refused leaves no event of itself",
        _ADMISSION,
        "    reserved = charges.of_submission(",
        '    for task_id, _ in fresh:\n        turn.record("submitted", "It was submitted.", task_id=task_id)\n'
        "    reserved = charges.of_submission(",
    ),
    mutant(
        "attempt_without_time",
        "nobody allows an attempt that the campaign has no time for",
        _DIRECTIVES,
        "        charges.require_time_for_another(turn, task_id)\n",
        "",
    ),
)

_SETTLED: Final = (
    _schema(
        "attempt_over_its_share",
        "no attempt uses more than was reserved for it",
        "            SELECT MAX(0, MIN(NEW.duration_ms, l.ended_at_ms - l.offered_at_ms,\n"
        "                CASE WHEN attempt_ms > 0 THEN MIN(attempt_ms, reserved_ms) ELSE NEW.duration_ms END))\n"
        + _OF_A_RESULT,
        "            SELECT MAX(0, MIN(NEW.duration_ms, l.ended_at_ms - l.offered_at_ms))\n" + _OF_A_RESULT,
    ),
    _schema(
        "workers_word_on_time",
        "a worker's word on its time counts only while it says less than the coordinator's clock",
        "MIN(NEW.duration_ms, l.ended_at_ms - l.offered_at_ms,\n"
        "                CASE WHEN attempt_ms > 0 THEN MIN(attempt_ms, reserved_ms) ELSE NEW.duration_ms END))\n"
        + _OF_A_RESULT,
        "MIN(NEW.duration_ms,\n"
        "                CASE WHEN attempt_ms > 0 THEN MIN(attempt_ms, reserved_ms) ELSE NEW.duration_ms END))\n"
        + _OF_A_RESULT,
    ),
    _schema(
        "unstarted_uses_time",
        "an attempt that never started uses no time",
        " AND NEW.bound_at_ms IS NOT NULL AND NEW.cause IS NOT 'unstarted'",
        " AND NEW.bound_at_ms IS NOT NULL",
    ),
    _schema(
        "abandoned_keeps_its_place",
        "a task whose next attempt was denied gives back its place",
        "AFTER UPDATE OF state ON task WHEN NEW.state IN ('CANCELLED', 'ABANDONED')",
        "AFTER UPDATE OF state ON task WHEN NEW.state IN ('CANCELLED')",
    ),
    _schema(
        "further_attempt_unreserved",
        "who allows one more attempt reserves the time for it",
        "reserved_ms = reserved_ms + attempt_ms WHERE",
        "reserved_ms = reserved_ms WHERE",
    ),
    _schema(
        "sums_over_budget_stored",
        "the store refuses sums over the budget",
        "    CHECK (most_tasks IS NULL OR reserved_tasks + used_tasks <= most_tasks),\n",
        "",
    ),
)

MUTANTS: Final = (*_ADMITTED, *_SETTLED)
