"""The checker: reads a history and says which invariants of the design it breaks. Knows nothing but the history.

What is checked always: acceptance (once per task, under the newest fence, from the executor that the lease was bound
to, of a value that this executor really produced, of no lie), directives (why, by whom, and whether that person did so)
and budgets, fences, terminal states and the reasons for them, nothing lost, nothing stuck, and that clients are told
the truth. What user code does is checked as well: one execution per attempt, never two of one task at one time, and
none under a lease that is over. Some faults void that for the rest of a history, by design:

- A task that starts on its claim is cheap and repeatable by its own word. Two executors that got copies of one entry
  (a group that was made again delivers what it had delivered) may both begin it, and a worker that lies may have it
  offered again.
- An ordinary task trusts the broker to pass on the renewals that it took. A broker that was split, failed over to a
  replica without the newest writes, threw a heartbeat away, or serves two agents of one worker id, takes renewals that
  the coordinator never sees. Then ordinary tasks may overlap (their results may not). Exclusive tasks may run only on
  renewals that the coordinator has echoed, so they are checked always. No attempt of either runs twice, whatever
  strikes: who is granted a lease that was granted before would have to be told so by the coordinator.
- An end that was proved and is none voids both.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

from tests.simulation.checker_files import FileChecker
from tests.simulation.checker_people import PeopleChecker
from tests.simulation.executions import LIAR, Execution, home_of, is_alone, term_ms
from tests.simulation.history import (
    Answered,
    Broken,
    Closed,
    DirectiveRow,
    Ended,
    Fault,
    Frozen,
    LeaseRow,
    Lie,
    ResultRow,
    SiteRow,
    Started,
    Submitted,
    TaskRow,
    Told,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulation.history import Fact

OVER: Final = frozenset({"SUCCEEDED", "FAILED", "CANCELLED", "ABANDONED"})
LIVE: Final = frozenset({"OFFERED", "ACTIVE"})
REVOKED: Final = "site_revoked"
FALSE_DEATHS: Final = frozenset({"lease_expired", "not_held", "self_fenced"})
"""Causes of a lease's end that only a fault brings about."""
Attempt = tuple[str, int]


