"""Mutants of the worker's core: when work may start, when it must stop, and what must be remembered."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Edit, Mutant, mutant

_ANSWERS: Final = "workers/answers.py"
_CLAIMS: Final = "workers/claims.py"
_FLOOR: Final = "workers/floor.py"
_INTAKE: Final = "workers/intake.py"
_RIGHTS: Final = "workers/rights.py"
_SINGLE_TAKER: Final = "workers/single_taker.py"

STARTING: Final = (
    mutant(
        "start_without_grant",
        "a task that starts on a grant waits for it",
        _INTAKE,
        '        if ticket.start == "granted":\n',
        '        if ticket.start == "":\n',
    ),
    mutant(
        "anothers_grant",
        "a grant counts only for the nonce that this agent drew",
        _ANSWERS,
        "        if hold is None or hold.binding.nonce != order.nonce or hold.stage is not Stage.ASKING:\n",
        "        if hold is None or hold.stage is not Stage.ASKING:\n",
    ),
    Mutant(
        "start_after_the_deadline",
        "nothing starts when its right to run has passed",
        (
            Edit(_ANSWERS, "now_ms >= self._rights.deadline_ms(hold) or self._intake.closed", "self._intake.closed"),
            Edit(_FLOOR, "            if now_ms >= self._rights.deadline_ms(hold):\n", "            if now_ms < 0:\n"),
        ),
    ),
    mutant(
        "revived_right",
        "a renewal does not bring back a right to run that had run out",
        _CLAIMS,
        "                self._rounds.lapse(now_ms)\n",
        "",
    ),
    mutant(
        "handout_taken_twice",
        "a repeated handout starts nothing",
        _INTAKE,
        "self._ledger.recall(key) or (older and older.binding.fence > ticket.fence)",
        "older and older.binding.fence > ticket.fence",
    ),
    mutant(
        "let_go_is_fresh",
        "an assignment that was let go before starts only on a grant",
        _INTAKE,
        "taken.again or was_let_go",
        "taken.again",
    ),
    mutant(
        "late_copy_starts",
        "what a replaced coordinator sends starts only on a grant",
        _INTAKE,
        "not self.trusted or ticket.epoch < self.epoch",
        "not self.trusted",
    ),
    mutant(
        "older_handout_taken",
        "a handout that a newer one has replaced starts nothing",
        _INTAKE,
        "self._ledger.recall(key) or (older and older.binding.fence > ticket.fence)",
        "self._ledger.recall(key)",
    ),
    mutant(
        "inherited_started",
        "what an earlier agent may have started is not started again",
        _INTAKE,
        "        elif taken.inherited:\n",
        "        elif taken.issued_ms < 0:\n",
    ),
    mutant(
        "retaken_started",
        "what was delivered before waits for a grant",
        _INTAKE,
        "elif taken.again or self._is_doubtful(ticket) or now_ms",
        "elif self._is_doubtful(ticket) or now_ms",
    ),
    mutant(
        "late_read_started",
        "what a read brings that was sent long ago waits for a grant",
        _INTAKE,
        "or self._is_doubtful(ticket) or now_ms - taken.issued_ms >= ticket.ttl_ms // 2:",
        "or self._is_doubtful(ticket):",
    ),
    mutant(
        "started_after_a_reconnect",
        "until a hello is answered after a reconnect, everything waits for a grant",
        _INTAKE,
        "return not self.trusted or ticket.epoch < self.epoch",
        "return ticket.epoch < self.epoch",
    ),
    mutant(
        "digest_not_checked",
        "an envelope with other bytes than the ticket says is not run",
        _INTAKE,
        "        if digest(raw) != assignment.ticket.digest:\n",
        "        if not digest(raw):\n",
    ),
    mutant(
        "beside_the_older",
        "an attempt does not start before an older one of its task is over",
        _FLOOR,
        "        if older is not None and older.stage is not Stage.OVER:\n            return False\n",
        "",
    ),
    mutant(
        "early_stop_forgotten",
        "a stop that comes before its assignment counts",
        _ANSWERS,
        "            self._intake.stop_early(key)\n",
        "            return\n",
    ),
)

STOPPING: Final = (
    mutant(
        "refusal_ignored",
        "what runs although its claim was refused is stopped",
        _ANSWERS,
        'refused: {order.reason}"\n            self._stopper.stop(hold, Cause.CANCELLED, now_ms)\n',
        'refused: {order.reason}"\n',
    ),
    mutant(
        "longer_right",
        "the right to run ends a ttl after the renewal was sent",
        _RIGHTS,
        "        return base_ms + hold.ttl_ms\n",
        "        return base_ms + 2 * hold.ttl_ms\n",
    ),
    mutant(
        "no_self_fence",
        "the agent ends what cannot be renewed in time",
        "workers/rounds.py",
        "        elif now_ms >= self._rights.deadline_ms(hold):\n",
        "        elif now_ms < 0:\n",
    ),
    mutant(
        "no_dead_mans_switch",
        "a runner knows until when its tree may run before anything runs in it",
        _FLOOR,
        "        if slot.until_ms is None or until_ms < slot.until_ms:\n            self._allow(slot, until_ms)\n",
        "",
    ),
    mutant(
        "latest_deadline",
        "a tree may run as long as all of its calls may, not the luckiest one",
        _FLOOR,
        "min(map(self._rights.deadline_ms, slot.placed.values()))",
        "max(map(self._rights.deadline_ms, slot.placed.values()))",
    ),
    mutant(
        "exclusive_without_echo",
        "an exclusive task may run only on renewals that the coordinator has echoed",
        _RIGHTS,
        "self._echoed if hold.exclusive else self._taken",
        "self._taken",
    ),
    mutant(
        "renewed_by_an_older_beat",
        "a heartbeat renews only what it lists",
        _RIGHTS,
        "sent_ms if sequence > hold.after_beat and sent_ms > hold.base_ms else hold.base_ms",
        "sent_ms if sent_ms > hold.base_ms else hold.base_ms",
    ),
    mutant(
        "anothers_echo",
        "an echo counts only for the agent whose heartbeat it is of",
        _RIGHTS,
        "        if epoch < lowest_epoch or generation != self._generation:\n",
        "        if epoch < lowest_epoch:\n",
    ),
    mutant(
        "old_coordinators_echo",
        "an echo of a coordinator that was replaced counts for nothing",
        _RIGHTS,
        "        if epoch < lowest_epoch or generation != self._generation:\n",
        "        if generation != self._generation:\n",
    ),
    mutant(
        "old_coordinator_obeyed",
        "orders of a coordinator that was replaced are ignored",
        _CLAIMS,
        "        if happened.control.epoch < self._intake.epoch:\n            return\n",
        "",
    ),
    mutant(
        "newer_agent_ignored",
        "an agent ends when a newer one of its worker has said hello",
        "workers/greeting.py",
        "        return order.generation > self._generation\n",
        "        return order.generation < 0\n",
    ),
)

REMEMBERING: Final = (
    mutant(
        "not_spooled",
        "a result is in the spool before it is told",
        "workers/ledger.py",
        "        self.actions.append(Tell(report, keep=True))\n",
        "        self.actions.append(Tell(report))\n",
    ),
    mutant(
        "forgotten_before_the_verdict",
        "a result is remembered until its verdict",
        "workers/ledger.py",
        "        self.actions.append(Tell(report, keep=True))\n",
        "        self.actions.append(Tell(report, keep=True))\n        self.act(Forget(*hold.key))\n",
    ),
    mutant(
        "verdict_of_another",
        "a verdict counts only for the nonce that it names",
        _ANSWERS,
        "hold.stage is Stage.OVER and hold.binding.nonce == order.nonce:",
        "hold.stage is Stage.OVER:",
    ),
    mutant(
        "finished_not_listed",
        "what has ended is listed until its verdict",
        _CLAIMS,
        "            held=tuple(hold.held() for hold in self._ledger.holds()),\n",
        "            held=tuple(hold.held() for hold in self._ledger.holds() if hold.report is None),\n",
    ),
    mutant(
        "told_once",
        "a result is told again until a verdict comes",
        _ANSWERS,
        "        if hold.report is not None and (at_once or _due(hold, now_ms, _REPORT_PATIENCE_MS)):\n",
        "        if hold.report is None:\n",
    ),
)

EXECUTING: Final = (
    mutant(
        "executor_starts_on_its_claim",
        "an executor starts nothing without a grant: another one may have been started",
        _SINGLE_TAKER,
        "self._desk.post(Taken((handout,), issued_ms, again=True))",
        "self._desk.post(Taken((handout,), issued_ms))",
    ),
    mutant(
        "whatever_lies_there",
        "an executor takes the assignment that its ticket names, and no other",
        _SINGLE_TAKER,
        "        elif handout.assignment is not None and not _is_that(launched, handout.assignment):\n",
        "        elif handout.assignment is not None and handout.entry_id != entry_id:\n",
    ),
    mutant(
        "executor_wants_more",
        "an executor is there for one assignment",
        _CLAIMS,
        "takes = self._profile.hello.executor_of is None and not self._intake.closed",
        "takes = not self._intake.closed",
    ),
    mutant(
        "executor_stays",
        "an executor whose claim nobody answers leaves",
        "workers/one_task.py",
        "        return now_ms - self._since_ms >= self._patience_ms and not self._was_granted()\n",
        "        return False\n",
    ),
    mutant(
        "executor_leaves_its_result",
        "an executor waits for the verdict on what has run longer than a worker that has a next agent",
        "workers/membership.py",
        "        return self._patience_ms if has_run else min(self._patience_ms, _VERDICT_PATIENCE_MS)\n",
        "        return min(self._patience_ms, _VERDICT_PATIENCE_MS)\n",
    ),
)

BELONGING: Final = (
    mutant(
        "id_without_its_site",
        "a worker's id begins with the name of its site",
        "workers/identity.py",
        '    return name if site == DEFAULT_SITE or name.startswith(f"{site}.") else f"{site}.{name}"\n',
        "    return name\n",
    ),
    mutant(
        "any_site_s_credential",
        "a worker belongs to the site whose credential it holds",
        "cli/execution.py",
        "    if held not in {DEFAULT_SITE, wanted}:\n",
        "    if not held:\n",
    ),
    mutant(
        "staged_elsewhere",
        "what a task leaves is staged as its site's",
        "workers/workplace.py",
        "StagingPlace(site=self.site, ",
        'StagingPlace(site="default", ',
    ),
    mutant(
        "executor_looks_elsewhere",
        "an executor looks for its assignment at its own site",
        _SINGLE_TAKER,
        "Stream(launched.site, launched.capability)",
        'Stream("default", launched.capability)',
    ),
    mutant(
        "one_stream_for_all_sites",
        "every site has streams of assignments of its own",
        "broker/keys.py",
        'f"{kind}:{stream.site}:{name}"',
        'f"{kind}:{name}"',
    ),
    mutant(
        "one_stream_for_all_people",
        "every person has a stream of requests of its own",
        "broker/keys.py",
        'f"rpc:{person}"',
        '"rpc"',
    ),
    mutant(
        "site_half_forgotten",
        "nothing of a site that was thrown out stays at the broker",
        "broker/keys.py",
        "        return [self.inbox(site), *map(self.assignments, streams), *left]\n",
        "        return [*map(self.assignments, streams), *left]\n",
    ),
)

ENDING: Final = (
    mutant(
        "death_is_a_failure",
        "a process that dies is lost, and fails no task",
        "workers/conclusions.py",
        "        case FailureKind.TIMEOUT if started:\n",
        "        case FailureKind.TIMEOUT | Cause.PROCESS_DIED if started:\n",
    ),
    mutant(
        "silence_is_a_failure",
        "what a worker ends because it cannot renew is lost, and fails no task",
        "workers/conclusions.py",
        "        case FailureKind.TIMEOUT if started:\n",
        "        case FailureKind.TIMEOUT | Cause.SELF_FENCED if started:\n",
    ),
    mutant(
        "timed_out_early",
        "a task has all the time that its submitter gave it",
        "workers/rounds.py",
        "now_ms - hold.began_ms >= timeout_ms",
        "now_ms - hold.began_ms >= timeout_ms // 2",
    ),
    mutant(
        "deadline_is_a_timeout",
        "what the runner ended at the lease's deadline is lost, and did not time out",
        "workers/stopping.py",
        "hold.end in {None, FailureKind.TIMEOUT}",
        "hold.end is None",
    ),
    mutant(
        "kind_changed",
        "a worker's id is of one kind, for neither can read what the other has begun",
        "workers/identity.py",
        "if (self.folder / kind.other).exists():",
        "if (self.folder / kind.other).is_dir():",
    ),
    mutant(
        "refused_start_counts",
        "an agent that never said hello is nobody's predecessor",
        "workers/identity.py",
        "        if self.predecessor:\n            with suppress",
        "        if self.predecessor < 0:\n            with suppress",
    ),
    mutant(
        "number_of_elsewhere_taken_back",
        "what is not known to be gone is nobody's predecessor, also after a start that was refused",
        "workers/identity.py",
        "        if self.predecessor:\n            with suppress",
        "        if self.generation:\n            with suppress",
    ),
)

MUTANTS: Final = (*STARTING, *STOPPING, *REMEMBERING, *EXECUTING, *BELONGING, *ENDING)
