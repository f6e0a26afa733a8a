"""Mutants of what texts of sites and people may do, and of what follows when one of them comes past every check."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Edit, Mutant, mutant

_COORDINATOR: Final = "coordinator/coordinator.py"
_MESSAGES: Final = "protocol/worker_messages.py"
_METRICS: Final = "protocol/metrics.py"
_REMNANTS: Final = "coordinator/remnants.py"
_BY_SITE: Final = "UNIQUE (task_id, fence, site_id, worker_id, nonce)"
_BY_ANYBODY: Final = "UNIQUE (task_id, fence, worker_id, nonce)"

MUTANTS: Final = (
    mutant(
        "metrics_of_any_depth",
        "metrics that are nested too deeply are refused",
        _METRICS,
        "    if level:\n        raise",
        "    if level is None:\n        raise",
    ),
    mutant(
        "metrics_by_any_reader",
        "metrics that hold half of a surrogate pair are refused",
        _METRICS,
        'from_json(text or "{}", allow_inf_nan=False)',
        '__import__("json").loads(text or "{}")',
    ),
    mutant(
        "unread_stops_everybody",
        "an entry that cannot be read, past every check, is dropped like one that breaks a rule of the database",
        _COORDINATOR,
        "(sqlite3.IntegrityError, OverflowError, RecursionError, ValueError)",
        "(sqlite3.IntegrityError, OverflowError)",
    ),
    mutant(
        "started_as_unstarted",
        "what has started is never given back as what has not",
        _MESSAGES,
        "        if self.started and self.cause in BEFORE_THE_START:\n",
        "        if self.started and not self.cause:\n",
    ),
    mutant(
        "revoked_by_its_own_word",
        "that a site was revoked is the coordinator's to say",
        _MESSAGES,
        "    if cause is Cause.SITE_REVOKED:\n",
        "    if not cause:\n",
    ),
    mutant(
        "unstarted_by_its_parents_word",
        "an executor that was bound has used up time, whatever its parent says of it",
        "coordinator/executors.py",
        "    if not knows or event.cause in NEVER_LAUNCHED:\n",
        "    if not event.cause:\n",
    ),
    mutant(
        "late_launch_called_unschedulable",
        "why a substrate has started nothing says nothing of an executor that was bound",
        "coordinator/executors.py",
        "event.cause in NEVER_LAUNCHED",
        "event.cause is NEVER_LAUNCHED",
    ),
    mutant(
        "cancelled_without_an_end",
        "what a revoked site may still run is not called CANCELLED",
        _REMNANTS,
        "    until_ms = turn.memory.remnants.until_ms(task_id, row[2])\n",
        "    until_ms = 0\n",
    ),
    mutant(
        "remnants_forgotten",
        "the next coordinator goes on to wait for what revoked sites may still run",
        _COORDINATOR,
        "            remnants=remnants.load(self._store, elapsed_ms),\n",
        "            remnants=remnants.Remnants(elapsed_ms),\n",
    ),
    mutant(
        "remnants_in_one_sweep",
        "a request to cancel many calls nothing CANCELLED that a revoked site may still run",
        "coordinator/store/sql/cancellation.sql",
        "      AND (next_attempt = 1 OR NOT EXISTS (\n",
        "      AND (next_attempt > 0 OR NOT EXISTS (\n",
    ),
    Mutant(
        "forged_in_its_place",
        "evidence of one site takes the place of no other's",
        (
            Edit("coordinator/store/schema.sql", _BY_SITE, _BY_ANYBODY),
            Edit("coordinator/store/migrations/0010_remnants.sql", _BY_SITE, _BY_ANYBODY),
        ),
    ),
    mutant(
        "answered_by_nobody",
        "a question that a cancel or an adoption has answered is denied on record",
        "coordinator/directives.py",
        '    turn.record("retry_denied", text, task_id=task_id, step=step)\n',
        "",
    ),
    mutant(
        "rest_of_the_turn",
        "requests beside one that breaks a rule are answered in the same turn",
        _COORDINATOR,
        "[*received.taken, *received.left()]",
        "[*received.taken]",
    ),
    mutant(
        "answers_forgotten",
        "what was answered is remembered over a turn that was undone",
        _COORDINATOR,
        "        self._memory.answered = answered\n",
        "",
    ),
    mutant(
        "answered_in_vain",
        "what was answered in a turn that was undone is not remembered",
        "coordinator/requests.py",
        "            turn.out.answered[asked] = reply\n",
        "            turn.memory.answered[asked] = reply\n",
    ),
    mutant(
        "emptied_and_left",
        "an inbox that was emptied unread is made anew, for nobody knows which ids were left",
        "coordinator/intake.py",
        "            self._emptied.add(site)\n",
        "            self._emptied.clear()\n",
    ),
)
