"""Mutants of the rules about executors: whom they run for, and what their parents may say of their end."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Edit, Mutant, mutant

_ACCEPTANCE: Final = "coordinator/acceptance.py"
_EXECUTORS: Final = "coordinator/executors.py"
_FLEET: Final = "coordinator/fleet.py"
_HEARTBEATS: Final = "coordinator/heartbeats.py"
_LIVE: Final = "coordinator/live.py"
_REGISTRY: Final = "coordinator/registry.py"
_SURRENDERS: Final = "coordinator/surrenders.py"
_SWEEPER: Final = "coordinator/sweeper.py"
_SCHEMA: Final = "coordinator/store/schema.sql"
_MIGRATION: Final = "coordinator/store/migrations/0004_executors.sql"


def _schema(name: str, rule: str, old: str, new: str) -> Mutant:
    return Mutant(name, rule, tuple(Edit(file, old, new) for file in (_SCHEMA, _MIGRATION)))


BINDING: Final = (
    mutant(
        "launched_under_one_name",
        "the launches of two parents have two names, so that none ends what the other has started",
        "protocol/launch.py",
        "hashlib.sha256(parent.encode())",
        'hashlib.sha256(b"")',
    ),
    mutant(
        "executor_of_anyone_bound",
        "what is for a worker is for its own executors only",
        _ACCEPTANCE,
        'is not None and lease.directed_to in {"", worker.executor_of}',
        "is not None",
    ),
    mutant(
        "executor_of_nobody_bound",
        "an executor is bound only while its parent is known",
        _ACCEPTANCE,
        "return turn.fleet.parent(worker) is not None and lease.directed_to",
        "return lease.directed_to",
    ),
    mutant(
        "parent_of_another_site",
        "an executor's parent is a worker of its site",
        _FLEET,
        "parent is None or parent.site != worker.site or",
        "parent is None or",
    ),
    mutant(
        "executor_of_an_executor",
        "an executor is nobody's parent",
        _FLEET,
        "or parent.executor_of or parent",
        "or parent",
    ),
    mutant(
        "executor_of_a_runner",
        "no executor is bound for a worker that runs tasks itself, for it may have begun them",
        _FLEET,
        "parent.launches is False:",
        "parent.launches is None is False:",
    ),
    mutant(
        "kind_changed_elsewhere",
        "a worker's id is of one kind, wherever its agents keep what they have begun",
        _REGISTRY,
        "if event.launches in {None, launches}:",
        "if event.launches in {None, launches, not launches}:",
    ),
    mutant(
        "kind_forgotten",
        "a hello that says no kind takes none away",
        _REGISTRY,
        "return said if row is None or row[7] is None else",
        "return said if row is None or said is None else",
    ),
    Mutant(
        "kind_rewritten",
        "the store takes no other kind for a worker that has one",
        tuple(
            Edit(file, "WHEN OLD.launches IS NOT NULL AND", "WHEN OLD.launches IS NULL AND")
            for file in (_SCHEMA, "coordinator/store/migrations/0013_kinds_of_workers.sql")
        ),
    ),
    Mutant(
        "executor_changes_hands",
        "an executor stays one, of the same parent",
        (
            Edit(_REGISTRY, "claimed != report.worker_id and (row is None or row[6] == claimed)", "turn is not None"),
            *(Edit(file, "WHEN NEW.executor_of <> OLD.executor_of", "WHEN 0") for file in (_SCHEMA, _MIGRATION)),
        ),
    ),
    mutant(
        "room_of_an_executor_free",
        "what an executor runs takes its parent's room",
        _LIVE,
        'frozenset({self.directed_to, self.worker_id, self.parent} - {""})',
        'frozenset({self.directed_to, self.worker_id} - {""})',
    ),
    mutant(
        "executor_fills_streams",
        "an executor takes nothing from streams, so nothing is published for it",
        _FLEET,
        "return not self.by_hand and not self.executor_of",
        "return not self.by_hand",
    ),
    Mutant(
        "executor_chosen",
        "no task is directed to an executor",
        (
            Edit(_FLEET, "            if worker.executor_of:\n                continue\n", ""),
            Edit(
                _FLEET,
                "        if self.executor_of:\n            return f",
                "        if self.worker_id is None:\n            return f",
            ),
        ),
    ),
    mutant(
        "launched_under_one_fence",
        "an offer that an executor may be on its way to is not published again under its fence",
        _SWEEPER,
        "        if is_away or lease.launched or _has",
        "        if is_away or _has",
    ),
    _schema(
        "attempt_of_a_holder_offered_again",
        "the store offers an attempt again only if it was given back, or nobody was bound to it",
        "AND NOT (state = 'RELEASED' AND (cause = 'unstarted' OR worker_id IS NULL)))",
        "AND NOT (state = 'RELEASED'))",
    ),
)

ENDS: Final = (
    mutant(
        "anyone_says_gone",
        "only the parent of the executor that a lease is bound to may say that it is gone",
        _EXECUTORS,
        "elif lease.state is LeaseState.ACTIVE and lease.parent == worker.worker_id:",
        "elif lease.state is LeaseState.ACTIVE:",
    ),
    mutant(
        "anyone_says_it_never_came",
        "only who lists an offer may say that its executor never came to be",
        _EXECUTORS,
        "LeaseState.OFFERED and acceptance.is_offered_to(turn, lease, worker, binding):",
        "LeaseState.OFFERED:",
    ),
    mutant(
        "gone_under_any_fence",
        "the end of an executor is told under the fence that it had",
        _EXECUTORS,
        "(lease.fence, lease.digest, lease.attempt) == (binding.fence, binding.digest, binding.attempt)",
        "(lease.digest, lease.attempt) == (binding.digest, binding.attempt)",
    ),
    mutant(
        "gone_without_a_wait",
        "the lease of an executor that is gone is released only after the grace that its runner needs",
        _EXECUTORS,
        "heard_until_ms - what.since_ms > quiet_ms(lease.ttl_ms)",
        "heard_until_ms - what.since_ms >= 0",
    ),
    mutant(
        "gone_without_proof",
        "an end that is not proved lets the lease run out",
        _EXECUTORS,
        "if not what.told.proved or lease.unproved or",
        "if lease.unproved or",
    ),
    mutant(
        "not_launched_and_proved",
        "that this agent has launched nothing proves nothing about the agent before it",
        "workers/launch_book.py",
        "proved: bool = False, detail",
        "proved: bool = True, detail",
    ),
    mutant(
        "never_there_and_proved",
        "a parent that says of a bound executor that it never was has forgotten it, and proves nothing",
        _EXECUTORS,
        '"proved": event.proved and knows}',
        '"proved": event.proved}',
    ),
    mutant(
        "unproved_forgotten",
        "that a worker could not end an attempt outlives the coordinator",
        "coordinator/leases.py",
        "unproved=bool(row[22])",
        "unproved=False",
    ),
    mutant(
        "surrender_forgotten",
        "that an executor gave its attempt up outlives the coordinator, for it is not told again",
        "coordinator/leases.py",
        "Surrender.kept(row[23], row[24], elapsed_ms)",
        "None",
    ),
    mutant(
        "surrender_late_in_an_outage",
        "nobody is late while the broker cannot be read",
        "coordinator/recovery.py",
        "lease.surrendered = replace(lease.surrendered, at_ms=elapsed_ms)",
        "pass",
    ),
    mutant(
        "gone_with_processes_left",
        "a parent does not prove an end that the executor itself could not prove",
        _EXECUTORS,
        "if not what.told.proved or lease.unproved or",
        "if not what.told.proved or",
    ),
    mutant(
        "gone_is_the_other_one",
        "the end of one of two executors proves nothing about the one that has the lease",
        _EXECUTORS,
        " or lease.seconded:",
        ":",
    ),
    mutant(
        "second_executor_forgotten",
        "that a second executor was started is known to the next coordinator, too",
        _EXECUTORS,
        'turn.store.run("second_lease", (lease.task_id, lease.fence))',
        "pass",
    ),
    mutant(
        "gone_while_its_files_are_read",
        "an executor that has reported its result is not judged by its end while the files are read",
        _EXECUTORS,
        'if turn.curator.knows(("result", lease.task_id, lease.fence, lease.nonce)):',
        "if turn is None:",
    ),
    mutant(
        "gone_and_heard",
        "an executor that is heard is not gone",
        _EXECUTORS,
        "elif executor is not None and executor.heard_ms > lease.gone.since_ms:",
        "elif turn is None and executor is not None:",
    ),
    mutant(
        "last_beat_disproves",
        "what an executor wrote before its end disproves nothing",
        _EXECUTORS,
        "            lease.gone = replace(lease.gone, since_ms=turn.elapsed_ms)\n",
        "            lease.gone = replace(lease.gone, since_ms=turn.elapsed_ms - 1)\n",
    ),
    mutant(
        "told_to_end_is_the_cause",
        "what the substrate says of an executor that was told to end is the cause of its lease's end",
        _SURRENDERS,
        "told.cause if told.cause is not Cause.EXECUTOR_DIED else cause",
        "cause",
    ),
    mutant(
        "died_after_its_word",
        "an executor that has said why it ends did not end without a word",
        _SURRENDERS,
        "told.cause if told.cause is not Cause.EXECUTOR_DIED else cause",
        "told.cause",
    ),
    mutant(
        "result_of_what_was_given_up",
        "an executor that has given its attempt up has no result, and takes nothing back",
        "coordinator/reports.py",
        "surrenders.close(turn, worker, event)",
        "pass",
    ),
    mutant(
        "surrender_is_charged",
        "an attempt that was given up has lasted until then, however long its parent is waited for",
        _SURRENDERS,
        "_end(turn, lease, what.told, what.now_ms)",
        "_end(turn, lease, what.told, turn.now_ms)",
    ),
    mutant(
        "unseen_is_given_up",
        "a substrate that could not be asked for long is asked on",
        "workers/launch_rounds.py",
        "if launch.stage is LaunchStage.OVER or launch.busy",
        "if launch.stage in TOLD or launch.busy",
    ),
    mutant(
        "given_up_without_being_told",
        "a launch is given up only when the substrate was told to end it, and its lease is over",
        "workers/launch_stops.py",
        "if done and launch.forced_ms == NEVER:",
        "if launch.forced_ms == NEVER:",
    ),
    mutant(
        "given_up_too_early",
        "a launch whose lease is live is not given up, however long its end takes",
        "workers/launch_stops.py",
        "if launch.is_superseded and launch.forced_ms",
        "if launch.forced_ms",
    ),
    mutant(
        "surrender_waits_for_nobody",
        "a parent that is not there is not waited for",
        _SURRENDERS,
        " or parent is None or parent.state not in _IS_THERE:",
        " or parent is None:",
    ),
    mutant(
        "surrender_without_end",
        "what an executor has given up is released soon, whatever its parent does",
        _SURRENDERS,
        "return turn.memory.heard_until_ms - what.at_ms < patience_ms(lease.ttl_ms, parent.bound)",
        "return True",
    ),
    mutant(
        "surrender_is_missed",
        "an executor that lists no more what it has given up has not lost it",
        _HEARTBEATS,
        "not in listed and lease.surrendered is None",
        "not in listed",
    ),
    mutant(
        "surrender_of_what_is_cancelled",
        "what is being cancelled and has been given up is over",
        _SURRENDERS,
        " or lease.stopping or",
        " or",
    ),
    mutant(
        "quiet_while_blind",
        "nobody is quiet while heartbeats cannot be read",
        "coordinator/recovery.py",
        "        if lease.gone is not None:\n            lease.gone = replace(lease.gone, since_ms=-1)\n",
        "",
    ),
    mutant(
        "judged_before_it_is_decided",
        "what was told is judged when it is decided, for a restart forgets it",
        _EXECUTORS,
        "        _note(lease, event)\n",
        "        _note(lease, event)\n        acceptance.judge(turn, worker, binding, Verdict.ACCEPTED)\n",
    ),
    mutant(
        "parent_renews",
        "a parent renews the offer that it has launched an executor for, and not the executor's lease",
        _HEARTBEATS,
        '        if lease.state is LeaseState.OFFERED or held.state != "launched":\n',
        "        if turn is not None:\n",
    ),
    mutant(
        "parent_keeps_what_is_anothers",
        "a worker is told to stop a launch whose lease is another's",
        _HEARTBEATS,
        "        return lease.parent == worker.worker_id\n",
        "        return True\n",
    ),
    mutant(
        "parent_not_told_of_a_cancel",
        "a cancel is told to the executor and to its parent",
        "coordinator/cancellation.py",
        "for worker_id in (lease.worker_id or lease.holder or lease.directed_to, lease.parent):",
        "for worker_id in (lease.worker_id or lease.holder or lease.directed_to,):",
    ),
    mutant(
        "holder_forgotten",
        "an executor is known until the lease that it holds is over",
        _REGISTRY,
        "    if not gone or (worker.executor_of and worker.bound):\n",
        "    if not gone:\n",
    ),
    mutant(
        "executors_pile_up",
        "an executor that is gone leaves no row and no keys",
        _SWEEPER,
        "soon = worker.state is WorkerState.DRAINING or worker.executor_of",
        "soon = worker.state is WorkerState.DRAINING",
    ),
)

MUTANTS: Final = (*BINDING, *ENDS)
