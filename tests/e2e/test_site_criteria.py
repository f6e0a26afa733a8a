"""What an execution site is accepted by, one test per criterion, each named after it.

Everything is as an operator has it: a broker that was secured by the command line, with users that its own access rules
hold to their keys, once on Valkey and once on Redis 7; sites that were issued, and workers that know nothing but their
site's credential. Work that must not run twice leaves marks, which are checked against the records.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import cast

import psutil
import pytest

from tenure.broker.base import Stream
from tenure.broker.keys import Keys
from tenure.broker.redis_connection import RedisConnection
from tenure.broker.url import BrokerUrl
from tenure.errors import BrokerRefused, OutsideCampaign, OverBudget, TaskCancelled
from tests import fixtures_fleet_handlers as handlers
from tests.fault.instrument import Instrument, check
from tests.fault.proxy import Proxy
from tests.fixtures_fleet import ROOT
from tests.fixtures_sites import SiteFleet, open_sites
from tests.parity_table import CASES, promised
from tests.servers import KINDS
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]
PATIENCE_S = 60.0
PARITY_SUITE = "tests/e2e/test_launcher_parity.py"
NOT_OF_PROCESSES = frozenset({"cancel_waiting"})
"""What cannot be where an executor is a process: processes do not wait."""


@pytest.fixture(scope="module", params=KINDS)
def sites(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SiteFleet]:
    """One fleet for all criteria; each has sites of its own in it."""
    with open_sites(tmp_path_factory.mktemp(request.param), request.param) as fleet:
        yield fleet


@pytest.fixture
def instrument(tmp_path: Path) -> Iterator[Instrument]:
    instrument = Instrument(tmp_path / "marks")
    yield instrument
    instrument.close()


@pytest.fixture
def line(sites: SiteFleet) -> Iterator[Proxy]:
    """The way to the broker for a site that is to be cut off."""
    proxy = Proxy(sites.server.port)
    yield proxy
    proxy.close()


def wait_for_start(instrument: Instrument) -> None:
    wait_until(instrument.running, "it runs", PATIENCE_S)


def tasks_and_leases(sites: SiteFleet) -> tuple[int, int]:
    """How many of each were ever on record."""
    (row,) = sites.records.rows("SELECT (SELECT COUNT(*) FROM task), (SELECT COUNT(*) FROM lease)")
    return cast("tuple[int, int]", row)


def offered_at_the_broker(sites: SiteFleet, site: str) -> int:
    """How many assignments that site's streams have ever had."""
    connection = RedisConnection(BrokerUrl(sites.office.url("coordinator")))
    try:
        keys = [Keys("main").assignments(Stream(site, capability="imaging"))]
        keys += [Keys("main").assignments(Stream(site, worker_id=f"{site}.{name}")) for name in ("w1", "w2")]
        found = [cast("list[bytes | int]", connection.call("XINFO", "STREAM", key)) for key in keys]
        return sum(int(each[each.index(b"entries-added") + 1]) for each in found)
    finally:
        connection.close()


def test_a_registered_site_with_a_valid_credential_can_lease_a_job_and_a_revoked_site_cannot(
    sites: SiteFleet, instrument: Instrument
) -> None:
    office, client = sites.office, sites.client().using(capability="north", lease_ttl="10s")
    office.issue_site("north", "north")
    sites.start_worker("north", "w1", "--capability", "north")
    assert client.submit(handlers.count, 42).result(PATIENCE_S) == 42

    held = client.submit(handlers.work, str(instrument.path), 1, 120)
    wait_for_start(instrument)
    office.fine("sites", "revoke", "north", "--reason", "stolen", *office.provisioner)
    (lease,) = sites.leases(held.task_id)
    assert (lease["state"], lease["cause"], lease["site"]) == ("RELEASED", "site_revoked", "north")
    sites.wait_for(held.task_id, "LOST")

    unwanted = client.submit(handlers.count, 1)
    connection = RedisConnection(BrokerUrl(office.url("north")))
    with pytest.raises(BrokerRefused):
        connection.call("PING")
    connection.close()
    again = office.run("worker", "--worker-id", "north.w2", "--capability", "north", person="north")
    assert again.code == 3, again
    wait_until(lambda: not instrument.running(), "the revoked site has stopped what it ran", PATIENCE_S)
    assert sites.leases(unwanted.task_id) == []
    assert sites.state(unwanted.task_id) == "QUEUED"
    assert len(sites.leases(held.task_id)) == 1


def test_a_job_leased_by_a_site_that_disconnects_and_reconnects_before_lease_expiry_continues_and_produces_exactly_one_result(  # noqa: E501 - the criterion
    sites: SiteFleet, instrument: Instrument, line: Proxy
) -> None:
    sites.office.issue_site("roaming", "roaming", port=line.port)
    sites.start_worker("roaming", "w1", "--capability", "roaming", ttl_ms=40_000)
    instrument.hold()
    client = sites.client().using(capability="roaming", lease_ttl="40s")
    handle = client.submit(handlers.work, str(instrument.path), 7, 0.1)
    wait_for_start(instrument)

    line.lead_nowhere()
    line.cut()
    instrument.let_go()
    wait_until(lambda: not instrument.running(), "it has ended where nobody can be told", PATIENCE_S)
    assert sites.state(handle.task_id) == "RUNNING"
    line.heal()

    assert handle.result(PATIENCE_S) == 7
    (lease,) = sites.leases(handle.task_id)
    assert lease["state"] == "COMPLETED"
    findings = check(instrument.executions(), sites.records, [handle.task_id])
    assert findings.problems() == []
    assert findings.executions == 1
    assert sites.rows("quarantine", task_id=handle.task_id) == []


