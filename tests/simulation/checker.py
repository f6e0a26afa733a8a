"""The checker: reads a history and says which invariants of the design it breaks. Knows nothing but the history.

What is checked always: acceptance (once per task, under the newest fence, from the executor that the lease was bound
to, of a value that this executor really produced), directives and budgets, fences, terminal states, nothing lost,
nothing stuck, and that clients are told the truth. What user code does is checked as well: one executor per task and
fence, and no two executions of one task at the same time. Some faults void part of that, by design:

- A task that starts on its claim is cheap and repeatable by its own word. Two executors that got copies of one entry
  (a group that was made again delivers what it had delivered) may both begin it, and a worker that lies may have it
  offered again.
- An ordinary task trusts the broker to pass on the renewals that it took. A broker that was split, failed over to a
  replica without the newest writes, threw a heartbeat away, or serves two agents of one worker id, takes renewals that
  the coordinator never sees. Then ordinary tasks may overlap (their results may not). Exclusive tasks may run only on
  renewals that the coordinator has echoed, so they are checked always.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from tests.simulation.history import (
    Answered,
    Broken,
    Closed,
    DirectiveRow,
    Ended,
    Fault,
    Frozen,
    LeaseRow,
    Outcome,
    ResultRow,
    Started,
    Submitted,
    TaskRow,
    Told,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulation.history import Fact

VOIDING: Final = frozenset({"split", "failover", "evicted_heartbeat", "twin"})
"""Faults after which ordinary tasks may overlap."""
CLAIMED_VOIDING: Final = VOIDING | {"copy", "liar", "group_lost"}
"""Faults after which tasks that start on their claim may overlap."""

OVER: Final = frozenset({"SUCCEEDED", "FAILED", "CANCELLED", "ABANDONED"})
LIVE: Final = frozenset({"OFFERED", "ACTIVE"})
LIAR: Final = "liar"
"""The worker whose results nobody produced; they count when it was given the lease."""
Attempt = tuple[str, int]


@final
@dataclass(slots=True)
class Execution:
    """One execution of user code; `spells` are the times in which it was really running."""

    fact: Started
    spells: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    since: int = -1
    over: bool = False
    value: str = ""
    how: str = ""

    def overlaps(self, other: Execution) -> bool:
        """Whether both were running at one moment."""
        return any(a < d and c < b for a, b in self.spells for c, d in other.spells)


@final
class Checker:
    """Walks through a history once."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._runs: dict[int, Execution] = {}
        self._leases: dict[Attempt, LeaseRow] = {}
        self._newest: dict[str, int] = {}
        self._tasks: dict[str, TaskRow] = {}
        self._directives: dict[tuple[str, int], DirectiveRow] = {}
        self._results: dict[Attempt, ResultRow] = {}
        self._final: dict[str, ResultRow] = {}
        self._keys: dict[str, Submitted] = {}
        self._faults: set[str] = set()
        self._accepted: list[Answered] = []
        self._told: dict[tuple[str, int, str], Told] = {}
        self._outcomes: list[Outcome] = []

    def check(self, facts: Sequence[Fact]) -> list[str]:
        """The problems of a whole history; none when all is well."""
        for fact in facts:
            match fact:
                case Started():
                    self._started(fact)
                case Ended() | Frozen():
                    self._stopped_or_frozen(fact)
                case LeaseRow():
                    self._lease(fact)
                case TaskRow():
                    self._task(fact)
                case DirectiveRow():
                    self._directive(fact)
                case ResultRow():
                    self._result(fact)
                case _:
                    self._other(fact)
        self._check_executions()
        self._check_answers()
        self._check_outcomes()
        return self.problems

    def _problem(self, fact: Fact, text: str) -> None:
        self.problems.append(f"at {fact.at}: {text}")

    def _other(self, fact: Fact) -> None:
        match fact:
            case Submitted():
                self._keys[fact.key] = fact
            case Fault():
                self._faults.add(fact.kind)
            case Closed():
                self._closed(fact)
            case Broken():
                self._problem(fact, fact.what)
            case Told():
                self._told[fact.task, fact.fence, fact.nonce] = fact
            case Answered() if fact.answer in {"accepted", "duplicate"}:
                self._accepted.append(fact)
            case Outcome():
                self._outcomes.append(fact)
            case _:
                return

    # --- user code ------------------------------------------------------------------------------

    def _started(self, fact: Started) -> None:
        self._runs[fact.run] = Execution(fact, since=fact.at)
        lease = self._leases.get((fact.task, fact.fence))
        if lease is None:
            self._problem(fact, f"run {fact.run} of a fence that was never offered")
            return
        if lease.attempt != fact.attempt:
            self._problem(fact, f"run {fact.run} as attempt {fact.attempt} of fence {fact.fence}")
        if fact.attempt > 1:
            directive = self._directives.get((fact.task, fact.attempt))
            if directive is None or directive.state != "APPROVED":
                self._problem(fact, f"run {fact.run} is attempt {fact.attempt} without an approved directive")
        if fact.kind != "claimed" and (lease.state == "OFFERED" or lease.nonce != fact.nonce):
            self._problem(fact, f"run {fact.run} of fence {fact.fence} started without a grant")

    def _stopped_or_frozen(self, fact: Ended | Frozen) -> None:
        run = self._runs[fact.run]
        if isinstance(fact, Frozen) and not fact.frozen:
            run.since = fact.at
            return
        if run.since >= 0 and fact.at > run.since:
            run.spells.append((run.since, fact.at))
        run.since = -1
        if isinstance(fact, Ended):
            run.over, run.how, run.value = True, fact.how, fact.value

    def _check_executions(self) -> None:
        by_task: dict[str, list[Execution]] = defaultdict(list)
        for run in self._runs.values():
            if run.since >= 0:
                run.spells.append((run.since, 1 << 60))
            by_task[run.fact.task].append(run)
        for runs in by_task.values():
            for place, one in enumerate(runs):
                for other in runs[:place]:
                    self._check_pair(one, other)

    def _check_pair(self, one: Execution, other: Execution) -> None:
        kind = one.fact.kind
        if one.fact.fence == other.fact.fence and kind != "claimed":
            self._problem(one.fact, f"runs {other.fact.run} and {one.fact.run} have one fence")
        trusted = kind == "exclusive" or (kind == "granted" and not self._faults & VOIDING)
        if not trusted and not (kind == "claimed" and not self._faults & (VOIDING | CLAIMED_VOIDING)):
            return
        if one.overlaps(other):
            text = f"runs {other.fact.run} and {one.fact.run} of one {kind} task overlap"
            self._problem(one.fact, f"{text}: {other.spells} {one.spells}")

    # --- what the database says -----------------------------------------------------------------

    def _lease(self, fact: LeaseRow) -> None:
        key = (fact.task, fact.fence)
        before = self._leases.get(key)
        if before is None:
            if fact.fence <= self._newest.get(fact.task, 0):
                self._problem(fact, f"fence {fact.fence} of {fact.task} does not grow")
            self._newest[fact.task] = fact.fence
        elif before.state in {"COMPLETED", "EXPIRED", "RELEASED"} and before.state != fact.state:
            self._problem(fact, f"lease {fact.fence} went from {before.state} to {fact.state}")
        elif before.nonce and (before.nonce, before.worker) != (fact.nonce, fact.worker):
            self._problem(fact, f"lease {fact.fence} was bound twice")
        self._leases[key] = fact
        if fact.state in LIVE:
            older = [each for (task, fence), each in self._leases.items() if task == fact.task and fence < fact.fence]
            if any(each.state in LIVE for each in older):
                self._problem(fact, f"task {fact.task} has two live leases")

    def _task(self, fact: TaskRow) -> None:
        before = self._tasks.get(fact.task)
        if before is not None and before.state in OVER and before.state != fact.state:
            self._problem(fact, f"task {fact.key} went from {before.state} to {fact.state}")
        self._tasks[fact.task] = fact
        wanted = self._keys[fact.key]
        if fact.failed > wanted.failed_budget:
            self._problem(fact, f"task {fact.key} was repeated {fact.failed} times after failures")
        if fact.state == "CANCELLED" and (before is None or before.state != "CANCELLED"):
            self._cancelled(fact, wanted)
        if fact.state == "SUCCEEDED" and fact.task not in self._final:
            self._problem(fact, f"task {fact.key} is SUCCEEDED without a result")

    def _cancelled(self, fact: TaskRow, wanted: Submitted) -> None:
        excused = VOIDING if wanted.kind != "claimed" else CLAIMED_VOIDING
        if wanted.kind != "exclusive" and self._faults & excused:
            return
        for run in self._runs.values():
            if run.fact.task == fact.task and run.since >= 0:
                self._problem(fact, f"task {fact.key} is CANCELLED while run {run.fact.run} goes on")

    def _directive(self, fact: DirectiveRow) -> None:
        before = self._directives.get((fact.task, fact.next_attempt))
        if before is not None and before.state != "PENDING":
            self._problem(fact, f"the directive for attempt {fact.next_attempt} was decided twice")
        self._directives[fact.task, fact.next_attempt] = fact
        if fact.state == "APPROVED" and fact.by.startswith("policy"):
            self._check_budget(fact)

    def _check_budget(self, fact: DirectiveRow) -> None:
        mine = [
            each.reason.startswith("failed_")
            for each in self._directives.values()
            if each.task == fact.task and each.state == "APPROVED" and each.by.startswith("policy")
        ]
        key = self._tasks[fact.task].key
        wanted = self._keys[key]
        if sum(mine) > wanted.failed_budget or len(mine) - sum(mine) > wanted.lost_budget:
            self._problem(fact, f"policy allowed more repeats of {key} than its submitter did")

    def _result(self, fact: ResultRow) -> None:
        key = (fact.task, fact.fence)
        known = self._results.get(key)
        if known is not None or (fact.final and fact.task in self._final):
            self._problem(fact, f"a second result of {fact.task} was accepted")
        self._results[key] = fact
        if fact.final:
            self._final[fact.task] = fact
        lease = self._leases.get(key)
        if lease is None or lease.state != "COMPLETED":
            self._problem(fact, f"a result was accepted under fence {fact.fence}, which is not COMPLETED")
            return
        if self._newest[fact.task] != fact.fence and fact.final:
            self._problem(fact, f"a stale result was accepted: fence {fact.fence} of {self._newest[fact.task]}")
        if fact.final and (lease.worker, lease.nonce) != (fact.worker, fact.nonce):
            self._problem(fact, f"the result under fence {fact.fence} is not from its holder")
        self._check_produced(fact, lease)

    def _check_produced(self, fact: ResultRow, lease: LeaseRow) -> None:
        if lease.worker == LIAR:
            return
        runs = [
            run
            for run in self._runs.values()
            if (run.fact.task, run.fact.fence, run.fact.nonce) == (fact.task, fact.fence, lease.nonce)
        ]
        if not any(run.over for run in runs):
            self._problem(fact, f"a result of fence {fact.fence} was accepted that nobody produced")
        elif fact.final and fact.value.startswith('"run') and all(run.value != fact.value for run in runs):
            self._problem(fact, f"the accepted value {fact.value} is not what the holder produced")

    # --- at the end -----------------------------------------------------------------------------

    def _closed(self, fact: Closed) -> None:
        if fact.settled:
            return
        open_tasks = [f"{task.key} {task.state}" for task in self._tasks.values() if task.state not in OVER]
        missing = set(self._keys) - {task.key for task in self._tasks.values()}
        self._problem(fact, f"stuck: {', '.join(open_tasks) or 'nobody was told'}; never stored: {sorted(missing)}")

    def _check_answers(self) -> None:
        for answer in self._accepted:
            told = self._told.get((answer.task, answer.fence, answer.nonce))
            if told is None or told.what != "finished":
                continue
            if (answer.task, answer.fence) not in self._results:
                self._problem(answer, f"the result of fence {answer.fence} was {answer.answer} and is not there")

    def _check_outcomes(self) -> None:
        states = {task.key: task for task in self._tasks.values()}
        for outcome in self._outcomes:
            task = states.get(outcome.key)
            if task is None or outcome.state not in {task.state, "LOST"}:
                self._problem(outcome, f"a client was told {outcome.state} about {outcome.key}")
                continue
            result = self._final.get(task.task)
            if outcome.state == "SUCCEEDED" and (result is None or result.value.strip('"') != outcome.value):
                self._problem(outcome, f"a client was told another value of {outcome.key}")


def check(facts: Sequence[Fact]) -> list[str]:
    """The problems of a history."""
    return Checker().check(facts)
