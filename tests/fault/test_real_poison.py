"""Tasks that kill the worker that runs them: bounded by the submitter's budget, and the fleet goes on."""

import pytest

import tenure
from tests import fixtures_fleet_handlers as handlers
from tests.fault.instrument import Records, check
from tests.fault.trial import Trials, long
from tests.fixtures_fleet import TTL_MS, tend
from tests.waiting import wait_until

BUDGET = 2


@pytest.mark.parametrize("victim", ["agent", long("child"), long("runner")])
def test_a_task_that_kills_its_worker_is_held_when_its_budget_is_used_up(trials: Trials, victim: str) -> None:
    """Nothing but the budget allows another run; the others' work is done meanwhile, and a person is asked."""
    fault = f"poison task that kills its {victim}"
    with trials.fleet() as fleet:
        said = fleet.client.using(lease_ttl=f"{TTL_MS}ms", retry=tenure.Retry(lost=BUDGET))
        poison = said.submit(handlers.poison, str(trials.instrument.path), 0, victim)
        sweep = trials.sweep(fleet, count=24, seconds=0.3)
        records = Records(fleet.database)

        def held() -> bool:
            tend(fleet, "w1", "w2")
            return records.count("SELECT count(*) FROM directive WHERE state = 'PENDING'") > 0

        wait_until(held, "the poison is held", 40)
        while not all(handle.done() for handle in sweep.handles):
            tend(fleet, "w1", "w2")
        trials.judge(fault, fleet, sweep)
        runs = [each for each in trials.instrument.executions() if each.task_id == poison.task_id]
        findings = check(runs, records, [poison.task_id])
        assert findings.executions == len(runs) == BUDGET + 1
        assert findings.problems() == [f"{poison.task_id}: is LOST in the end"]
        assert [state for (state,) in records.rows("SELECT state FROM task WHERE task_id = ?", poison.task_id)] == [
            "LOST"
        ]
        figures = trials.of(fault)
        figures.executions = len(runs) + (figures.executions or 0)
