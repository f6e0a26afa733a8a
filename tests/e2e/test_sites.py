"""What an operator does with sites and people, on brokers that let nobody in without a credential."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tenure.broker.principals import Principal
from tenure.broker.redis_connection import RedisConnection, Reply
from tenure.broker.url import BrokerUrl
from tenure.errors import BrokerError
from tests import fixtures_fleet_handlers as handlers
from tests.fault.instrument import Instrument, check
from tests.fixtures_sites import SiteFleet, open_sites
from tests.servers import KINDS
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]
PATIENCE_S = 60.0


@pytest.fixture(scope="module", params=KINDS)
def sites(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SiteFleet]:
    """One fleet for all; each test has sites and people of its own in it."""
    with open_sites(tmp_path_factory.mktemp(request.param), request.param) as fleet:
        yield fleet


def as_provisioner(sites: SiteFleet, *command: str) -> Reply:
    """One command of whoever may make users, past everything that keeps a record."""
    with closing(RedisConnection(BrokerUrl(sites.office.url("provisioner")))) as connection:
        return connection.call(*command)


def lets_in(url: str) -> bool:
    with closing(RedisConnection(BrokerUrl(url))) as connection:
        try:
            return connection.call("PING") in {b"PONG", "PONG"}
        except BrokerError:
            return False


def bad_credentials(sites: SiteFleet) -> list[str]:
    """What the doctor finds wrong with the broker's users."""
    printed = sites.office.run("doctor", "--json", *sites.office.provisioner)
    return [row["text"] for row in printed.json() if row["about"] == "credentials" and row["level"] != "ok"]


def test_a_rotation_ends_no_work_and_the_old_secret_is_good_for_nothing_afterwards(
    sites: SiteFleet, tmp_path: Path
) -> None:
    office, client = sites.office, sites.client().using(capability="east", lease_ttl="20s")
    path = office.issue_site("east", "east")
    worker = sites.start_worker("east", "w1", "--capability", "east")
    old = office.url("east")

    office.fine("sites", "rotate", "east", *office.provisioner, "--out", str(path))
    new = office.url("east")
    assert old != new
    assert (lets_in(old), lets_in(new)) == (True, True)
    assert client.submit(handlers.count, 1).result(PATIENCE_S) == 1

    with closing(Instrument(tmp_path / "marks")) as instrument:
        instrument.hold()
        handle = client.submit(handlers.work, str(instrument.path), 2, 0.1)
        wait_until(instrument.running, "it runs", PATIENCE_S)
        office.fine("sites", "rotate", "east", "--finish", *office.provisioner)
        assert (lets_in(old), lets_in(new)) == (False, True)
        assert instrument.running()
        instrument.let_go()
        assert handle.result(PATIENCE_S) == 2
        assert check(instrument.executions(), sites.records, [handle.task_id]).problems() == []
        assert len(instrument.executions()) == 1
    assert [lease["state"] for lease in sites.leases(handle.task_id)] == ["COMPLETED"]
    assert client.submit(handlers.count, 3).result(PATIENCE_S) == 3
    assert worker.running
    assert sites.rows("credentials", holder="site", name="east")[0]["secret_digest"] not in old + new


def test_users_that_the_broker_forgot_are_made_again_with_the_secrets_that_are_out(sites: SiteFleet) -> None:
    office = sites.office
    office.issue_site("south", "south")
    sites.start_worker("south", "w1", "--capability", "south")
    assert bad_credentials(sites) == []

    user = Principal("main", "site", "south").user
    as_provisioner(sites, "ACL", "DELUSER", user)
    assert [text for text in bad_credentials(sites) if user in text]
    assert not lets_in(office.url("south"))

    office.fine("sites", "sync", *office.provisioner)
    assert lets_in(office.url("south"))
    assert bad_credentials(sites) == []
    done = sites.client().using(capability="south", lease_ttl="20s").submit(handlers.count, 3)
    assert done.result(PATIENCE_S) == 3


