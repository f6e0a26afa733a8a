"""Mutants of expiry, directives, cancellation, the wire, and what a coordinator does after a fault."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Edit, Mutant, mutant

_COORDINATOR: Final = "coordinator/coordinator.py"
_DIRECTIVES: Final = "coordinator/directives.py"
_HEARTBEATS: Final = "coordinator/heartbeats.py"
_RECOVERY: Final = "coordinator/recovery.py"
_REPORTS: Final = "coordinator/reports.py"
_SWEEPER: Final = "coordinator/sweeper.py"
_WIRE: Final = "coordinator/wire.py"

EXPIRY: Final = (
    mutant(
        "no_margin",
        "a lease expires only ttl + grace + margin after its last seen renewal",
        "protocol/timing.py",
        "    return ttl_ms + grace_ms(ttl_ms) + margin_ms(ttl_ms)\n",
        "    return ttl_ms\n",
    ),
    mutant(
        "expiry_while_blind",
        "while heartbeats cannot be read nothing expires",
        _SWEEPER,
        "lease.state is LeaseState.ACTIVE and turn.memory.heard_until_ms - lease.renewed_ms >",
        "lease.state is LeaseState.ACTIVE and turn.elapsed_ms - lease.renewed_ms >",
    ),
    mutant(
        "no_full_term",
        "after a fault every live lease gets a full term",
        _RECOVERY,
        "    for lease in memory.leases:\n        lease.renewed_ms = elapsed_ms\n",
        "    for lease in memory.leases:\n",
    ),
    mutant(
        "no_term_after_a_stop",
        "a coordinator that was stopped gives every lease a full term before it judges",
        _COORDINATOR,
        "            recovery.full_term(self._memory, elapsed_ms)\n        workers =",
        "            pass\n        workers =",
    ),
    mutant(
        "expiry_while_full",
        "while a broker refuses heartbeats nothing expires",
        _COORDINATOR,
        "        if not taken:\n            recovery.full_term(self._memory, elapsed_ms)\n",
        "        if not taken:\n",
    ),
    mutant(
        "old_beat_renews",
        "a heartbeat that was seen before renews nothing",
        "coordinator/listening.py",
        "return self.generation != worker.generation or self.sequence > worker.beat",
        "return self.generation != worker.generation or self.sequence >= worker.beat",
    ),
    mutant(
        "old_agent_beats_on",
        "a heartbeat of an older agent renews nothing",
        _HEARTBEATS,
        "    if beat.generation < worker.generation:\n",
        "    if beat.generation < 0:\n",
    ),
    mutant(
        "anyone_renews",
        "a bound lease is renewed by its own worker only",
        _HEARTBEATS,
        "        return lease.worker_id == worker.worker_id\n",
        "        return True\n",
    ),
    mutant(
        "any_fence_renews",
        "a heartbeat renews the lease of the fence that it lists, no other",
        _HEARTBEATS,
        "lease is not None and lease.fence == held.fence and _may_hold",
        "lease is not None and _may_hold",
    ),
    mutant(
        "missing_from_an_older_beat",
        "only a heartbeat that was written after the claim must list the lease",
        _HEARTBEATS,
        "lease.generation == worker.generation and beat.sequence > lease.after_beat and not",
        "lease.generation == worker.generation and not",
    ),
    mutant(
        "missing_from_a_beat_of_unknown_age",
        "a lease that was bound without a claim need not be in the next heartbeat that is seen",
        _HEARTBEATS,
        "lease.after_beat = beat.sequence + 1",
        "lease.after_beat = beat.sequence",
    ),
    mutant(
        "unproved_end_believed",
        "silence about an attempt that could not be ended proves nothing",
        _HEARTBEATS,
        "beat.sequence > lease.after_beat and not lease.unproved",
        "beat.sequence > lease.after_beat",
    ),
    mutant(
        "restart_proves_an_end",
        "an agent's restart does not prove the end of what the agent before could not end",
        "coordinator/registry.py",
        "if earlier and not lease.unproved and",
        "if earlier and",
    ),
)

DIRECTIVES: Final = (
    mutant(
        "decided_by_a_client",
        "a decision is recorded in the name of the person who has made it",
        "coordinator/requests.py",
        "            return _decide(turn, request.principal, ask)\n",
        "            return _decide(turn, request.client_id, ask)\n",
    ),
    mutant(
        "repeat_without_end",
        "a lost attempt is repeated by policy only while the submitter's budget lasts",
        _DIRECTIVES,
        "    allowed = lost_count < retry.lost\n",
        "    allowed = True\n",
    ),
    mutant(
        "nobody_approved",
        "a further attempt needs a directive that somebody has approved",
        _DIRECTIVES,
        '        _allow(turn, lease, directive_id, f"lost attempt',
        '        str(turn) or _allow(turn, lease, directive_id, f"lost attempt',
    ),
    mutant(
        "loss_counts_as_failure",
        "a lost lease is never counted as a failure",
        _DIRECTIVES,
        "again(turn, lease, capability, (1, 0), wait_ms)",
        "again(turn, lease, capability, (0, 1), wait_ms)",
    ),
    mutant(
        "failure_spends_losses",
        "a failure is repeated out of its own budget",
        "coordinator/acceptance.py",
        "        if task[8] < retry.failed:\n",
        "        if task[7] < retry.lost:\n",
    ),
    mutant(
        "hopeless_repeated",
        "a failure that another attempt cannot cure is not repeated",
        "coordinator/acceptance.py",
        " and failure.kind not in NEVER_RETRIED:",
        ":",
    ),
    mutant(
        "same_attempt_again",
        "a repeat is a further attempt",
        _DIRECTIVES,
        '    turn.store.run("task_again", (lease.attempt + 1, *counts, not_before_ms, lease.task_id))\n',
        '    turn.store.run("task_again", (lease.attempt, *counts, not_before_ms, lease.task_id))\n',
    ),
)

CANCELLATION: Final = (
    mutant(
        "cancelled_without_proof",
        "what may have started is CANCELLED only when its end is proved",
        "coordinator/cancellation.py",
        'if lease.state is LeaseState.OFFERED and lease.start == "granted":',
        "if lease.state is LeaseState.OFFERED:",
    ),
    mutant(
        "unproved_tree_cancelled",
        "an attempt whose tree is not proved gone keeps its lease",
        _REPORTS,
        "    if event.started and not event.tree_gone:\n",
        "    if event.started and not event.tree_gone and turn is None:\n",
    ),
    mutant(
        "stop_said_once",
        "a stop order is repeated until the end is proved",
        _HEARTBEATS,
        "(lease is None or not mine or lease.stopping)",
        "(lease is None or not mine)",
    ),
    mutant(
        "cancelled_claim_granted",
        "a claim of a task that is being cancelled is answered with a stop",
        _REPORTS,
        "    if lease.stopping:\n        stop =",
        "    if turn is None:\n        stop =",
    ),
    mutant(
        "started_and_offered_again",
        "what has started is never just offered again",
        _REPORTS,
        "    if lease is not None and event.started and acceptance.may_bind(turn, lease, worker, binding):\n",
        "    if lease is not None and turn is None:\n",
    ),
    mutant(
        "given_back_by_another",
        "an offer that one worker lists is not given back by another",
        "coordinator/acceptance.py",
        'return may_bind(turn, lease, worker, binding) and lease.holder in {"", worker.worker_id, worker.executor_of}',
        "return may_bind(turn, lease, worker, binding)",
    ),
)

WIRE: Final = (
    mutant(
        "settled_before_commit",
        "what was received is acknowledged only after the commit",
        _COORDINATOR,
        "                scheduler.follow_clock(turn)\n                for delivery in received:\n",
        "                self._wire.settle(received)\n"
        "                scheduler.follow_clock(turn)\n                for delivery in received:\n",
    ),
    Mutant(
        "said_before_commit",
        "nothing is said before it is committed",
        (
            Edit(
                _COORDINATOR,
                "                scheduler.schedule(turn)\n        except",
                "                scheduler.schedule(turn)\n"
                "                self._talk(turn, received.taken, news or [])\n        except",
            ),
            Edit(
                _COORDINATOR,
                "        self._settle_ends(turn, ends)\n        self._talk(turn, received.taken, news or [])\n",
                "        self._settle_ends(turn, ends)\n",
            ),
        ),
    ),
    mutant(
        "superseded_goes_on",
        "a coordinator that finds a newer one's entries stops",
        _WIRE,
        "            if outcome is PublishOutcome.SUPERSEDED:\n",
        "            if outcome is None:\n",
    ),
    mutant(
        "epoch_not_read_again",
        "every transaction checks that no newer coordinator has taken over",
        "coordinator/store/database.py",
        "            if epoch != self.epoch:\n",
        "            if epoch < self.epoch:\n",
    ),
    mutant(
        "ended_and_still_sent",
        "an assignment whose lease is over is not published any more",
        _WIRE,
        "        if ended and self._unpublished:\n",
        "        if ended and self._broker is None:\n",
    ),
    mutant(
        "unsettled_not_read",
        "what was received and not settled before a fault is read again",
        _COORDINATOR,
        "        self._intake.start_over(self._memory.sites.readers())\n",
        "",
    ),
)

RECOVERY: Final = (
    mutant(
        "claimed_published_again",
        "an offer that starts on its claim is never published again under its fence after data was lost",
        _RECOVERY,
        '    granted = [lease for lease in offers if lease.start == "granted"]\n',
        "    granted = offers\n",
    ),
    mutant(
        "deleted_stream_trusted",
        "an offer that starts on its claim is in doubt when its stream is new",
        _RECOVERY,
        'if lease.start == "claimed" and last[stream] == EntryId(0, 0):',
        "if lease.start is None:",
    ),
    mutant(
        "doubt_ends_at_once",
        "a doubt ends only when an older delivery could not be started without a grant any more",
        _SWEEPER,
        "lease.doubted_ms + lease.ttl_ms // 2 + grace_ms(lease.ttl_ms) + margin_ms(lease.ttl_ms)",
        "lease.doubted_ms - grace_ms(lease.ttl_ms) - margin_ms(lease.ttl_ms)",
    ),
    mutant(
        "one_witness",
        "a doubt ends only when everyone who could have taken the offer has been heard",
        _SWEEPER,
        "return all(\n            worker is not None and worker.heard_ms > safe_ms",
        "return any(\n            worker is not None and worker.heard_ms > safe_ms",
    ),
    mutant(
        "word_of_a_younger_agent",
        "an agent that is younger than an offer proves nothing about it",
        _SWEEPER,
        " and worker.first_fence < lease.fence",
        "",
    ),
    mutant(
        "goodbye_of_a_younger_agent",
        "an agent that is younger than an offer proves nothing about it when it leaves",
        "coordinator/live.py",
        "lease.takers is not None and worker.first_fence < lease.fence",
        "lease.takers is not None",
    ),
    mutant(
        "younger_agent_forgotten",
        "a worker that has left counts as one who could have taken an offer that its last agent is younger than",
        _SWEEPER,
        'turn.store.rows("younger_agents", (lease.fence, lease.site, lease.capability))',
        "()",
    ),
    mutant(
        "silence_means_unstarted",
        "an offer that somebody may have started is presumed started",
        _SWEEPER,
        "            self._presume_started(turn, lease)\n",
        "            directives.give_back(turn, lease)\n",
    ),
    mutant(
        "lost_data_unnoticed",
        "a broker without our marker has lost its data",
        "broker/incarnation.py",
        "if known is None or not known.marker or known.marker != found.marker:",
        "if known is None or not known.marker:",
    ),
    mutant(
        "superseded_hold_runs_on",
        "a worker that comes back with an attempt that is over is told to stop it",
        "coordinator/registry.py",
        '        if not current and held.state in {"claimed", "launched", "running"}:\n',
        '        if not current and held.state == "":\n',
    ),
    mutant(
        "key_used_twice",
        "a submission under a key that was used before names the task of before",
        "coordinator/admission.py",
        'turn.store.row("task_by_key", (item.key,)) or _within(fresh_keys, item.key)',
        "_within(fresh_keys, item.key)",
    ),
)

MUTANTS: Final = (*EXPIRY, *DIRECTIVES, *CANCELLATION, *WIRE, *RECOVERY)
