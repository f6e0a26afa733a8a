"""Mutants of cancelling many tasks at once: what a request covers, that nothing of it is offered, and that it ends."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import mutant

_MODULE: Final = "coordinator/mass_cancellation.py"
_SQL: Final = "coordinator/store/sql/cancellation.sql"

MUTANTS: Final = (
    mutant(
        "covered_is_offered",
        "nothing that a request covers is offered to anyone while it is under way",
        _MODULE,
        "        if order is None:\n            free.append(candidate)\n            continue\n",
        "        if order is None or turn is not None:\n            free.append(candidate)\n            continue\n",
    ),
    mutant(
        "covered_is_assigned",
        "what a request covers cannot be given to a worker by hand",
        "coordinator/requests.py",
        "    if mass_cancellation.is_covered(turn, ask.task_id):\n",
        "    if mass_cancellation.is_covered(turn, ask.task_id) and turn is None:\n",
    ),
    mutant(
        "later_submissions_covered",
        "a request covers what was submitted before it, and nothing else",
        _SQL,
        "(SELECT COALESCE(MAX(position), 0) FROM task), :stage",
        "1000000000, :stage",
    ),
    mutant(
        "run_not_looked_at",
        "only tasks of the run that is named are cancelled",
        _SQL,
        "      AND position > :after AND position <= :until\n"
        "      AND (:run IS NULL OR run = :run) AND (:principal IS NULL OR principal = :principal)\n"
        "      AND (:campaign IS NULL OR EXISTS (\n"
        "          SELECT 1 FROM charge c WHERE c.task_id = task.task_id AND c.campaign = :campaign))\n"
        "      AND (next_attempt",
        "      AND position > :after AND position <= :until\n"
        "      AND (:principal IS NULL OR principal = :principal)\n"
        "      AND (:campaign IS NULL OR EXISTS (\n"
        "          SELECT 1 FROM charge c WHERE c.task_id = task.task_id AND c.campaign = :campaign))\n"
        "      AND (next_attempt",
    ),
    mutant(
        "others_tasks_cancelled",
        "a submitter cancels nothing that somebody else has submitted",
        _MODULE,
        "    only_of = None if rights.role_of(turn, person) is Role.OPERATOR else person\n",
        "    only_of = None if rights.role_of(turn, person) is Role.OPERATOR else None\n",
    ),
    mutant(
        "queue_first",
        "the stages follow the way that a task goes, so that none is missed behind the place that was reached",
        _MODULE,
        "STAGES: Final = (TaskState.OFFERED, TaskState.RUNNING, TaskState.LOST, TaskState.QUEUED)",
        "STAGES: Final = (TaskState.QUEUED, TaskState.OFFERED, TaskState.RUNNING, TaskState.LOST)",
    ),
    mutant(
        "request_repeated",
        "a request that is repeated is the same one, also for the next coordinator",
        _MODULE,
        '    name = f"{request.client_id} {request.request_id}"\n',
        '    name = f"{request.client_id} {request.request_id} {turn.out.epoch}"\n',
    ),
    mutant(
        "requests_forgotten",
        "the next coordinator goes on with the requests that are under way",
        "coordinator/coordinator.py",
        "            cancellations=mass_cancellation.load(self._store),\n",
        "            cancellations=[],\n",
    ),
    mutant(
        "whole_queue_in_a_turn",
        "a turn cancels no more than a portion, so that others are served meanwhile",
        _MODULE,
        "    limit = portion if order.stage is TaskState.QUEUED else",
        "    limit = 1_000_000 if order.stage is TaskState.QUEUED else",
    ),
    mutant(
        "cancelled_by_nobody",
        "what is decided turns later is recorded as decided by who has asked",
        _MODULE,
        "    before, turn.actor = turn.actor, Actor(order.actor)\n",
        "    before, turn.actor = turn.actor, turn.actor\n",
    ),
)
