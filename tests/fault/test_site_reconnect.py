"""Sites that are away and return within their leases: nothing is run again, nothing is lost, one verdict each.

A trial is one task of one site, which goes through an outage of that site that is drawn at random, while broker and
coordinator have outages of their own, drawn at random too. `RECONNECT_TRIALS=500` says how many the long run makes.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from tests import fixtures_fleet_handlers as handlers
from tests.fault.instrument import Records, check
from tests.fault.site_outages import (
    PATIENCE_S,
    Labs,
    Outage,
    of_broker,
    of_coordinator,
    of_site,
    open_labs,
    together,
    wait_for_spool,
    wait_until_served,
)
from tests.fault.trial import Sweep, Trials, wait_for_time
from tests.waiting import wait_until

LEASE = "3d"
"""As long as an instrument runs without anybody at it."""
KINDS = {
    "valkey": (),  # loses everything when it is killed
    "redis7": ("--appendonly", "yes", "--appendfsync", "everysec"),  # keeps what is older than a second
}


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("kind", KINDS)
def test_a_site_that_returns_within_its_lease_yields_one_result_and_nothing_runs_again(
    trials: Trials, tmp_path: Path, kind: str
) -> None:
    """Results that were finished offline are delivered from the spool, also after a reboot of the host."""
    _make_trials(trials, tmp_path, kind, count=3, sites=3)


@pytest.mark.slow
@pytest.mark.timeout(14_400)
@pytest.mark.parametrize("kind", KINDS)
def test_reconnects_by_the_hundred(trials: Trials, tmp_path: Path, kind: str, reconnect_trials: int) -> None:
    """Half of them on each server."""
    _make_trials(trials, tmp_path, kind, count=reconnect_trials // len(KINDS), sites=8)


def _make_trials(trials: Trials, folder: Path, kind: str, *, count: int, sites: int) -> None:
    random = Random(f"{kind} {count}")  # noqa: S311 - to be able to repeat it
    with open_labs(folder / "labs", kind, sites, *KINDS[kind]) as labs:
        for _ in range(-(-count // sites)):
            _one_round(trials, labs, random)
        _nothing_was_decided_twice(labs)


def _one_round(trials: Trials, labs: Labs, random: Random) -> None:
    """One trial of every site, all at once."""
    of_sites = [random.choice(of_site(lab)) for lab in labs.labs]
    broker, coordinator = random.choice(of_broker(labs)), random.choice(of_coordinator(labs))
    story = f"sites: {[each.name for each in of_sites]}, broker {broker.name}, coordinator {coordinator.name}"
    try:
        sweep = _submit(trials, labs, random)
        _go_through(labs, sweep, [*of_sites, broker, coordinator], random)
        assert sweep.results(PATIENCE_S) == list(range(len(labs.labs)))
    except Exception as error:
        raise AssertionError(f"{story}: {error}") from error
    executions, records = trials.instrument.executions(), Records(labs.fleet.database)
    for outage, task_id in zip(of_sites, sweep.ids, strict=True):
        findings = check(executions, records, [task_id])
        trials.of(f"site {outage.name}").add(findings)
        assert not findings.problems(), (story, findings.problems())
        assert findings.executions == 1, (story, task_id)


def _submit(trials: Trials, labs: Labs, random: Random) -> Sweep:
    """A task for each site, each of which is begun, and waits."""
    trials.instrument.hold()
    client, marks = labs.fleet.client(), str(trials.instrument.path)
    handles = [
        client.using(capability=lab.name, lease_ttl=LEASE).submit(handlers.work, marks, number, random.uniform(0, 0.3))
        for number, lab in enumerate(labs.labs)
    ]
    sweep = Sweep(handles, trials.instrument)
    wait_until(lambda: len(sweep.running()) == len(handles), "every site is at work", PATIENCE_S, step_ms=20)
    return sweep


def _go_through(labs: Labs, sweep: Sweep, outages: Sequence[Outage], random: Random) -> None:
    """Begin every outage, let the work end somewhere on the way, and end every outage."""
    let_go_after = random.randrange(len(outages))
    for number, outage in enumerate(random.sample(outages, len(outages))):
        outage.begin()
        if number == let_go_after:
            sweep.instrument.let_go()
        wait_for_time(random.randrange(200))
    wait_until(lambda: not sweep.running(), "every site has done its work", PATIENCE_S, step_ms=20)
    wait_for_time(random.choice((0, 300, 1_000, 3_000)))
    for lab, outage, task_id in zip(labs.labs, outages, sweep.ids, strict=False):
        if outage.needs_results:
            wait_for_spool(lab, task_id)
    for outage in random.sample(outages, len(outages)):
        if not outage.needs_results:
            outage.end()
            wait_for_time(random.randrange(200))
    wait_until_served(labs.fleet)
    together([each for each in outages if each.needs_results], lambda each: each.end())


def _nothing_was_decided_twice(labs: Labs) -> None:
    """One lease per task came to a result, and there was nothing else to decide."""
    records = Records(labs.fleet.database)
    tasks = records.count("SELECT COUNT(*) FROM task")
    ends = Counter(str(state) for (state,) in records.rows("SELECT state FROM lease"))
    assert ends["COMPLETED"] == tasks == records.count("SELECT COUNT(*) FROM result")
    assert ends["EXPIRED"] == 0
    assert records.count("SELECT COUNT(*) FROM directive") == 0
    assert records.count("SELECT COUNT(*) FROM lease WHERE attempt > 1") == 0
    assert records.count("SELECT COUNT(*) FROM quarantine") == 0
