"""Mutants of the worker's core: when work may start, when it must stop, and what must be remembered."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Edit, Mutant, mutant

_ANSWERS: Final = "workers/answers.py"
_CLAIMS: Final = "workers/claims.py"
_FLOOR: Final = "workers/floor.py"
_INTAKE: Final = "workers/intake.py"
_RIGHTS: Final = "workers/rights.py"

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
        "handout_taken_twice",
        "a repeated handout starts nothing",
        _INTAKE,
        "self._ledger.knows((ticket.task_id, ticket.fence)) or (older and older.binding.fence > ticket.fence)",
        "older and older.binding.fence > ticket.fence",
    ),
    mutant(
        "older_handout_taken",
        "a handout that a newer one has replaced starts nothing",
        _INTAKE,
        "self._ledger.knows((ticket.task_id, ticket.fence)) or (older and older.binding.fence > ticket.fence)",
        "self._ledger.knows((ticket.task_id, ticket.fence))",
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
        "elif taken.again or not self.trusted or now_ms",
        "elif not self.trusted or now_ms",
    ),
    mutant(
        "late_read_started",
        "what a read brings that was sent long ago waits for a grant",
        _INTAKE,
        "or not self.trusted or now_ms - taken.issued_ms >= ticket.ttl_ms // 2:",
        "or not self.trusted:",
    ),
    mutant(
        "started_after_a_reconnect",
        "until a hello is answered after a reconnect, everything waits for a grant",
        _INTAKE,
        "elif taken.again or not self.trusted or now_ms",
        "elif taken.again or now_ms",
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
        "        if now_ms >= self._rights.deadline_ms(hold):\n",
        "        if now_ms < 0:\n",
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
        "        if happened.control.epoch < self._epoch:\n            return\n",
        "",
    ),
    mutant(
        "newer_agent_ignored",
        "an agent ends when a newer one of its worker has said hello",
        "workers/membership.py",
        "        elif order.generation > self._profile.generation:\n",
        "        elif order.generation < 0:\n",
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

MUTANTS: Final = (*STARTING, *STOPPING, *REMEMBERING)
