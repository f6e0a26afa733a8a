"""Sites that are away and return within their leases: nothing is run again, nothing is lost, one verdict each.

A trial is one task of one site, which goes through an outage of that site, while broker and coordinator have outages of
their own. The long run draws them all at random; `RECONNECT_TRIALS=500` says how many trials it makes. The short one
has the worst by name: a host that is rebooted with a result that nobody has, and a broker that is killed.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from tests import fixtures_fleet_handlers as handlers
from tests.fault.figures import Figures
from tests.fault.instrument import Records, check
from tests.fault.site_outages import (
    PATIENCE_S,
    Lab,
    Labs,
    Outage,
    is_accepted,
    is_spooled,
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
MANY = 20
"""So many trials of one outage cannot all have begun when the result was accepted already."""
UNTOUCHED = "untouched"
KINDS = {
    "valkey": (),  # loses everything when it is killed
    "redis7": ("--appendonly", "yes", "--appendfsync", "everysec"),  # keeps what is older than a second
}


@dataclass(frozen=True)
class Plan:
    """What happens in one round."""

    sites: Sequence[Outage]
    broker: Outage
    coordinator: Outage
    let_go_after: int
    """How many outages begin before the work may end."""

    @property
    def outages(self) -> list[Outage]:
        """All of them, those of the sites first."""
        return [*self.sites, self.broker, self.coordinator]

    def __str__(self) -> str:
        sites = [each.name for each in self.sites]
        return f"sites: {sites}, broker {self.broker.name}, coordinator {self.coordinator.name}"


@dataclass
class Passage:
    """One task's way through the outage of its site."""

    lab: Lab
    outage: Outage
    task_id: str = ""
    under_way: bool = False
    """Whether the outage had begun, and the result was not accepted yet."""
    from_spool: bool | None = None
    """Whether the result was in the spool alone when the host was rebooted."""

    def note_begin(self, begun: Outage) -> None:
        if begun is self.outage:
            self.under_way = not is_accepted(self.lab, self.task_id)

    def note_reboot(self) -> None:
        """To be called before the end of an outage that reboots the host."""
        self.from_spool = is_spooled(self.lab, self.task_id) and not is_accepted(self.lab, self.task_id)

    def count(self, figures: Figures) -> None:
        """Put it into the figures; where nothing happens nothing is gone through."""
        if self.outage.name != UNTOUCHED:
            figures.add_outage(under_way=self.under_way, from_spool=self.from_spool)


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("kind", KINDS)
def test_a_site_that_returns_within_its_lease_yields_one_result_and_nothing_runs_again(
    trials: Trials, tmp_path: Path, kind: str
) -> None:
    """Results that were finished offline are delivered from the spool, also after a reboot of the host."""
    with open_labs(tmp_path / "labs", kind, 3, *KINDS[kind]) as labs:
        _one_round(trials, labs, _worst(labs), Random(kind))  # noqa: S311 - to be able to repeat it
        _nothing_was_decided_twice(labs)
        _results_went_through(trials)


@pytest.mark.slow
@pytest.mark.timeout(14_400)
@pytest.mark.parametrize("kind", KINDS)
def test_reconnects_by_the_hundred(trials: Trials, tmp_path: Path, kind: str, reconnect_trials: int) -> None:
    """Half of them on each server."""
    count, sites = reconnect_trials // len(KINDS), 8
    random = Random(f"{kind} {count}")  # noqa: S311 - to be able to repeat it
    with open_labs(tmp_path / "labs", kind, sites, *KINDS[kind]) as labs:
        for _ in range(-(-count // sites)):
            _one_round(trials, labs, _drawn(labs, random), random)
        _nothing_was_decided_twice(labs)
        _results_went_through(trials)


def _worst(labs: Labs) -> Plan:
    """Nobody can be told of any result until the broker is there again, and one host is rebooted before it can tell."""
    names = ("cut off, then rebooted", "hears nothing", "lines reset")
    sites = [_named(of_site(lab), name) for lab, name in zip(labs.labs, names, strict=True)]
    broker, coordinator = _named(of_broker(labs), "killed and started again"), _named(of_coordinator(labs), UNTOUCHED)
    return Plan(sites, broker, coordinator, let_go_after=len(sites) + 2)


def _named(outages: Sequence[Outage], name: str) -> Outage:
    return next(each for each in outages if each.name == name)


def _drawn(labs: Labs, random: Random) -> Plan:
    sites = [random.choice(of_site(lab)) for lab in labs.labs]
    broker, coordinator = random.choice(of_broker(labs)), random.choice(of_coordinator(labs))
    return Plan(sites, broker, coordinator, let_go_after=1 + random.randrange(len(sites) + 2))


def _one_round(trials: Trials, labs: Labs, plan: Plan, random: Random) -> None:
    """One trial of every site, all at once."""
    passages = [Passage(lab, outage) for lab, outage in zip(labs.labs, plan.sites, strict=True)]
    try:
        sweep = _submit(trials, labs, random)
        for passage, task_id in zip(passages, sweep.ids, strict=True):
            passage.task_id = task_id
        _go_through(labs, sweep, plan, passages, random)
        assert sweep.results(PATIENCE_S) == list(range(len(labs.labs)))
    except Exception as error:
        raise AssertionError(f"{plan}: {error}") from error
    executions, records = trials.instrument.executions(), Records(labs.fleet.database)
    for passage in passages:
        findings = check(executions, records, [passage.task_id])
        figures = trials.of(f"site {passage.outage.name}")
        figures.add(findings)
        passage.count(figures)
        assert not findings.problems(), (plan, findings.problems())
        assert findings.executions == 1, (plan, passage.task_id)


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


def _go_through(labs: Labs, sweep: Sweep, plan: Plan, passages: Sequence[Passage], random: Random) -> None:
    """Begin every outage, let the work end somewhere on the way, and end every outage."""
    outages = plan.outages
    for number, outage in enumerate(random.sample(outages, len(outages)), 1):
        outage.begin()
        for passage in passages:
            passage.note_begin(outage)
        if number == plan.let_go_after:
            sweep.instrument.let_go()
        wait_for_time(random.randrange(200))
    wait_until(lambda: not sweep.running(), "every site has done its work", PATIENCE_S, step_ms=20)
    wait_for_time(random.choice((0, 300, 1_000, 3_000)))
    rebooted = [passage for passage in passages if passage.outage.needs_results]
    for passage in rebooted:
        wait_for_spool(passage.lab, passage.task_id)
    for outage in random.sample(outages, len(outages)):
        if not outage.needs_results:
            outage.end()
            wait_for_time(random.randrange(200))
    wait_until_served(labs.fleet)
    for passage in rebooted:
        passage.note_reboot()
    together(rebooted, lambda each: each.outage.end())


def _results_went_through(trials: Trials) -> None:
    """Outages of sites that begin when all is over prove nothing, and neither do spools that nobody needed."""
    everything = [each for each in trials.figures.values() if each.under_way is not None]
    missed = [each.fault for each in everything if not each.under_way and each.trials >= MANY]
    assert not missed, missed
    assert sum(each.under_way or 0 for each in everything) > 0
    assert sum(each.from_spool or 0 for each in everything) > 0


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
