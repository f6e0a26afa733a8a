"""What a site is granted and what a person may ask changes while they are there: nothing that runs ends by it."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from tenure.broker.base import SiteKeys
from tenure.broker.keys import Keys
from tenure.coordinator import sites
from tenure.coordinator.store.database import Database
from tenure.protocol.campaign_messages import CreateCampaign
from tenure.protocol.client_messages import Ask, Query
from tenure.protocol.control_messages import SayHello, Stop
from tenure.protocol.envelope import Requirements
from tenure.protocol.principal_messages import ChangeRole, GrantSite, IssuePerson, IssueSite, Revoke, Role
from tests.scripted_campaign import refused, submit
from tests.scripted_fleet import ScriptedFleet, ScriptedWorker, envelope

A, B = "a" * 64, "b" * 64
DEVICES = (("device", "arm"), ("device", "laser"), ("room", "b12"))
WANTS_LASER = Requirements(labels=(("device", "laser"),))


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path) as fleet:
        yield fleet


def issue(fleet: ScriptedFleet, *devices: str, capabilities: tuple[str, ...] = ("cpu", "gpu"), most: int = 0) -> None:
    ask = IssueSite(site="lab", capabilities=capabilities, devices=devices, most_leases=most, secret_digest=A)
    assert fleet.client.ask(ask).refusal is None


def grant(
    fleet: ScriptedFleet, *capabilities: str, devices: tuple[str, ...] = (), most: int | None = None
) -> dict[str, object]:
    reply = fleet.client.ask(GrantSite(site="lab", capabilities=capabilities, devices=devices, most_leases=most))
    assert reply.refusal is None, reply.refusal
    return reply.rows[0]


def at_lab(fleet: ScriptedFleet, *capabilities: str, labels: tuple[tuple[str, str], ...] = ()) -> ScriptedWorker:
    return fleet.worker("lab.w1", site="lab", slots=4, capabilities=capabilities or ("cpu", "gpu"), labels=labels)


def offers(fleet: ScriptedFleet) -> tuple[list[str], list[list[str]]]:
    (row,) = fleet.client.query("workers")
    return row["capabilities"], [label for label in row["labels"] if label[0] == "device"]


def refusal(fleet: ScriptedFleet, ask: Ask) -> tuple[str, str]:
    refused = fleet.client.ask(ask).refusal
    assert refused is not None
    return refused.code, refused.message


# --- devices -------------------------------------------------------------------------------------


def test_a_worker_has_only_the_devices_that_its_site_was_granted(fleet: ScriptedFleet) -> None:
    issue(fleet, "arm")
    at_lab(fleet, labels=DEVICES)
    wanted = fleet.submit(requirements=WANTS_LASER)

    assert offers(fleet)[1] == [["device", "arm"]]
    assert fleet.records.state(wanted) == "QUEUED"
    assert fleet.records.state(fleet.submit(requirements=Requirements(labels=DEVICES[:1]))) == "OFFERED"
    assert "not granted the device laser" in fleet.records.events("worker_hello")[0]


def test_a_device_that_a_site_makes_up_keeps_nobody_from_a_campaign(fleet: ScriptedFleet) -> None:
    issue(fleet)
    at_lab(fleet, labels=(("device", "none-of-yours"),))
    assert fleet.client.ask(CreateCampaign(campaign="x")).refusal is None

    assert submit(fleet).refusal is None


def test_a_site_of_a_broker_without_credentials_may_have_any_device(fleet: ScriptedFleet) -> None:
    fleet.worker(labels=DEVICES)
    assert fleet.client.ask(CreateCampaign(campaign="x")).refusal is None

    assert fleet.records.state(fleet.submit(requirements=WANTS_LASER)) == "OFFERED"
    assert "may come to arm, laser" in refused(submit(fleet), "outside_campaign")


def test_devices_are_those_that_are_granted_also_after_a_restart(fleet: ScriptedFleet) -> None:
    issue(fleet, "arm")
    at_lab(fleet, labels=DEVICES)
    fleet.restart()
    fleet.step()

    assert offers(fleet)[1] == [["device", "arm"]]
    assert fleet.records.state(fleet.submit(requirements=Requirements(labels=DEVICES[:1]))) == "OFFERED"


# --- grants --------------------------------------------------------------------------------------


def test_what_is_not_granted_any_more_is_not_offered_and_what_runs_goes_on(fleet: ScriptedFleet) -> None:
    issue(fleet, "laser")
    worker = at_lab(fleet, labels=DEVICES)
    tasks = [fleet.submit(capability="gpu", start=start) for start in ("granted", "claimed")]
    hand, at_once = worker.take()
    worker.claim(hand)
    row = grant(fleet, "cpu")
    fleet.live(30_000)

    assert (row["capabilities"], row["devices"], row["secret_digests"]) == (["cpu"], [], [A])
    later = [fleet.submit(capability="gpu"), fleet.submit(requirements=WANTS_LASER)]
    assert [fleet.records.state(task) for task in later] == ["QUEUED", "QUEUED"]
    assert fleet.records.state(fleet.submit()) == "OFFERED"
    assert not any(isinstance(order, Stop) for order in worker.read())
    worker.finish(hand, "7")
    worker.finish(worker.claim(at_once), "8")
    assert [fleet.records.state(task) for task in tasks] == ["SUCCEEDED", "SUCCEEDED"]


def test_an_offer_that_nobody_was_granted_goes_to_a_site_that_may_have_it(fleet: ScriptedFleet) -> None:
    issue(fleet)
    worker = at_lab(fleet)
    task = fleet.submit(capability="gpu")
    (hand,) = worker.take()
    other = fleet.worker(capabilities=("gpu",))
    grant(fleet, "cpu")
    (again,) = other.take()
    worker.report(worker.claimed(hand))
    other.finish(other.claim(again), "7")

    assert (again.ticket.task_id, again.ticket.attempt) == (task, 1)
    assert fleet.records.result(task) == ("w1", again.ticket.fence, "7")


@pytest.mark.parametrize("by", ["restart", "a turn that was undone"])
def test_what_may_run_already_goes_on_also_when_the_coordinator_has_forgotten(fleet: ScriptedFleet, by: str) -> None:
    issue(fleet)
    worker = at_lab(fleet)
    task = fleet.submit(capability="gpu", start="claimed")
    (hand,) = worker.take()
    hand.state = "running"
    grant(fleet, "cpu")
    if by == "restart":
        fleet.restart()
    else:
        with closing(sqlite3.connect(fleet.options.database)) as connection:
            connection.execute("CREATE TRIGGER a_rule BEFORE INSERT ON task BEGIN SELECT RAISE(ABORT, 'a rule'); END")
        fleet.client.send(fleet.client.submission(envelope()))
        fleet.step()
    fleet.live(30_000)

    assert not any(isinstance(order, Stop) for order in worker.read())
    worker.claim(hand)
    worker.finish(hand, "7")
    assert fleet.records.result(task) == ("lab.w1", hand.ticket.fence, "7")


def test_what_an_operator_takes_back_is_not_held_against_the_site(fleet: ScriptedFleet) -> None:
    issue(fleet)
    at_lab(fleet)
    fleet.submit(capability="gpu")
    (before,) = fleet.client.query("sites", site="lab")
    grant(fleet, "cpu")
    (after,) = fleet.client.query("sites", site="lab")
    fleet.worker(slots=4, capabilities=("cpu", "ram"))
    fleet.submit(capability="ram")  # so that the other site holds more
    task = fleet.submit()

    assert after["records_left"] == before["records_left"]
    assert fleet.records.rows("SELECT site_id FROM lease WHERE task_id = ?", task) == [("lab",)]


def test_what_is_granted_besides_is_offered_when_a_worker_has_it(fleet: ScriptedFleet) -> None:
    issue(fleet, capabilities=("cpu",))
    worker = at_lab(fleet, labels=DEVICES)
    tasks = [fleet.submit(capability="gpu"), fleet.submit(requirements=WANTS_LASER)]
    assert [fleet.records.state(task) for task in tasks] == ["QUEUED", "QUEUED"]
    worker.read()
    grant(fleet, "cpu", "gpu", devices=("laser",))
    assert any(isinstance(order, SayHello) for order in worker.read())
    worker.hello(slots=4, labels=DEVICES)
    fleet.step()

    assert [fleet.records.state(task) for task in tasks] == ["OFFERED", "OFFERED"]


def test_the_number_of_leases_stays_when_it_is_not_named(fleet: ScriptedFleet) -> None:
    issue(fleet, most=2)
    at_lab(fleet)
    tasks = [fleet.submit() for _ in range(4)]
    assert grant(fleet, "cpu")["most_leases"] == 2
    assert [fleet.records.state(task) for task in tasks].count("OFFERED") == 2
    assert grant(fleet, "cpu", most=3)["most_leases"] == 3
    fleet.step()
    assert [fleet.records.state(task) for task in tasks].count("OFFERED") == 3
    grant(fleet, "cpu", most=1)
    assert [fleet.records.state(task) for task in tasks].count("OFFERED") == 3


def test_grants_are_on_record_with_whose_they_were_and_stay_after_a_restart(fleet: ScriptedFleet) -> None:
    issue(fleet, "arm", most=2)
    at_lab(fleet, labels=DEVICES)
    for _ in range(2):
        grant(fleet, "gpu", devices=("laser",), most=0)
    fleet.restart()
    fleet.step()

    (text,) = fleet.records.events("site_granted")
    assert text == (
        "ada granted site lab gpu and the devices laser; "
        "before, it was cpu, gpu and the devices arm and at most 2 leases."
    )
    (site,) = fleet.client.query("sites", site="lab")
    assert (site["capabilities"], site["devices"], site["most_leases"]) == (["gpu"], ["laser"], 0)
    assert offers(fleet)[0] == ["gpu"]


@pytest.mark.parametrize("name", ["default", "nobody", "gone"])
def test_only_a_site_with_a_credential_is_granted_something_else(fleet: ScriptedFleet, name: str) -> None:
    fleet.client.ask(IssueSite(site="gone", capabilities=("cpu",), secret_digest=B))
    fleet.client.ask(Revoke(holder="site", name="gone"))
    assert refusal(fleet, GrantSite(site=name, capabilities=("cpu",)))[0] == "unknown_principal"
    assert fleet.records.events("site_granted") == []


# --- roles ---------------------------------------------------------------------------------------


def test_a_person_may_ask_what_the_new_role_allows_and_what_was_submitted_goes_on(fleet: ScriptedFleet) -> None:
    fleet.client.ask(IssuePerson(person="bob", role=Role.SUBMITTER, secret_digest=B))
    bob = fleet.connect("c2", "bob")
    task = bob.submit(envelope())
    (row,) = fleet.client.ask(ChangeRole(person="bob", role=Role.OBSERVER)).rows
    assert (row["role"], row["secret_digests"]) == ("observer", [B])

    refused = bob.ask(IssueSite(site="lab", capabilities=("cpu",), secret_digest=A)).refusal
    assert refused is not None
    assert refused.message == "bob is an observer and may not ask for 'issue site'"
    assert bob.ask(Query(what="tasks")).refusal is None
    assert fleet.records.state(task) == "QUEUED"
    fleet.client.ask(ChangeRole(person="bob", role=Role.OBSERVER))
    assert fleet.records.events("role_changed") == ["ada made bob, who was submitter, observer."]
    (step,) = fleet.records.rows("SELECT principal, before, after FROM event WHERE kind = 'role_changed'")
    assert step == ("person:default/ada", "submitter", "observer")


@pytest.mark.parametrize("name", ["default", "nobody"])
def test_only_who_was_issued_a_credential_has_a_role_that_changes(fleet: ScriptedFleet, name: str) -> None:
    assert refusal(fleet, ChangeRole(person=name, role=Role.OBSERVER))[0] == "unknown_principal"


# --- what a revoked site leaves ------------------------------------------------------------------


def test_nothing_is_looked_for_of_a_revoked_site_once_it_is_gone(fleet: ScriptedFleet) -> None:
    issue(fleet)
    at_lab(fleet)
    fleet.client.ask(Revoke(holder="site", name="lab"))
    fleet.live(5_000)
    inbox = Keys("main").inbox("lab")
    assert fleet.server.stream(inbox) is None
    fleet.restart()
    fleet.step()
    assert fleet.server.stream(inbox) is None
    ((cleared,),) = fleet.records.rows("SELECT cleared_at_ms IS NOT NULL FROM site WHERE site_id = 'lab'")
    assert cleared == 1


class Wiped:
    """A broker of which only what is deleted of a site is written down."""

    def __init__(self) -> None:
        self.portions: list[tuple[str, int, tuple[str, ...]]] = []

    def forget_site(self, site: str, workers: Sequence[str], capabilities: Sequence[str]) -> None:
        self.portions.append((site, len(workers), tuple(capabilities)))


def test_what_many_workers_have_left_goes_in_portions_one_per_turn(tmp_path: Path) -> None:
    with Database(tmp_path / "fleet.db") as store:
        store.run("create_world", ("main", 0))
        store.run("issue_site", ("lab", "lab", 0, '["cpu"]', "[]", 0, "ada"))
        worker = ("lab", 1, 0, 1, '["cpu", "gpu"]', "[]", "[]", 1_000, "", 0, "", 0, 0, 0, "", None)
        store.run_many("put_worker", [(f"lab.w{number:05d}", *worker) for number in range(2_500)])
        store.run("revoke_site", (0, "lab"))
        known, broker = sites.load(store, ()), Wiped()
        assert known.readers().sites == ("lab",)
        for _ in range(4):
            sites.clear(store, cast("SiteKeys", broker), known, (7, 0))
            assert known.readers().sites == ()

        assert broker.portions == [("lab", count, ("cpu", "gpu")) for count in (1_000, 1_000, 500)]
        assert store.rows("revoked_sites") == [("lab", 7)]
        again = sites.load(store, ())
        assert again.to_clear(0) == []
        assert again.home_of("lab.w1") == "lab"