@final
class Checker:
    """Walks through a history once."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.judged: Counter[tuple[str, str, bool]] = Counter()
        """How many executions, and pairs of one task, by kind of start, and whether the rule of overlaps held then."""
        self._runs: dict[int, Execution] = {}
        self._leases: dict[Attempt, LeaseRow] = {}
        self._taken_away: dict[Attempt, int] = {}
        """When sites that were revoked have lost their leases."""
        self._newest: dict[str, int] = {}
        self._tasks: dict[str, TaskRow] = {}
        self._directives: dict[tuple[str, int], DirectiveRow] = {}
        self._results: dict[Attempt, ResultRow] = {}
        self._final: dict[str, ResultRow] = {}
        self._failed: set[Attempt] = set()
        """Attempts whose failure was accepted, and another one follows."""
        self._keys: dict[str, Submitted] = {}
        self._of_key: dict[str, str] = {}
        self._struck: dict[str, int] = {}
        """When each kind of fault struck first."""
        self._attempts: dict[Attempt, int] = {}
        """The first run of each attempt."""
        self._lies: dict[str, Lie] = {}
        self._revoked: set[str] = set()
        """Sites that were thrown out."""
        self._accepted: list[Answered] = []
        self._told: dict[tuple[str, int, str], Told] = {}
        self._files = FileChecker(self._problem)
        self._people = PeopleChecker(self._problem)

    def check(self, facts: Sequence[Fact]) -> list[str]:
        """The problems of a whole history; none when all is well."""
        for fact in facts:
            self._files.see(fact)
            self._people.see(fact)
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
        self._check_end(facts)
        self._check_executions()
        self._check_reasons()
        self._check_answers()
        self._people.check_outcomes(self._tasks, self._final)
        self._check_false_deaths()
        return self.problems

    def _problem(self, fact: Fact, text: str) -> None:
        self.problems.append(f"at {fact.at}: {text}")

    def _other(self, fact: Fact) -> None:
        match fact:
            case Submitted():
                self._keys[fact.key] = fact
            case Fault():
                self._struck.setdefault(fact.kind, fact.at)
            case Closed():
                self._closed(fact)
            case Broken():
                self._problem(fact, fact.what)
            case Told():
                self._told[fact.task, fact.fence, fact.nonce] = fact
            case Answered() if fact.answer in {"accepted", "duplicate"}:
                self._accepted.append(fact)
            case _:
                self._said(fact)

    def _said(self, fact: Fact) -> None:
        match fact:
            case Lie():
                self._lies[fact.value] = fact
            case SiteRow() if fact.state == "REVOKED":
                self._revoked.add(fact.site)
            case _:
                return

    # --- user code ------------------------------------------------------------------------------

    def _is_alone(self, kind: str, at: int) -> bool:
        """Whether one execution at a time was still promised then to tasks of that kind."""
        return is_alone(kind, at, self._struck)

    def _is_once(self, fact: Started) -> bool:
        """Whether an attempt may not run twice, not even one run after the other."""
        if fact.kind == "claimed":
            return self._is_alone(fact.kind, fact.at)
        return self._is_alone("exclusive", fact.at)

    def _started(self, fact: Started) -> None:
        run = self._runs[fact.run] = Execution(fact, since=fact.at)
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
        if fact.kind != "claimed" and lease.worker != fact.worker:
            self._problem(fact, f"run {fact.run} by {fact.worker} of a lease of {lease.worker}")
        first = self._attempts.setdefault((fact.task, fact.attempt), fact.run)
        if first != fact.run and self._is_once(fact):
            self._problem(fact, f"runs {first} and {fact.run} are one attempt, which no directive allowed to run again")
        self._check_right_to_run(run, fact.at)

    def _check_right_to_run(self, run: Execution, at: int) -> None:
        """Nothing begins, or goes on after a pause, whose lease is over: see `_check_ended` and `_check_remnant`."""
        lease = self._leases.get((run.fact.task, run.fact.fence))
        if lease is None or lease.cause == REVOKED:
            return
        if lease.state not in LIVE and self._is_alone(run.fact.kind, at):
            self._problem(replace(run.fact, at=at), f"run {run.fact.run} goes on under a lease that is {lease.state}")

    def _stopped_or_frozen(self, fact: Ended | Frozen) -> None:
        run = self._runs[fact.run]
        if isinstance(fact, Frozen) and not fact.frozen:
            run.since = fact.at
            self._check_right_to_run(run, fact.at)
            return
        if run.since >= 0 and fact.at > run.since:
            run.spells.append((run.since, fact.at))
        run.since = -1
        if isinstance(fact, Ended):
            run.over, run.how, run.value, run.ended_at = True, fact.how, fact.value, fact.at

    def _check_executions(self) -> None:
        by_task: dict[str, list[Execution]] = defaultdict(list)
        for run in self._runs.values():
            if run.since >= 0:
                run.spells.append((run.since, 1 << 60))
            by_task[run.fact.task].append(run)
            self.judged["executions", run.fact.kind, self._is_alone(run.fact.kind, run.fact.at)] += 1
            self._check_remnant(run)
        for runs in by_task.values():
            for place, one in enumerate(runs):
                for other in runs[:place]:
                    self._check_pair(one, other)

    def _check_remnant(self, run: Execution) -> None:
        """What a site runs when it is revoked has stopped within the time that its lease would have had."""
        taken_at = self._taken_away.get((run.fact.task, run.fact.fence))
        if taken_at is None or not run.spells:
            return
        until = taken_at + term_ms(self._keys[self._tasks[run.fact.task].key].ttl_ms)
        if run.spells[-1][1] > until and self._is_alone(run.fact.kind, until):
            self._problem(run.fact, f"run {run.fact.run} goes on after {until}, and its site was revoked at {taken_at}")

    def _check_pair(self, one: Execution, other: Execution) -> None:
        kind = one.fact.kind
        if one.fact.fence == other.fact.fence and kind != "claimed":
            self._problem(one.fact, f"runs {other.fact.run} and {one.fact.run} have one fence")
        at = one.meets(other)
        is_alone = self._is_alone(kind, max(one.fact.at, other.fact.at) if at is None else at)
        self.judged["pairs", kind, is_alone] += 1
        if at is not None and is_alone:
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
        elif before.state == "ACTIVE" and fact.state == "OFFERED":
            self._problem(fact, f"lease {fact.fence} is offered again")
        elif before.nonce and (before.nonce, before.worker) != (fact.nonce, fact.worker):
            self._problem(fact, f"lease {fact.fence} was bound twice")
        self._leases[key] = fact
        self._check_site(fact, before)
        if fact.state in {"EXPIRED", "RELEASED"}:
            self._check_ended(fact)
        self._check_one_live(fact)

    def _check_one_live(self, fact: LeaseRow) -> None:
        if fact.state in LIVE:
            older = [each for (task, fence), each in self._leases.items() if task == fact.task and fence < fact.fence]
            if any(each.state in LIVE for each in older):
                self._problem(fact, f"task {fact.task} has two live leases")

    def _check_site(self, fact: LeaseRow, before: LeaseRow | None) -> None:
        """A lease stays with its site, is bound to nobody of another, and a site that was revoked gets nowhere."""
        if before is not None and before.site != fact.site:
            self._problem(fact, f"lease {fact.fence} went from site {before.site} to {fact.site}")
        if fact.worker and home_of(fact.worker) != fact.site:
            self._problem(fact, f"lease {fact.fence} of site {fact.site} was bound to {fact.worker}")
        if fact.site in self._revoked and (before is None or fact.state == "COMPLETED"):
            self._problem(fact, f"lease {fact.fence} is {fact.state} at {fact.site}, which was revoked")

    def _check_ended(self, fact: LeaseRow) -> None:
        """A worker has ended its work before the coordinator may replace it.

        A site that is revoked loses its leases at once; what follows on them waits, which `_check_pair` looks into,
        and `_check_remnant` into what they leave behind.
        """
        if fact.cause == REVOKED:
            self._taken_away.setdefault((fact.task, fact.fence), fact.at)
            return
        for run in self._runs.values():
            if (run.fact.task, run.fact.fence) != (fact.task, fact.fence) or run.since < 0:
                continue
            if self._is_alone(run.fact.kind, fact.at):
                self._problem(fact, f"lease {fact.fence} is {fact.state} while run {run.fact.run} goes on")

    def _task(self, fact: TaskRow) -> None:
        before = self._tasks.get(fact.task)
        if before is not None and before.state in OVER and before.state != fact.state:
            self._problem(fact, f"task {fact.key} went from {before.state} to {fact.state}")
        if before is not None and (before.key, before.digest) != (fact.key, fact.digest):
            self._problem(fact, f"task {before.key} has become another one")
        self._tasks[fact.task] = fact
        if before is None and self._of_key.setdefault(fact.key, fact.task) != fact.task:
            self._problem(fact, f"{fact.key} was taken twice")
        wanted = self._keys[fact.key]
        if fact.failed > wanted.failed_budget:
            self._problem(fact, f"task {fact.key} was repeated {fact.failed} times after failures")
        if fact.state == "CANCELLED" and (before is None or before.state != "CANCELLED"):
            self._cancelled(fact, wanted)
        self._check_reason_to_end(fact)

    def _check_reason_to_end(self, fact: TaskRow) -> None:
        """An end needs what it says: a lost lease alone makes no task FAILED."""
        result = self._final.get(fact.task)
        if fact.state in {"SUCCEEDED", "FAILED"}:
            if result is None or result.is_failure != (fact.state == "FAILED"):
                self._problem(fact, f"task {fact.key} is {fact.state} without a result that says so")
        elif fact.state in OVER and result is not None:
            self._problem(fact, f"task {fact.key} is {fact.state} and has a result")
        denied = any(one.task == fact.task and one.state == "DENIED" for one in self._directives.values())
        if fact.state == "ABANDONED" and not denied:
            self._problem(fact, f"task {fact.key} is ABANDONED and nobody has said so")

    def _cancelled(self, fact: TaskRow, wanted: Submitted) -> None:
        if not self._is_alone(wanted.kind, fact.at):
            return
        for run in self._runs.values():
            if run.fact.task == fact.task and run.since >= 0:
                self._problem(fact, f"task {fact.key} is CANCELLED while run {run.fact.run} goes on")

    def _directive(self, fact: DirectiveRow) -> None:
        before = self._directives.get((fact.task, fact.next_attempt))
        if before is not None and before.state != "PENDING":
            self._problem(fact, f"the directive for attempt {fact.next_attempt} was decided twice")
        self._directives[fact.task, fact.next_attempt] = fact
        if not fact.reason or (fact.state != "PENDING" and not fact.by):
            self._problem(fact, f"the directive for attempt {fact.next_attempt} does not say why, or by whom")
        if fact.state == "APPROVED" and fact.by.startswith("policy"):
            self._check_budget(fact)
        elif fact.state != "PENDING":
            self._people.decided(fact)

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
        else:
            self._failed.add((fact.task, fact.attempt))
        adoption = self._files.adoptions.get(key)
        if adoption is not None and fact.final:
            self._newest[fact.task] = max(fact.fence, self._newest[fact.task])
            late = self._leases[fact.task, adoption.of_fence]
            self._check_produced(fact, replace(late, worker=fact.worker, nonce=adoption.nonce))
            return
        lease = self._leases.get(key)
        if lease is None or lease.state != "COMPLETED":
            self._problem(fact, f"a result was accepted under fence {fact.fence}, which is not COMPLETED")
            return
        if lease.attempt != fact.attempt:
            self._problem(fact, f"a result of attempt {fact.attempt} was accepted under fence {fact.fence}")
        if self._newest[fact.task] != fact.fence and fact.final:
            self._problem(fact, f"a stale result was accepted: fence {fact.fence} of {self._newest[fact.task]}")
        if fact.final and (lease.worker, lease.nonce) != (fact.worker, fact.nonce):
            self._problem(fact, f"the result under fence {fact.fence} is not from its holder")
        self._check_produced(fact, lease)

    def _check_produced(self, fact: ResultRow, lease: LeaseRow) -> None:
        """The holder has come to that end, with that value or failure, and has stopped."""
        lie = self._lies.get(fact.value)
        if lie is not None or lease.worker == LIAR:
            self._check_lie(fact, lease, lie)
            return
        runs = [
            run
            for run in self._runs.values()
            if (run.fact.task, run.fact.fence, run.fact.nonce) == (fact.task, lease.fence, lease.nonce)
        ]
        if any(not run.over for run in runs) or not runs:
            self._problem(fact, f"a result of fence {fact.fence} was accepted that nobody produced")
            return
        wanted = self._keys[self._tasks[fact.task].key]
        has_lost_files = any(run.how == "value" for run in runs) and self._files.excuses(fact, lease)
        if not has_lost_files and not any(run.produced(fact, wanted) for run in runs):
            self._problem(fact, f"the accepted value {fact.value} is not what the holder produced")

    def _check_lie(self, fact: ResultRow, lease: LeaseRow, lie: Lie | None) -> None:
        """The liar may end what it was given, when everything that it says about that is true, but for its files."""
        if lie is None and lease.worker == LIAR and self._files.excuses(fact, lease):
            true = (fact.task, lease.fence, lease.nonce, LIAR, "")
            said = {(one.task, one.fence, one.nonce, one.worker, one.wrong): one for one in self._lies.values()}
            lie = said.get(true)
        if lie is None or lease.worker != LIAR:
            self._problem(fact, f"{fact.value} was accepted from {lease.worker}")
        elif (lie.task, lie.fence, lie.nonce, lie.worker, lie.wrong) != (fact.task, lease.fence, lease.nonce, LIAR, ""):
            self._problem(fact, f"a result was accepted that is wrong in {lie.wrong or 'its sender'}")

    # --- at the end -----------------------------------------------------------------------------

    def _check_end(self, facts: Sequence[Fact]) -> None:
        if not any(isinstance(fact, Closed) for fact in facts):
            self.problems.append("the history has no end")

    def _closed(self, fact: Closed) -> None:
        if fact.settled:
            return
        open_tasks = [f"{task.key} {task.state}" for task in self._tasks.values() if task.state not in OVER]
        missing = set(self._keys) - {task.key for task in self._tasks.values()}
        self._problem(fact, f"stuck: {', '.join(open_tasks) or 'nobody was told'}; never stored: {sorted(missing)}")

    def _check_reasons(self) -> None:
        """A lost lease is an event of the infrastructure, a failed task is not: two reasons, two budgets."""
        for (task, next_attempt), directive in self._directives.items():
            failed = (task, next_attempt - 1) in self._failed
            if failed != directive.reason.startswith("failed_"):
                self._problem(directive, f"attempt {next_attempt} does not follow on {directive.reason}")

    def _check_answers(self) -> None:
        for answer in self._accepted:
            told = self._told.get((answer.task, answer.fence, answer.nonce))
            if told is None or told.what != "finished":
                continue
            if (answer.task, answer.fence) not in self._results:
                self._problem(answer, f"the result of fence {answer.fence} was {answer.answer} and is not there")
            elif self._leases[answer.task, answer.fence].nonce != answer.nonce:
                self._problem(answer, f"the result of fence {answer.fence} was {answer.answer} to another executor")

    def _check_false_deaths(self) -> None:
        """Where nothing went wrong, nobody is silent, and nothing that is held is lost from sight."""
        if self._struck:
            return
        for lease in self._leases.values():
            if lease.cause in FALSE_DEATHS:
                self._problem(lease, f"lease {lease.fence} is over ({lease.cause}), and nothing had gone wrong")


def check(facts: Sequence[Fact]) -> list[str]:
    """The problems of a history."""
    return Checker().check(facts)
