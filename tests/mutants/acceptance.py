"""Mutants of the one door to results, of binding, and of what the database refuses."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Edit, Mutant, mutant

_LEASE_SQL: Final = "coordinator/store/sql/lease.sql"
_REPORTS: Final = "coordinator/reports.py"
_ACCEPTANCE: Final = "coordinator/acceptance.py"
_SCHEMAS: Final = ("coordinator/store/schema.sql", "coordinator/store/migrations/0001_initial.sql")


def _schema(name: str, rule: str, old: str, new: str) -> Mutant:
    return Mutant(name, rule, tuple(Edit(file, old, new) for file in _SCHEMAS))


COMPARISONS: Final = (
    Mutant(
        "result_of_any_fence",
        "a result is accepted only under the fence of the live lease",
        (
            Edit(_LEASE_SQL, "task_id = :task_id AND fence = :fence AND", "task_id = :task_id AND"),
            Edit(_ACCEPTANCE, "lease is None or lease.fence != binding.fence or not", "lease is None or not"),
        ),
    ),
    mutant(
        "result_of_any_attempt",
        "a result is accepted only for the attempt of its lease",
        _LEASE_SQL,
        "AND fence = :fence AND attempt = :attempt AND",
        "AND fence = :fence AND",
    ),
    Mutant(
        "result_of_any_digest",
        "a result is accepted only for the envelope that was published",
        (
            Edit(_LEASE_SQL, "AND digest = :digest AND worker_id = :worker_id", "AND worker_id = :worker_id"),
            Edit(_LEASE_SQL, "AND digest = :digest AND run = :run", "AND run = :run"),
        ),
    ),
    mutant(
        "result_of_any_worker",
        "a result is accepted only from the worker that the lease is bound to",
        _LEASE_SQL,
        "AND worker_id = :worker_id AND nonce = :nonce",
        "AND nonce = :nonce",
    ),
    mutant(
        "result_of_any_nonce",
        "a result is accepted only from the executor that the lease is bound to",
        _LEASE_SQL,
        "AND worker_id = :worker_id AND nonce = :nonce",
        "AND worker_id = :worker_id",
    ),
    mutant(
        "result_of_any_run",
        "a result must echo its run",
        _LEASE_SQL,
        "AND digest = :digest AND run = :run",
        "AND digest = :digest",
    ),
    mutant(
        "result_of_any_world",
        "a result must echo its world",
        _LEASE_SQL,
        "WHERE world = :world)",
        "WHERE :world <> '')",
    ),
    mutant(
        "result_without_grant",
        "only a task that starts on its claim may end without having been granted",
        _ACCEPTANCE,
        'lease is not None and lease.start == "claimed" and may_bind',
        "lease is not None and may_bind",
    ),
    mutant(
        "rejected_without_evidence",
        "a rejected result is kept as evidence",
        _ACCEPTANCE,
        "    quarantine(turn, worker.site, worker.worker_id, report, reason)\n",
        "",
    ),
    mutant(
        "forgotten_duplicate",
        "a result that was accepted before is answered duplicate, not rejected",
        _ACCEPTANCE,
        "    if state is LeaseState.COMPLETED:\n        return None\n",
        "    if state is LeaseState.COMPLETED:\n        return Reason.TASK_OVER\n",
    ),
)

BINDING: Final = (
    mutant(
        "directed_to_anyone",
        "an assignment that was directed to a worker is open to that worker only",
        _ACCEPTANCE,
        '        return lease.directed_to in {"", worker.worker_id}\n',
        "        return True\n",
    ),
    mutant(
        "claimed_without_the_capability",
        "a claim needs the capability",
        _ACCEPTANCE,
        " and (kept or lease.capability in worker.capabilities)",
        "",
    ),
    mutant(
        "second_executor_granted",
        "a lease that is bound to one nonce grants nothing to another",
        _ACCEPTANCE,
        "        and lease.nonce == binding.nonce\n        and lease.fence == binding.fence\n",
        "        and lease.fence == binding.fence\n",
    ),
    mutant(
        "other_worker_granted",
        "a lease that is bound to one worker grants nothing to another",
        _ACCEPTANCE,
        "        and lease.worker_id == worker.worker_id\n        and lease.nonce",
        "        and lease.nonce",
    ),
    mutant(
        "grant_without_bind",
        "a grant is given only for a lease that the store has bound",
        _REPORTS,
        "        leases.bind(turn, lease, binding, worker.worker_id, after_beat=event.after_beat)\n",
        "        leases.note_bound(turn, lease, worker.worker_id, binding.nonce, event.after_beat)\n",
    ),
    mutant(
        "old_agents_heard",
        "what an older agent of a worker says is refused",
        _REPORTS,
        "    if report.generation < generation:\n        return Reason.OLD_GENERATION\n",
        "",
    ),
    mutant(
        "any_site_heard",
        "a worker is known by the inbox that it uses",
        _REPORTS,
        "    if known_site != site or (",
        "    if (",
    ),
)

RULES_OF_THE_STORE: Final = (
    _schema(
        "two_live_leases",
        "the store allows one live lease per task",
        "CREATE UNIQUE INDEX lease_one_live",
        "CREATE INDEX lease_one_live",
    ),
    _schema(
        "fence_goes_back",
        "the store refuses a fence that does not grow",
        "WHERE task_id = NEW.task_id AND fence >= NEW.fence)\n     OR NEW.fence > (SELECT fence FROM world)\n"
        "BEGIN SELECT RAISE(ABORT, 'a fence",
        "WHERE task_id = NEW.task_id AND fence > 1000000)\nBEGIN SELECT RAISE(ABORT, 'a fence",
    ),
    _schema(
        "attempt_without_directive",
        "the store refuses a further attempt without an approved directive",
        "WHEN NEW.attempt > 1 AND NOT EXISTS (",
        "WHEN NEW.attempt > 1000000 AND NOT EXISTS (",
    ),
    Mutant(
        "attempt_offered_twice",
        "the store refuses to offer an attempt again that may have started",
        tuple(
            Edit(
                file,
                "AND attempt >= NEW.attempt\n"
                "          AND NOT (state = 'RELEASED' AND (cause = 'unstarted' OR worker_id IS NULL)))",
                "AND attempt > NEW.attempt)",
            )
            for file in ("coordinator/store/schema.sql", "coordinator/store/migrations/0004_executors.sql")
        ),
    ),
    _schema(
        "bound_twice",
        "the store refuses to bind a lease to a second executor",
        "WHEN OLD.worker_id IS NOT NULL AND (NEW.worker_id IS NOT OLD.worker_id OR NEW.nonce IS NOT OLD.nonce)",
        "WHEN OLD.worker_id IS NOT NULL AND NEW.worker_id IS NULL",
    ),
    Mutant(
        "result_without_lease",
        "the store refuses a result without a COMPLETED lease of that executor",
        tuple(
            Edit(file, "AND nonce = NEW.nonce AND state = 'COMPLETED')", "AND nonce = NEW.nonce)")
            for file in ("coordinator/store/schema.sql", "coordinator/store/migrations/0002_artifacts.sql")
        ),
    ),
    _schema(
        "result_rewritten",
        "the store never changes an accepted result",
        "CREATE TRIGGER result_fixed BEFORE UPDATE ON result",
        "CREATE TRIGGER result_fixed BEFORE UPDATE OF accepted_at_ms ON result",
    ),
    _schema(
        "illegal_task_step",
        "the store allows only the steps of the task state table",
        "WHERE machine = 'task' AND before = OLD.state AND after = NEW.state",
        "WHERE machine = 'task' AND after = NEW.state",
    ),
    mutant(
        "settings_not_taken",
        "a commit survives a power cut",
        "coordinator/store/database.py",
        '("synchronous", "FULL", 2)',
        '("synchronous", "NORMAL", 1)',
    ),
)

MUTANTS: Final = (*COMPARISONS, *BINDING, *RULES_OF_THE_STORE)
