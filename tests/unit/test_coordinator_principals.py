"""Sites and people come and go: what is on record, who is taken up, and what can never be undone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.errors import StreamMissing
from tenure.protocol.client_messages import Ask
from tenure.protocol.principal_messages import (
    AddCredential,
    IssuePerson,
    IssueSite,
    RetireCredentials,
    Revoke,
    Role,
    SiteKind,
)
from tests.scripted_fleet import ScriptedFleet, envelope

A, B, C = "a" * 64, "b" * 64, "c" * 64


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path) as fleet:
        yield fleet


def issue_site(fleet: ScriptedFleet, site: str = "lab", digest: str = A, **fields: object) -> dict[str, object]:
    ask = IssueSite.model_validate({"site": site, "capabilities": ("cpu",), "secret_digest": digest} | fields)
    reply = fleet.client.ask(ask)
    assert reply.refusal is None, reply.refusal
    return reply.rows[0]


def issue_person(fleet: ScriptedFleet, person: str = "ada", role: Role = Role.SUBMITTER, digest: str = B) -> None:
    assert fleet.client.ask(IssuePerson(person=person, role=role, secret_digest=digest)).refusal is None


def refusal(fleet: ScriptedFleet, ask: Ask) -> tuple[str, str]:
    refused = fleet.client.ask(ask).refusal
    assert refused is not None
    return refused.code, refused.message


def live(fleet: ScriptedFleet, name: str) -> list[str]:
    rows = fleet.records.rows(
        "SELECT secret_digest FROM credential WHERE name = ? AND retired_at_ms IS NULL ORDER BY issued_at_ms", name
    )
    return [str(row[0]) for row in rows]


# --- issuing -------------------------------------------------------------------------------------


def test_a_site_that_was_issued_takes_part_at_once(fleet: ScriptedFleet) -> None:
    issue_site(fleet)
    worker = fleet.worker("lab.w1", site="lab")
    task = fleet.submit()
    worker.finish(worker.claim(), "7")
    assert fleet.records.state(task) == "SUCCEEDED"


def test_the_answer_says_what_the_brokers_user_is_to_be(fleet: ScriptedFleet) -> None:
    assert issue_site(fleet, kind="issue_site", site_kind=SiteKind.LAB, most_leases=3) == {
        "holder": "site",
        "name": "lab",
        "state": "ACTIVE",
        "kind": "lab",
        "capabilities": ["cpu"],
        "devices": [],
        "most_leases": 3,
        "secret_digests": [A],
    }


def test_a_site_may_offer_no_more_than_it_was_granted(fleet: ScriptedFleet) -> None:
    issue_site(fleet)
    fleet.worker("lab.w1", site="lab", capabilities=("cpu", "gpu"))
    assert [row["capabilities"] for row in fleet.client.query("workers")] == [["cpu"]]


def test_a_name_is_issued_once(fleet: ScriptedFleet) -> None:
    issue_site(fleet)
    issue_person(fleet)
    site = IssueSite(site="lab", capabilities=("cpu",), secret_digest=C)
    person = IssuePerson(person="ada", role=Role.OBSERVER, secret_digest=C)
    assert refusal(fleet, site) == ("name_taken", "there is a site lab already")
    assert refusal(fleet, person) == ("name_taken", "there is a person ada already")
    assert (live(fleet, "lab"), live(fleet, "ada")) == ([A], [B])


def test_the_same_secret_again_is_the_same_step_again(fleet: ScriptedFleet) -> None:
    assert issue_site(fleet) == issue_site(fleet)
    issue_person(fleet)
    issue_person(fleet)
    assert len(fleet.records.events("site_issued") + fleet.records.events("person_issued")) == 2


@pytest.mark.parametrize(
    "ask",
    [
        IssueSite(site="default", capabilities=("cpu",), secret_digest=A),
        IssuePerson(person="default", secret_digest=A),
    ],
)
def test_the_names_of_a_broker_without_credentials_are_not_for_issue(fleet: ScriptedFleet, ask: Ask) -> None:
    code, message = refusal(fleet, ask)
    assert (code, "of a broker without credentials" in message) == ("name_taken", True)


def test_a_site_cannot_be_called_as_a_worker_of_another_one_begins(fleet: ScriptedFleet) -> None:
    fleet.worker("lab.old")
    ask = IssueSite(site="lab", capabilities=("cpu",), secret_digest=A)
    code, message = refusal(fleet, ask)
    assert (code, "lab.old" in message) == ("name_taken", True)


def test_no_secret_is_on_record_only_its_digest(fleet: ScriptedFleet) -> None:
    issue_site(fleet)
    (row,) = fleet.records.rows("SELECT * FROM credential")
    assert row[:3] == ("site", "lab", A)


# --- rotating ------------------------------------------------------------------------------------


def test_a_second_credential_leaves_the_first_one_good_until_it_is_retired(fleet: ScriptedFleet) -> None:
    issue_site(fleet)
    added = fleet.client.ask(AddCredential(holder="site", name="lab", secret_digest=B))
    assert added.rows[0]["secret_digests"] == [A, B]
    retired = fleet.client.ask(RetireCredentials(holder="site", name="lab"))
    assert retired.rows[0]["secret_digests"] == [B]
    assert live(fleet, "lab") == [B]


def test_a_retired_secret_never_comes_back(fleet: ScriptedFleet) -> None:
    issue_site(fleet)
    fleet.client.ask(AddCredential(holder="site", name="lab", secret_digest=B))
    fleet.client.ask(RetireCredentials(holder="site", name="lab"))
    assert refusal(fleet, AddCredential(holder="site", name="lab", secret_digest=A))[0] == "name_taken"
    assert live(fleet, "lab") == [B]


def test_adding_the_same_credential_again_adds_nothing(fleet: ScriptedFleet) -> None:
    issue_person(fleet)
    for _ in range(2):
        fleet.client.ask(AddCredential(holder="person", name="ada", secret_digest=C))
    assert live(fleet, "ada") == [B, C]


def test_rotations_that_are_never_finished_come_to_an_end(fleet: ScriptedFleet) -> None:
    issue_person(fleet)
    for digit in "cde":
        fleet.client.ask(AddCredential(holder="person", name="ada", secret_digest=digit * 64))
    code, message = refusal(fleet, AddCredential(holder="person", name="ada", secret_digest="f" * 64))
    assert (code, message) == ("usage", "ada has 4 credentials that are good")


def test_retiring_with_one_credential_changes_nothing(fleet: ScriptedFleet) -> None:
    issue_person(fleet)
    fleet.client.ask(RetireCredentials(holder="person", name="ada"))
    assert live(fleet, "ada") == [B]


@pytest.mark.parametrize("name", ["nobody", "default"])
@pytest.mark.parametrize("holder", ["site", "person"])
def test_only_who_was_issued_a_credential_can_rotate_it(fleet: ScriptedFleet, holder: str, name: str) -> None:
    for kind in (AddCredential, RetireCredentials):
        fields = {"holder": holder, "name": name} | ({"secret_digest": A} if kind is AddCredential else {})
        assert refusal(fleet, kind.model_validate(fields))[0] == "unknown_principal"


# --- revoking ------------------------------------------------------------------------------------


def test_a_revoked_site_is_refused_at_once_and_its_leases_end(fleet: ScriptedFleet) -> None:
    issue_site(fleet)
    worker = fleet.worker("lab.w1", site="lab")
    task = fleet.submit()
    hand = worker.claim()
    (row,) = fleet.client.ask(Revoke(holder="site", name="lab", reason="stolen")).rows
    assert (row["state"], row["released"], row["secret_digests"]) == ("REVOKED", 1, [])
    worker.finish(hand, "7")
    assert fleet.records.result(task) is None
    ((state, cause),) = fleet.records.rows("SELECT state, cause FROM lease WHERE task_id = ?", task)
    assert (state, cause) == ("RELEASED", "site_revoked")
    assert "ada" in fleet.records.events("site_revoked")[0]
    assert "stolen" in fleet.records.events("site_revoked")[0]


def test_a_revoked_person_is_not_answered(fleet: ScriptedFleet) -> None:
    issue_person(fleet)
    client = fleet.connect("c2", "ada")
    client.submit(envelope())
    fleet.client.ask(Revoke(holder="person", name="ada"))
    try:
        name = client.send(client.submission(envelope()))
    except StreamMissing:
        return
    fleet.step()
    client.read()
    assert name not in client.replies


def test_revoking_again_is_safe_and_says_so(fleet: ScriptedFleet) -> None:
    issue_site(fleet)
    issue_person(fleet)
    for ask in (Revoke(holder="site", name="lab"), Revoke(holder="person", name="ada")):
        fleet.client.ask(ask)
        fleet.live(5_000)
        again = fleet.client.ask(ask)
        assert (again.rows[0]["state"], again.rows[0]["released"]) == ("REVOKED", 0)
    assert len(fleet.records.events("site_revoked") + fleet.records.events("person_revoked")) == 2


def test_a_revoked_name_is_gone_for_good(fleet: ScriptedFleet) -> None:
    issue_site(fleet)
    issue_person(fleet)
    fleet.client.ask(Revoke(holder="site", name="lab"))
    fleet.client.ask(Revoke(holder="person", name="ada"))
    for issue in (
        IssueSite(site="lab", capabilities=("cpu",), secret_digest=C),
        IssuePerson(person="ada", secret_digest=C),
    ):
        assert "never used again" in refusal(fleet, issue)[1]
    for add in (
        AddCredential(holder="site", name="lab", secret_digest=C),
        AddCredential(holder="person", name="ada", secret_digest=C),
    ):
        assert refusal(fleet, add)[0] == "unknown_principal"


@pytest.mark.parametrize("holder", ["site", "person"])
def test_what_belongs_to_no_credential_cannot_be_revoked(fleet: ScriptedFleet, holder: str) -> None:
    assert refusal(fleet, Revoke.model_validate({"holder": holder, "name": "default"}))[0] == "usage"
    assert refusal(fleet, Revoke.model_validate({"holder": holder, "name": "nobody"}))[0] == "unknown_principal"


def test_who_takes_part_is_the_same_after_a_restart(fleet: ScriptedFleet) -> None:
    issue_site(fleet)
    issue_site(fleet, "gone", C)
    issue_person(fleet)
    fleet.client.ask(Revoke(holder="site", name="gone"))
    fleet.restart()
    fleet.step()
    worker = fleet.worker("lab.w1", site="lab")
    client = fleet.connect("c2", "ada")
    task = client.submit(envelope())
    worker.finish(worker.claim())
    assert fleet.records.state(task) == "SUCCEEDED"
    assert [row["site"] for row in fleet.client.query("sites", state="ACTIVE")] == ["default", "lab"]


# --- what is told ----------------------------------------------------------------------------------


def test_a_sites_health_is_that_of_its_workers(fleet: ScriptedFleet) -> None:
    def health() -> str:
        return str(fleet.client.query("sites", site="lab")[0]["health"])

    issue_site(fleet)
    assert health() == "unseen"
    worker = fleet.worker("lab.w1", site="lab")
    assert health() == "ok"
    worker.alive = False
    fleet.live(60_000)
    assert health() == "silent"
    fleet.client.ask(Revoke(holder="site", name="lab"))
    assert health() == "revoked"


def test_lists_say_who_may_take_part(fleet: ScriptedFleet) -> None:
    issue_site(fleet)
    issue_person(fleet)
    (site,) = fleet.client.query("sites", site="lab")
    assert (site["capabilities"], site["credentials"], site["issued_by"]) == (["cpu"], 1, "ada")
    (person,) = fleet.client.query("clients")
    assert (person["person"], person["role"], person["state"]) == ("ada", "submitter", "ACTIVE")
    assert {(row["holder"], row["name"], row["secret_digest"]) for row in fleet.client.query("credentials")} == {
        ("site", "lab", A),
        ("person", "ada", B),
    }


def test_no_list_but_the_operators_shows_a_digest(fleet: ScriptedFleet) -> None:
    issue_site(fleet)
    issue_person(fleet)
    shown = [fleet.client.query(what) for what in ("sites", "clients", "events", "workers", "status")]
    assert A not in str(shown)
    assert B not in str(shown)
