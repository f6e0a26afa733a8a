"""Mutants of what a site may make the coordinator do and keep."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import mutant

_LIMITS: Final = "coordinator/limits.py"
_LISTENING: Final = "coordinator/listening.py"
_INTAKE: Final = "coordinator/intake.py"
_PEOPLE: Final = "coordinator/people_limits.py"
_QUOTAS: Final = "coordinator/quotas.py"
_SCHEDULER: Final = "coordinator/scheduler.py"

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
        "self._charge(delivery.site, 1 + _size(delivery) // _UNREADABLE_BYTES_PER_UNIT)",
        "self._charge(delivery.site, 0)",
    ),
    mutant(
        "endless_inbox",
        "an inbox that piles up is cut",
        _LIMITS,
        "if backlog.entries > max(self._rules.most_waiting, len(allowance.held)):",
        "if backlog.entries < 0:",
    ),
    mutant(
        "weightless_inbox",
        "an inbox that weighs too much is cut",
        _LIMITS,
        "if backlog.size > self._rules.most_waiting_bytes:",
        "if backlog.size < 0:",
    ),
    mutant(
        "bytes_beside_the_message",
        "bytes that mean nothing cost what others cost",
        _LIMITS,
        "return max(len(delivery.raw), delivery.size)",
        "return len(delivery.raw)",
    ),
    mutant(
        "free_heartbeats",
        "heartbeats that list more than their site's leases use up its allowance",
        _LISTENING,
        "if size <= left or self._limits.afford(worker.site, size // _BYTES_PER_UNIT, now_ms):",
        "if size >= 0:",
    ),
    mutant(
        "silenced_by_its_inbox",
        "a worker is heard before its leases are over, whatever its site's inbox takes of the allowance",
        _LISTENING,
        "leases) // _OVERDUE_PARTS and size <= spare:",
        "leases) // _OVERDUE_PARTS and size < 0:",
    ),
    mutant(
        "overdue_without_end",
        "of workers that were passed over no more is read in a second than the longest heartbeat",
        _LISTENING,
        "leases) // _OVERDUE_PARTS and size <= spare:",
        "leases) // _OVERDUE_PARTS:",
    ),
    mutant(
        "whole_replies",
        "of an entry no more is kept than one may have",
        "broker/redis_replies.py",
        "kept = min(size, room)",
        "kept = size",
    ),
    mutant(
        "endless_log",
        "of a log no more is kept than a worker can have left",
        "broker/kept_log.py",
        "        if left < 0:\n",
        "        if left > MOST_BYTES:\n",
    ),
    mutant(
        "spoiled_inbox_left",
        "an inbox without ids left is made anew",
        _INTAKE,
        "            self._broker.sites.forget_site(site, (), ())\n",
        "            pass\n",
    ),
    mutant(
        "endless_names",
        "a site does not make up workers without end",
        _QUOTAS,
        "        if not taken:\n",
        "        if not taken and now_ms < 0:\n",
    ),
    mutant(
        "names_of_executors_stay",
        "the name of an executor is not good for a worker whose row stays",
        _QUOTAS,
        'name = f"{worker_id} executor" if is_executor else worker_id',
        "name = worker_id",
    ),
    mutant(
        "undone_for_nothing",
        "a site pays for the records of what it gives back",
        _QUOTAS,
        "            self._of(site, now_ms).records.use(_UNDONE)\n",
        "            self._of(site, now_ms)\n",
    ),
    mutant(
        "offered_without_records",
        "a site that has used up its records is offered nothing",
        _SCHEDULER,
        " and credit > 0 and site not in spent:",
        " and credit > 0:",
    ),
    mutant(
        "directed_without_records",
        "nothing is directed to a site that has used up its records",
        _SCHEDULER,
        "    closed |= dict.fromkeys(",
        "    dict.fromkeys(",
    ),
    mutant(
        "spent_for_good",
        "a site that has records again is looked at again",
        _SCHEDULER,
        "    if recovered:\n        turn.memory.directed_ready = True\n",
        "    del recovered\n",
    ),
    mutant(
        "endless_comings_and_goings",
        "the workers of a site fill the event log up to a quota",
        _QUOTAS,
        'return self._take_records(used, 1, now_ms) or self._refuse(used, "events")',
        "return True",
    ),
    mutant(
        "comings_for_offers",
        "workers that come and go leave half of a site's records to offers",
        _QUOTAS,
        "spare=self._rules.records_per_day // 2)",
        "spare=0)",
    ),
    mutant(
        "unrecorded_drain",
        "what a person does to a worker is recorded whatever its site has used up",
        "coordinator/registry.py",
        "if turn.actor.is_person or quotas.may_record(",
        "if quotas.may_record(",
    ),
    mutant(
        "endless_workers",
        "a site has only so many workers at once",
        _QUOTAS,
        '        if present >= self._rules.workers:\n            return self._refuse(used, "workers")\n',
        "",
    ),
    mutant(
        "endless_evidence",
        "rejected results of a site are kept up to a quota",
        _QUOTAS,
        'return used.evidence.has(size + _EVIDENCE_BYTES, now_ms) or self._refuse(used, "evidence")',
        "return True",
    ),
    mutant(
        "repeats_use_up_evidence",
        "the same rejected result again uses nothing of the quota of evidence",
        "coordinator/acceptance.py",
        '    if turn.store.row("is_quarantined", (binding',
        '    if turn.now_ms < 0 and turn.store.row("is_quarantined", (binding',
    ),
    mutant(
        "no_share_for_a_person",
        "no person takes more than their share of a turn",
        _PEOPLE,
        "allowance.credit > 0 and spent < self._rules.time_ms_per_turn * _MS",
        "allowance.credit > 0",
    ),
    mutant(
        "endless_time",
        "a person who has used their allowance up waits",
        _PEOPLE,
        "allowance.credit = max(allowance.credit - cost, -self._rules.reserve_ms * _MS)",
        "del cost",
    ),
    mutant(
        "read_in_every_turn",
        "of a person who has something held more is read once a second",
        _PEOPLE,
        "if ahead or not allowance.held:",
        "if allowance.filled_ms >= 0:",
    ),
    mutant(
        "endless_debt",
        "nobody gets into more debt than a reserve",
        _PEOPLE,
        "max(allowance.credit - cost, -self._rules.reserve_ms * _MS)",
        "allowance.credit - cost",
    ),
    mutant(
        "suspended_at_ones_cost",
        "one request costs only so much, however long the host was suspended meanwhile",
        _PEOPLE,
        "return min(self._clock.elapsed_ms() - began_ms, _LONGEST_MS) * _MS",
        "return (self._clock.elapsed_ms() - began_ms) * _MS",
    ),
    mutant(
        "copies_taken_again",
        "a copy of a request that waits is not taken a second time",
        _PEOPLE,
        "if delivery.raw in allowance.held:",
        "if delivery.raw in self._people:",
    ),
    mutant(
        "free_copies",
        "copies of a request cost what their bytes do",
        _PEOPLE,
        "                self._charge(allowance, _cost(delivery))\n            else:\n",
        "            else:\n",
    ),
    mutant(
        "unused_turn",
        "who has used their allowance up goes on while nobody else has anything",
        _INTAKE,
        "        if not self.taken:\n",
        "        if not self.taken and self._now_ms < 0:\n",
    ),
    mutant(
        "turn_beside_others",
        "who has used their allowance up waits while somebody else has something",
        _INTAKE,
        "        if not self.taken:\n",
        "        if self._now_ms >= 0:\n",
    ),
    mutant(
        "free_refusals",
        "a person pays for the time that is lost to what the store refuses",
        _INTAKE,
        "charge_refused(delivery.person, time_ms // len(refused))",
        "charge_refused(delivery.person, 0)",
    ),
    mutant(
        "free_refusals_of_sites",
        "a site pays for the time that is lost to what the store refuses",
        _LIMITS,
        "self._rules.units_per_s * lost_ms // _SECOND_MS",
        "0 * lost_ms",
    ),
    mutant(
        "endless_watches",
        "a person's clients watch only so many tasks",
        "coordinator/watchers.py",
        "if len(watches) > self._most:",
        "if not watches:",
    ),
)