def test_the_doctor_finds_whoever_was_let_in_past_the_record_and_sync_ends_it(sites: SiteFleet) -> None:
    office = sites.office
    office.issue_person("dora", "observer")
    stranger, dora = Principal("main", "site", "mallory").user, Principal("main", "client", "dora").user
    as_provisioner(sites, "ACL", "SETUSER", stranger, "on", ">guessed", "~*", "+@all")
    as_provisioner(sites, "ACL", "SETUSER", dora, ">another", "+flushall")
    found = " ".join(bad_credentials(sites))
    assert f"the broker lets in {stranger}" in found
    assert f"lets in {dora} with a secret that is not on record" in found
    assert f"{dora} may do something else" in found

    office.fine("sites", "sync", *office.provisioner)
    office.fine("clients", "sync", *office.provisioner)
    assert bad_credentials(sites) == []
    assert lets_in(office.url("dora"))


def test_an_observer_reads_a_submitter_submits_and_only_an_operator_throws_out(sites: SiteFleet) -> None:
    office = sites.office
    office.issue_person("olga", "observer")
    office.issue_person("sam", "submitter")
    work = ("submit", "tests.fixtures_fleet_handlers:count", "1", "--capability", "nowhere")
    task = office.told(*work, person="sam")["task_id"]

    refused = office.run(*work, person="olga")
    assert (refused.code, "olga is an observer" in refused.err) == (2, True), refused
    assert office.told("tasks", "show", task, person="olga")["principal"] == "sam"
    refused = office.run("cancel", task, person="olga")
    assert (refused.code, "not" in refused.err) == (2, True), refused

    mine = office.told(*work, person="operator")["task_id"]
    refused = office.run("cancel", mine, person="sam")
    assert (refused.code, "sam may not cancel" in refused.err) == (2, True), refused
    refused = office.run("clients", "revoke", "olga", *office.provisioner, person="sam")
    assert (refused.code, "sam is a submitter" in refused.err) == (2, True), refused
    assert lets_in(office.url("olga"))

    office.fine("cancel", task, person="sam")
    assert sites.state(task) == "CANCELLED"
    office.fine("clients", "revoke", "olga", "--reason", "left", *office.provisioner)
    assert not lets_in(office.url("olga"))
    assert office.told("clients", "show", "olga")["state"] == "REVOKED"


def test_a_site_that_was_revoked_is_told_of_everywhere(sites: SiteFleet) -> None:
    office = sites.office
    office.issue_site("west", "west", more=("--kind", "lab", "--most-leases", "3"))
    sites.start_worker("west", "w1", "--capability", "west")
    shown = office.told("sites", "show", "west")
    assert (shown["kind"], shown["state"], shown["health"], shown["most_leases"]) == ("lab", "ACTIVE", "ok", 3)

    office.fine("sites", "revoke", "west", "--reason", "stolen laptop", *office.provisioner)
    shown = office.told("sites", "show", "west")
    assert (shown["state"], shown["health"], shown["credentials"]) == ("REVOKED", "revoked", 0)
    again = office.run("sites", "issue", "west", "--capability", "west", *office.provisioner)
    assert (again.code, "never used again" in again.err) == (2, True), again
    assert bad_credentials(sites) == []
    worker = sites.processes["west.w1"]
    wait_until(lambda: not worker.running, "the worker of the revoked site has ended", PATIENCE_S)
    assert "is not granted" not in worker.said()


def test_a_worker_whose_site_is_revoked_while_it_works_says_so(sites: SiteFleet, tmp_path: Path) -> None:
    office = sites.office
    office.issue_site("north", "north")
    sites.start_worker("north", "w1", "--capability", "north")
    with closing(Instrument(tmp_path / "marks")) as instrument:
        instrument.hold()
        client = sites.client().using(capability="north", lease_ttl="20s")
        client.submit(handlers.work, str(instrument.path), 2, 0.1)
        wait_until(instrument.running, "it runs", PATIENCE_S)
        office.fine("sites", "revoke", "north", *office.provisioner)
        worker = sites.processes["north.w1"]
        wait_until(lambda: not worker.running, "the worker of the revoked site has ended", PATIENCE_S)
        assert not instrument.running()
    said = worker.said()
    last = said.splitlines()[-1]
    assert worker.wait() == 3, said
    assert "the credential of site north is not good any more" in last, said
    assert "tenure sites show north" in last
    assert "is not granted" not in said
