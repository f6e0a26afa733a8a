"""The checker's part that is about people: what they have decided, in whose name, and what they are told.

A ruling of a person is one decision: it allows one further attempt, or denies one, however often the request that says
so is repeated. Whoever names a directive has decided about that one and no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from tests.simulation.history import Judged, Judgement, Outcome, Ruled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.simulation.history import DirectiveRow, Fact, ResultRow, TaskRow


@final
class PeopleChecker:
    """Keeps what people have said and were told."""

    def __init__(self, problem: Callable[[Fact, str], None]) -> None:
        self._problem = problem
        self._rulings: list[Ruled] = []
        """Those that nothing has followed from yet."""
        self._wanted: set[tuple[str, str, str]] = set()
        """Rejected results, what somebody wanted of each, and who."""
        self._adopters: dict[str, str] = {}
        self._outcomes: list[Outcome] = []

    def see(self, fact: Fact) -> None:
        """One fact more."""
        match fact:
            case Ruled():
                self._rulings.append(fact)
            case Judged():
                self._wanted.add((fact.quarantine, fact.action, fact.by))
            case Judgement():
                self._judged(fact)
            case Outcome():
                self._outcomes.append(fact)
            case _:
                return

    def _judged(self, fact: Judgement) -> None:
        """A result is adopted or dropped, or was refused its adoption, in the name of who wanted that."""
        if fact.action == "expire":
            return
        wanted = "adopt" if fact.action == "refuse" else fact.action
        if (fact.quarantine, wanted, fact.by) not in self._wanted:
            self._problem(fact, f"{fact.by} has not asked to {wanted} the result of fence {fact.of_fence}")
        if fact.action == "adopt":
            self._adopters[fact.task] = fact.by

    def decided(self, fact: DirectiveRow) -> None:
        """A directive says that a person has decided it, which uses up a ruling; an adoption is another decision."""
        if fact.state == "DENIED" and fact.task in self._adopters:
            if self._adopters[fact.task] != fact.by:
                self._problem(fact, f"attempt {fact.next_attempt} is DENIED by {fact.by}, who adopted nothing")
            return
        wanted = (fact.task, fact.by, fact.state == "APPROVED")
        mine = [
            each
            for each in self._rulings
            if (each.task, each.by, each.approve) == wanted and each.next_attempt in {0, fact.next_attempt}
        ]
        if not mine:
            self._problem(fact, f"nobody has {fact.state} attempt {fact.next_attempt}, but it says {fact.by}")
            return
        # What names this directive is good for nothing else.
        self._rulings.remove(max(mine, key=lambda each: each.next_attempt))

    def check_outcomes(self, tasks: Mapping[str, TaskRow], final: Mapping[str, ResultRow]) -> None:
        """Clients were told the end that the database has; their handles wait for a decision about what is lost."""
        of_key = {task.key: task for task in tasks.values()}
        for outcome in self._outcomes:
            task = of_key.get(outcome.key)
            if task is None or outcome.state != task.state:
                self._problem(outcome, f"a client was told {outcome.state} about {outcome.key}")
                continue
            if outcome.state not in {"SUCCEEDED", "FAILED"}:
                continue
            result = final.get(task.task)
            if result is None or outcome.value != _told_of(result):
                self._problem(outcome, f"a client was told another value of {outcome.key}")


def _told_of(result: ResultRow) -> str:
    """What a client is told of a result; see `Handle.result`."""
    value, message = result.said
    return f"task {result.task} failed: {message}" if result.is_failure else value.strip('"')
