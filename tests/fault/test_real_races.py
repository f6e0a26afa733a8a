"""A thousand tasks are cancelled at about the moment at which they finish: each gets exactly one verdict."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import pytest

from tenure.client.handle import Handle
from tests import fixtures_fleet_handlers as handlers
from tests.fault.instrument import Execution, Records, check
from tests.fault.trial import CLOCK, Trials, long, wait_for_time
from tests.fixtures_fleet import Worker
from tests.waiting import wait_until

BATCH = 50
SLICE = 5
SECONDS = 0.3
_VERDICTS = """
    SELECT task_id, state,
        (SELECT count(*) FROM result WHERE result.task_id = task.task_id),
        (SELECT count(*) FROM event WHERE event.task_id = task.task_id AND kind = 'cancelled'),
        (SELECT count(*) FROM lease WHERE lease.task_id = task.task_id AND lease.state = 'COMPLETED'),
        (SELECT min(at_ms) FROM event WHERE event.task_id = task.task_id AND kind = 'cancelled')
    FROM task
"""
ONE = {"SUCCEEDED": (1, 0, 1), "CANCELLED": (0, 1, 0)}
"""Results, cancellations and completed leases of a task, by the state that it ended in."""


@pytest.mark.parametrize("batches", [4, long(20)])
@pytest.mark.parametrize("start", ["granted", "claimed"])
def test_a_task_that_is_cancelled_as_it_finishes_has_one_verdict(
    trials: Trials, start: Literal["granted", "claimed"], batches: int
) -> None:
    figures = trials.of(f"cancelled as it finishes, {start}")
    outcomes: Counter[str] = Counter()
    both = 0
    with trials.fleet(Worker("w1", slots=BATCH), Worker("w2", slots=BATCH)) as fleet:
        records = Records(fleet.database)
        for number in range(batches):
            sweep = trials.sweep(fleet, BATCH, SECONDS, handlers.work_async, held=True, start=start)
            # A few at a time, from well before most results to well after most, so that the two meet in every batch.
            sweep.wait_for_running(BATCH)
            wait_for_time(int(500 * SECONDS / batches * number))
            for place in range(0, BATCH, SLICE):
                fleet.client.cancel(sweep.handles[place : place + SLICE])
                wait_for_time(int(1_500 * SECONDS * SLICE / BATCH))
            wait_for_ends(sweep.handles)
            executions = trials.instrument.executions()
            findings = check(executions, records, sweep.ids)
            figures.add(findings)
            figures.trials += BATCH - 1
            assert not findings.problems(), findings.problems()
            verdicts = check_verdicts(sweep.handles, records, executions)
            both += len(verdicts) == len(ONE)
            outcomes.update(verdicts)
        figures.add_false_deaths(records.count("SELECT count(*) FROM directive"))
        assert not figures.false_deaths
    assert set(outcomes) == set(ONE)
    assert both, "the two never met: no batch ended both ways"


def wait_for_ends(handles: Sequence[Handle[Any]]) -> None:
    wait_until(lambda: all(each.done() for each in handles), "all have ended", 20)


def check_verdicts(handles: Sequence[Handle[Any]], records: Records, executions: Sequence[Execution]) -> Counter[str]:
    """Compare what the client was told, what is on record, and what ran; how many ended in which state."""
    on_record = {str(row[0]): row[1:] for row in records.rows(_VERDICTS)}
    wall_ms = CLOCK.now_ms() - CLOCK.elapsed_ms()
    outcomes: Counter[str] = Counter()
    for handle in handles:
        state, *counts, cancelled_ms = on_record[handle.task_id]
        assert tuple(counts) == ONE[str(state)], f"{handle.task_id} is {state} with {counts}"
        assert handle.cancelled() == (state == "CANCELLED"), (
            f"{handle.task_id} is {state}, the client was told {handle}"
        )
        outcomes[str(state)] += 1
        for each in executions:
            if each.task_id == handle.task_id and cancelled_ms is not None:
                assert each.ended_ns, f"{handle.task_id} is cancelled and runs"
                assert each.ended_ns / 1e6 + wall_ms <= int(str(cancelled_ms)) + 2, "it ran on after it was cancelled"
    return outcomes
