"""Results with files: what a task has left is read to its last byte before the result is accepted, never after.

While the porter reads, the lease stays live: the worker holds it until it hears a verdict, and whatever happens to the
lease meanwhile decides. A result whose files are not what was told is a failed attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenure.coordinator import acceptance
from tenure.coordinator.errands import place_of
from tenure.coordinator.promotion import DAMAGED, discard
from tenure.protocol.worker_messages import Failure, FailureKind, Outcome

if TYPE_CHECKING:
    from tenure.artifacts.jobs import Ended, Problem
    from tenure.coordinator.errands import ResultCheck
    from tenure.coordinator.turn import Turn
    from tenure.protocol.worker_messages import Finished

_MOST_TRIES: Final = 16
"""How often a check is begun that the store has not answered, which takes about three minutes: the pauses double up to
a quarter of a minute. The worker tells its result again and again."""


def checked(turn: Turn, errand: ResultCheck, end: Ended) -> None:
    """The porter has read the staged outputs of a result, or could not: judge the result now."""
    worker = turn.fleet.get(errand.who.worker_id)
    if worker is None:
        return  # it says hello and tells its result again
    problem = end.problem
    if problem is None:
        turn.curator.succeeded(errand.key)
        acceptance.settle(turn, worker, errand.report, verified=errand.bundle)
        return
    if problem.code not in DAMAGED and turn.curator.failed(errand.key, end, turn.elapsed_ms) < _MOST_TRIES:
        return
    turn.curator.succeeded(errand.key)
    acceptance.settle(turn, worker, _failed(errand.report, problem))
    discard(turn, place_of(errand.who.site, errand.report.binding))


def _failed(report: Finished, problem: Problem) -> Finished:
    kind, what = FailureKind.OUTPUTS_NOT_STORED, "its outputs could not be read in the store"
    if problem.code in DAMAGED:
        kind, what = FailureKind.OUTPUTS_DAMAGED, "its outputs are not in the store as it told"
    failure = Failure(kind=kind, message=f"{what}: {problem.message}"[:4_000])
    return report.model_copy(update={"outcome": Outcome(failure=failure), "outputs": None})