def test_a_job_whose_site_misses_its_lease_is_reported_lost_and_is_not_silently_resubmitted(
    sites: SiteFleet, instrument: Instrument
) -> None:
    sites.office.issue_site("frail", "frail")
    process = sites.start_worker("frail", "w1", "--capability", "frail")
    client = sites.client().using(capability="frail", lease_ttl="3s")
    handle = client.submit(handlers.work, str(instrument.path), 1, 120)
    wait_for_start(instrument)
    sites.start_worker("frail", "w2", "--capability", "frail")

    agent = psutil.Process(process.pid)
    for each in (agent, *agent.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # what the agent has started ends with it
            each.kill()
    sites.wait_for(handle.task_id, "LOST", PATIENCE_S)

    told = sites.office.fine("explain", handle.task_id).out
    assert "was lost" in told
    assert client.submit(handlers.count, 5).result(PATIENCE_S) == 5  # there was somebody to run it again
    assert sites.state(handle.task_id) == "LOST"
    assert [lease["state"] for lease in sites.leases(handle.task_id)] == ["EXPIRED"]
    (directive,) = sites.rows("directives", task_id=handle.task_id)
    assert directive["state"] == "PENDING"
    assert len(instrument.executions()) == 1


def test_cancelling_a_job_reaches_the_site_and_the_final_status_reported_is_authoritative(
    sites: SiteFleet, instrument: Instrument, line: Proxy
) -> None:
    sites.office.issue_site("far", "far", port=line.port)
    sites.start_worker("far", "w1", "--capability", "far", ttl_ms=60_000)
    client = sites.client().using(capability="far", lease_ttl="60s")
    near = client.submit(handlers.work, str(instrument.path), 1, 120)
    wait_for_start(instrument)

    sites.office.fine("cancel", near.task_id)
    sites.wait_for(near.task_id, "CANCELLED")
    assert not instrument.running()

    away = client.submit(handlers.work, str(instrument.path), 2, 120)
    wait_for_start(instrument)
    line.lead_nowhere()
    line.cut()
    sites.client().cancel([away.task_id])
    wait_until(lambda: sites.state(away.task_id) == "CANCELLING", "it is to end", PATIENCE_S)
    assert instrument.running()  # nobody says that it is over while it is not
    line.heal()
    sites.wait_for(away.task_id, "CANCELLED", PATIENCE_S)
    assert not instrument.running()

    for handle in (near, away):
        with pytest.raises(TaskCancelled):
            handle.result(PATIENCE_S)
        (lease,) = sites.leases(handle.task_id)
        assert (lease["state"], lease["cause"]) == ("RELEASED", "cancelled")
    assert [sites.state(handle.task_id) for handle in (near, away)] == ["CANCELLED"] * 2


def test_a_submission_exceeding_its_campaigns_budget_or_device_access_is_refused_before_any_site_sees_it(
    sites: SiteFleet,
) -> None:
    office = sites.office
    office.issue_site("bench", "imaging", more=("--device", "laser", "--device", "microscope"))
    office.issue_person("ann", "submitter")
    office.fine("campaigns", "create", "cells", "--tasks", "3", "--device", "microscope", "--person", "ann")
    sites.start_worker("bench", "w1", "--capability", "imaging", "--label", "device=laser")
    sites.start_worker("bench", "w2", "--capability", "imaging", "--label", "device=microscope")
    ann = sites.client("ann").using(capability="imaging", campaign="cells", labels={"device": "microscope"})
    assert [handle.result(PATIENCE_S) for handle in ann.map(handlers.count, [1, 2])] == [1, 2]
    tasks, leases = tasks_and_leases(sites)
    seen = offered_at_the_broker(sites, "bench")

    with pytest.raises(OverBudget, match="has 1 of 3 tasks left"):
        ann.map(handlers.count, [3, 4])
    laser = sites.client("ann").using(capability="imaging", campaign="cells", labels={"device": "laser"})
    with pytest.raises(OutsideCampaign, match=r"allows .*microscope.*not laser"):
        laser.submit(handlers.count, 5)
    words = ("--capability", "imaging", "--campaign", "cells", "--label", "device=laser")
    refused = office.run("submit", *words, f"{handlers.__name__}:count", "6", person="ann")
    assert refused.code == 2, refused

    assert ann.submit(handlers.count, 7).result(PATIENCE_S) == 7  # the last of the three: the refused took nothing
    assert tasks_and_leases(sites) == (tasks + 1, leases + 1)
    assert offered_at_the_broker(sites, "bench") == seen + 1


@pytest.mark.timeout(1_800)
def test_the_executor_parity_cases_that_pass_for_local_runs_pass_for_the_reference_compute_site(tmp_path: Path) -> None:
    """Every case is run and passes at what `test_launcher_parity.py` calls `site`: a compute site with a credential.

    In a process of its own, for a fleet adopts every orphan of its process.
    """
    cells = promised()
    asked = {name: {case for case in CASES if cells[case, name] == "yes"} for name in ("local", "site")}
    assert asked["site"] == asked["local"] == CASES.keys() - NOT_OF_PROCESSES

    nodes = {case: f"{PARITY_SUITE}::test_{case}[site]" for case in CASES}
    argv = [sys.executable, "-m", "pytest", "-q", "-rA", "--basetemp", str(tmp_path / "suite"), *nodes.values()]
    ran = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    outcomes = ran.stdout.splitlines()
    assert {case for case, node in nodes.items() if f"PASSED {node}" in outcomes} == asked["local"], ran.stdout
    assert ran.returncode == 0, ran.stdout + ran.stderr
