"""Mutants of everything that is about files: results, checkpoints, quarantine, collection, logs."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Edit, Mutant, mutant

_ACCEPTANCE: Final = "coordinator/acceptance.py"
_ADOPTION: Final = "coordinator/adoption.py"
_CHECKPOINTS: Final = "coordinator/checkpoints.py"
_COLLECTION: Final = "coordinator/collection.py"
_PROMOTION: Final = "coordinator/promotion.py"
_SCHEMAS: Final = ("coordinator/store/schema.sql", "coordinator/store/migrations/0002_artifacts.sql")


def _schema(name: str, rule: str, old: str, new: str) -> Mutant:
    return Mutant(name, rule, tuple(Edit(file, old, new) for file in _SCHEMAS))


RESULTS: Final = (
    mutant(
        "discard_under_a_live_lease",
        "what is dropped keeps its files while its lease may still bring them",
        "coordinator/promotion.py",
        "    if lease is not None and lease.fence == place.fence:\n        return\n    if turn.store",
        "    if turn.store",
    ),
    mutant(
        "accepted_unread",
        "files are read before the result that names them is accepted",
        _ACCEPTANCE,
        "            _check(turn, worker, report, report.outputs)\n",
        "            settle(turn, worker, report, verified=report.outputs)\n",
    ),
    mutant(
        "damaged_files_accepted",
        "a result whose files are not what was told is a failure",
        "coordinator/outputs.py",
        "    if problem is None:\n",
        "    if problem is None or problem.code:\n",
    ),
    mutant(
        "rejected_files_promoted",
        "nothing of a rejected result becomes an object",
        _ACCEPTANCE,
        "        _refuse(turn, worker, report)\n        return\n    lease.printed",
        "        _refuse(turn, worker, report)\n        if verified is not None:\n"
        "            from tenure.coordinator.errands import Promotion\n"
        "            at = (binding.task_id, binding.fence, binding.attempt, 'outputs', 0, '')\n"
        "            turn.ask_porter(Promotion(Artifact(*at, verified, place_of(worker.site, binding))))\n"
        "        return\n    lease.printed",
    ),
    mutant(
        "checked_without_a_right",
        "files are read only for a result that would be accepted",
        _ACCEPTANCE,
        '    return bool(turn.store.records("may_complete", _guard(worker, report)))\n',
        "    return report.duration_ms >= 0\n",
    ),
    mutant(
        "checked_twice",
        "a result that is told again starts nothing twice",
        "coordinator/curator.py",
        "            if errand.key in self._keys:\n",
        "            if not errand.key:\n",
    ),
    mutant(
        "unpromoted_forgotten",
        "what was accepted is promoted, also after a crash",
        "coordinator/consequences.py",
        "    promotion.go_on(turn)\n",
        "",
    ),
    _schema(
        "outputs_without_result",
        "the store refuses outputs that no accepted result names",
        "WHERE task_id = NEW.task_id AND fence = NEW.fence AND attempt = NEW.attempt AND nonce = NEW.nonce\n"
        "          AND instr(outputs, NEW.manifest) > 0)",
        "WHERE task_id = NEW.task_id)",
    ),
)

CHECKPOINTS: Final = (
    mutant(
        "checkpoint_of_anyone",
        "a checkpoint is taken only from the executor that holds the live lease",
        _CHECKPOINTS,
        "lease.state is not LeaseState.ACTIVE or not acceptance.holds(lease, worker, binding):\n",
        "not lease.capability:\n",
    ),
    mutant(
        "older_checkpoint_taken",
        "a newer checkpoint is never replaced by an older one",
        _CHECKPOINTS,
        "    if newest is None or (newest[1], newest[4]) < (binding.fence, event.ordinal):\n",
        "    if newest is None or newest[1] <= binding.fence:\n",
    ),
    _schema(
        "checkpoint_under_an_old_fence",
        "the store refuses a checkpoint without the live lease of its executor",
        "AND attempt = NEW.attempt AND nonce = NEW.nonce\n          AND state = 'ACTIVE')",
        "AND attempt = NEW.attempt AND nonce = NEW.nonce)",
    ),
    mutant(
        "starts_before_the_checkpoint_is_there",
        "the next attempt starts from the newest accepted checkpoint",
        _PROMOTION,
        '    if row is None or row[10] == "PROMOTED":\n',
        "    if row is None or row[10]:\n",
    ),
    mutant(
        "starts_from_the_beginning",
        "the next attempt is told of the newest checkpoint",
        "coordinator/leases.py",
        "        checkpoint=promotion.starting_point(turn, lease.task_id, lease.attempt),\n",
        "",
    ),
    mutant(
        "accepted_checkpoint_discarded",
        "nothing is discarded that was accepted and is still to be promoted",
        _PROMOTION,
        '    if turn.store.row("unpromoted_in_place", (place.task_id, place.fence, place.nonce)) is None:\n',
        "    if place.fence:\n",
    ),
    mutant(
        "bound_by_a_checkpoint",
        "only a claim says which heartbeats must list an assignment",
        _CHECKPOINTS,
        "        return  # its claim",
        "        from tenure.coordinator import leases\n\n"
        "        leases.bind(turn, lease, binding, worker.worker_id, after_beat=worker.beat)\n        # its claim",
    ),
)

QUARANTINE: Final = (
    mutant(
        "adopted_over_a_newer_report",
        "nothing is adopted when a newer lease was completed",
        _ADOPTION,
        "        if lease[2] == LeaseState.COMPLETED and lease[0] >= fence:\n",
        "        if lease[2] == LeaseState.COMPLETED and lease[0] < 0:\n",
    ),
    _schema(
        "adopted_over_a_completed_lease",
        "the store refuses an adoption beside a live lease or over a newer completed one",
        "OR (state = 'COMPLETED' AND fence >= (\n        SELECT fence FROM",
        "OR (state = 'COMPLETED' AND fence < (\n        SELECT fence FROM",
    ),
    mutant(
        "adopted_unread",
        "the files of a late result are read before it is adopted",
        _ADOPTION,
        "    if bundle is None:\n",
        "    if bundle is None or bundle.files >= 0:\n",
    ),
    mutant(
        "adopted_although_false",
        "only a result that was merely late is adopted",
        _ADOPTION,
        "    if reason not in _TOO_LATE or evidence.reason in _NEVER:\n",
        "    if reason is None:\n",
    ),
    mutant(
        "adopted_without_an_answer",
        "an adoption answers the question that waits",
        _ADOPTION,
        '    directives.deny(turn, task_id, by, f"result {evidence.quarantine_id} is adopted instead")\n',
        "",
    ),
    mutant(
        "adopted_as_it_was_when_asked",
        "whether a result may be adopted is decided when its files have been read",
        _ADOPTION,
        "        _require_readable(end)\n        _require_adoptable(turn, evidence)\n",
        "        _require_readable(end)\n",
    ),
    _schema(
        "adopted_under_the_old_fence",
        "the store refuses an adoption without a new fence",
        "fence >= NEW.fence)\n     OR NEW.fence > (SELECT fence FROM world))\n"
        "BEGIN SELECT RAISE(ABORT, 'an adoption has",
        "fence > NEW.fence + 1000000)\n     OR NEW.fence > (SELECT fence FROM world))\n"
        "BEGIN SELECT RAISE(ABORT, 'an adoption has",
    ),
    _schema(
        "succeeded_by_nobody",
        "the store refuses to let a task succeed that nobody runs, but for an adoption",
        "WHEN NEW.state = 'SUCCEEDED' AND OLD.state IN ('QUEUED', 'LOST') AND NOT EXISTS (",
        "WHEN NEW.state = 'SUCCEEDED' AND OLD.state IN ('QUEUED') AND NOT EXISTS (",
    ),
)

KEEPING: Final = (
    mutant(
        "accepted_place_collected",
        "a collection keeps the places of what was accepted and is not in the store yet",
        _COLLECTION,
        '"places_of_leases", "places_of_artifacts", "places_of_quarantine"',
        '"places_of_leases", "places_of_quarantine"',
    ),
    mutant(
        "holders_place_collected",
        "a collection keeps the places of those who hold a lease",
        _COLLECTION,
        '"places_of_leases", "places_of_artifacts", "places_of_quarantine"',
        '"places_of_artifacts", "places_of_quarantine"',
    ),
    mutant(
        "undecided_place_collected",
        "a collection keeps the files of rejected results that nobody has decided about",
        _COLLECTION,
        '"places_of_leases", "places_of_artifacts", "places_of_quarantine"',
        '"places_of_leases", "places_of_artifacts"',
    ),
    mutant(
        "one_portion_kept",
        "a collection keeps everything that records name, however many there are",
        _COLLECTION,
        "    gathering.artifacts_read = len(rows) < _ROWS\n",
        "    gathering.artifacts_read = True\n",
    ),
    mutant(
        "inputs_collected",
        "a collection keeps the inputs of tasks that are not over",
        _COLLECTION,
        "    gathering.task_position = min(until, last)\n",
        "    gathering.blobs.clear()\n    gathering.task_position = min(until, last)\n",
    ),
    mutant(
        "collected_while_checking",
        "a collection and a check exclude each other",
        "coordinator/curator.py",
        "        elif not self._reading and not self._is_collecting:\n",
        "        elif not self._is_collecting:\n",
    ),
    mutant(
        "logs_of_all",
        "no log is looked for of an attempt that has not printed",
        "coordinator/logs.py",
        "    if not (lease.printed and lease.worker_id",
        "    if not (lease.worker_id",
    ),
    mutant(
        "progress_goes_back",
        "progress only grows",
        "coordinator/reports.py",
        "event.cursor > lease.progress.cursor:",
        "event.cursor != lease.progress.cursor:",
    ),
    mutant(
        "address_not_announced",
        "another address of the store is announced",
        "coordinator/recovery.py",
        '    if incarnation is Incarnation.SAME and address == world["store_address"]:\n',
        "    if incarnation is Incarnation.SAME:\n",
    ),
)

MUTANTS: Final = (*RESULTS, *CHECKPOINTS, *QUARANTINE, *KEEPING)
