"""`tenure sites` and `tenure clients`: the coordinator first, then the broker, then the file; no secret elsewhere."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tenure.broker.principals import Principal
from tenure.errors import BrokerRefused, BrokerUnreachable, NameTaken
from tenure.protocol.client_messages import Query
from tenure.protocol.principal_messages import (
    AddCredential,
    ChangeRole,
    GrantSite,
    IssuePerson,
    IssueSite,
    RetireCredentials,
    Revoke,
    Role,
)
from tests.fixtures_cli import START_MS, CommandLine, FakeFleet, Printed

LAB, ADA = Principal("main", "site", "lab"), Principal("main", "client", "ada")
SITE: dict[str, Any] = {
    "holder": "site",
    "name": "lab",
    "state": "ACTIVE",
    "kind": "lab",
    "capabilities": ["cpu"],
    "devices": [],
    "most_leases": 0,
    "secret_digests": ["a" * 64],
}
PERSON: dict[str, Any] = {
    "holder": "person",
    "name": "ada",
    "state": "ACTIVE",
    "role": "observer",
    "secret_digests": ["b" * 64],
}
CREDENTIALS: list[dict[str, Any]] = [
    {"holder": "site", "name": "lab", "secret_digest": "a" * 64, "capabilities": ["cpu"], "role": None},
    {"holder": "site", "name": "lab", "secret_digest": "c" * 64, "capabilities": ["cpu"], "role": None},
]

OF_ADA: dict[str, Any] = {
    "holder": "person",
    "name": "ada",
    "secret_digest": "b" * 64,
    "capabilities": [],
    "role": "observer",
}


@pytest.fixture
def tenure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> CommandLine:
    rows: dict[str, list[dict[str, Any]]] = {
        "issue_site": [SITE],
        "issue_person": [PERSON],
        "add_credential": [SITE],
        "retire_credentials": [SITE],
        "revoke": [SITE | {"state": "REVOKED", "secret_digests": [], "released": 2}],
        "credentials": [CREDENTIALS[0], OF_ADA],
        "grant_site": [SITE | {"devices": ["laser"], "most_leases": 3}],
        "change_role": [PERSON],
        "sites": [{"site": "lab", "kind": "lab", "state": "ACTIVE", "capabilities": ["cpu"], "health": "ok"}],
        "clients": [{"person": "ada", "role": "observer", "state": "ACTIVE", "issued_at_ms": START_MS}],
    }
    return CommandLine(FakeFleet(rows=rows), capsys)


@pytest.fixture
def provisioner(tmp_path: Path) -> str:
    path = tmp_path / "provisioner.url"
    path.write_text("redis://tenure.main.provisioner:prov@h:7/1\n")
    path.chmod(0o600)
    return str(path)


def secret_of(url: str) -> str:
    found = urlsplit(url).password
    assert found
    return found


def asked(tenure: CommandLine) -> list[Any]:
    return [each for each in tenure.fleet.asked if not isinstance(each, Query)]


# --- issue ---------------------------------------------------------------------------------------


def test_a_site_gets_an_address_of_its_own_shown_once(tenure: CommandLine, provisioner: str) -> None:
    printed = tenure(
        "sites", "issue", "lab", "--kind", "lab", "--capability", "cpu", "--provisioner-url-file", provisioner
    )
    assert printed.code == 0, printed.err
    url = printed.out.strip()
    assert url.startswith("redis://tenure.main.site.lab:")
    assert url.endswith("@h:7/1")
    assert "shown only now" in printed.err
    (ask,) = asked(tenure)
    assert isinstance(ask, IssueSite)
    assert ask.secret_digest == sha256(secret_of(url).encode()).hexdigest()
    assert len(secret_of(url)) == 64


def test_what_was_granted_is_told(tenure: CommandLine, provisioner: str) -> None:
    tenure.fleet.rows["issue_site"] = [SITE | {"most_leases": 5}]
    more = ("--most-leases", "5", "--json", "--provisioner-url-file", provisioner)
    told = tenure("sites", "issue", "lab", "--capability", "cpu", *more).json()
    assert (told["name"], told["capabilities"], told["most_leases"]) == ("lab", ["cpu"], 5)


@pytest.mark.parametrize("command", ["sites issue a.b --capability cpu", "clients issue a.b", "sites revoke a.b"])
def test_a_name_that_does_not_fit_is_told_in_words(tenure: CommandLine, provisioner: str, command: str) -> None:
    printed = tenure(*command.split(), "--provisioner-url-file", provisioner)
    assert (printed.code, asked(tenure)) == (2, [])
    assert "name has 1 to " in printed.err
    assert "pattern" not in printed.err
    assert "see with --help what the command takes" in printed.err


def test_the_user_is_made_as_the_coordinator_has_it_on_record(tenure: CommandLine, provisioner: str) -> None:
    tenure("sites", "issue", "lab", "--capability", "cpu", "--capability", "gpu", "--provisioner-url-file", provisioner)
    grant = tenure.nodes.grants[LAB]
    assert grant.digests == ("a" * 64,)
    assert "cap:lab:cpu" in str(grant.rights)
    assert "cap:lab:gpu" not in str(grant.rights)


def test_a_person_gets_the_rights_of_the_role(tenure: CommandLine, provisioner: str) -> None:
    printed = tenure("clients", "issue", "ada", "--role", "observer", "--json", "--provisioner-url-file", provisioner)
    assert printed.json()["url"].startswith("redis://tenure.main.client.ada:")
    (ask,) = asked(tenure)
    assert isinstance(ask, IssuePerson)
    assert ask.role is Role.OBSERVER
    assert "stg:@ada" not in str(tenure.nodes.grants[ADA].rights)


def test_the_address_goes_into_a_file_of_its_owner(tenure: CommandLine, provisioner: str, tmp_path: Path) -> None:
    path = tmp_path / "lab.url"
    printed = _issue(tenure, provisioner, "--out", str(path))
    assert printed.code == 0, printed.err
    assert path.stat().st_mode & 0o777 == 0o600
    assert secret_of(path.read_text()) not in printed.out + printed.err
    assert str(path) in printed.out


def test_others_may_be_told_another_way_to_the_broker(tenure: CommandLine, provisioner: str) -> None:
    printed = _issue(tenure, provisioner, "--address", "rediss://broker.lab.example:6380?ssl_ca_certs=/etc/ca.pem")
    assert printed.out.strip().endswith("@broker.lab.example:6380?ssl_ca_certs=/etc/ca.pem")


def test_nothing_is_issued_when_the_file_is_there_already(
    tenure: CommandLine, provisioner: str, tmp_path: Path
) -> None:
    path = tmp_path / "lab.url"
    path.write_text("precious")
    printed = _issue(tenure, provisioner, "--out", str(path))
    assert (printed.code, path.read_text(), tenure.fleet.asked) == (2, "precious", [])


def test_nothing_is_issued_when_the_file_could_not_be_made(tenure: CommandLine, provisioner: str) -> None:
    printed = _issue(tenure, provisioner, "--out", "/nowhere/at/all/lab.url")
    assert (printed.code, tenure.fleet.asked) == (2, [])


def test_nothing_is_made_at_the_broker_when_the_coordinator_refuses(
    capsys: pytest.CaptureFixture[str], provisioner: str
) -> None:
    tenure = CommandLine(FakeFleet(error=NameTaken("there is a site lab already")), capsys)
    printed = _issue(tenure, provisioner)
    assert (printed.code, tenure.nodes.steps) == (2, [])


def test_a_broker_that_fails_after_the_record_says_how_to_go_on(
    tenure: CommandLine, provisioner: str, tmp_path: Path
) -> None:
    tenure.nodes.error = BrokerRefused("no such right")
    path = tmp_path / "lab.url"
    printed = _issue(tenure, provisioner, "--out", str(path))
    assert printed.code == 3
    assert "tenure sites rotate lab" in printed.err
    assert not path.exists()


def test_a_broker_that_forgets_is_told_of(tenure: CommandLine, provisioner: str) -> None:
    tenure.nodes.keeps = False
    assert "sites sync" in _issue(tenure, provisioner).err


def test_a_provisioner_file_that_others_can_read_is_refused(tenure: CommandLine, provisioner: str) -> None:
    Path(provisioner).chmod(0o644)
    printed = _issue(tenure, provisioner)
    assert printed.code == 2
    assert f"chmod 600 {provisioner}" in printed.err
    assert tenure.fleet.asked == []


def test_every_node_gets_the_user(tenure: CommandLine, provisioner: str, tmp_path: Path) -> None:
    other = tmp_path / "replica.url"
    other.write_text("redis://tenure.main.provisioner:prov@replica:7\n")
    other.chmod(0o600)
    _issue(tenure, provisioner, "--provisioner-url-file", str(other))
    assert [urlsplit(url).hostname for url in tenure.nodes.urls] == ["h", "replica"]


def test_a_name_that_could_be_a_pattern_is_wrong_use(tenure: CommandLine, provisioner: str) -> None:
    for name in ("la*b", "lab.x", "a:b", "x" * 33):
        printed = tenure("sites", "issue", name, "--capability", "cpu", "--provisioner-url-file", provisioner)
        assert printed.code == 2, name
        assert tenure.nodes.steps == []


# --- rotate --------------------------------------------------------------------------------------


def test_a_rotation_replaces_the_file_and_ends_nothing(tenure: CommandLine, provisioner: str, tmp_path: Path) -> None:
    path = tmp_path / "lab.url"
    path.write_text("old")
    printed = tenure("sites", "rotate", "lab", "--out", str(path), "--provisioner-url-file", provisioner)
    assert printed.code == 0, printed.err
    (ask,) = asked(tenure)
    assert isinstance(ask, AddCredential)
    assert ask.secret_digest == sha256(secret_of(path.read_text().strip()).encode()).hexdigest()
    assert tenure.nodes.steps == ["put tenure.main.site.lab"]


def test_finishing_a_rotation_cuts_whoever_came_with_an_old_secret(tenure: CommandLine, provisioner: str) -> None:
    printed = tenure("sites", "rotate", "lab", "--finish", "--provisioner-url-file", provisioner)
    assert printed.code == 0, printed.err
    assert isinstance(asked(tenure)[0], RetireCredentials)
    assert tenure.nodes.steps == ["put tenure.main.site.lab", "disconnect tenure.main.site.lab"]


@pytest.mark.parametrize("group", ["sites", "clients"])
@pytest.mark.parametrize("more", [("--out", "new.url"), ("--address", "redis://h:1")])
def test_finishing_a_rotation_takes_nothing_that_it_would_not_use(
    tenure: CommandLine, provisioner: str, group: str, more: tuple[str, str]
) -> None:
    printed = tenure(group, "rotate", "lab", "--finish", *more, "--provisioner-url-file", provisioner)
    assert (printed.code, asked(tenure), tenure.nodes.steps) == (2, [], [])
    assert "--finish makes no credential, and takes neither --out nor --address" in printed.err


# --- revoke --------------------------------------------------------------------------------------


def test_the_coordinator_hears_of_a_revocation_before_and_after_the_broker(
    tenure: CommandLine, provisioner: str
) -> None:
    printed = tenure("sites", "revoke", "lab", "--reason", "stolen", "--provisioner-url-file", provisioner)
    assert printed.code == 0, printed.err
    assert printed.out == "Site lab is revoked. 2 leases were released.\n"
    assert [(type(ask), ask.reason) for ask in asked(tenure)] == [(Revoke, "stolen")] * 2
    assert tenure.nodes.steps == ["drop tenure.main.site.lab"]


def test_one_lease_that_was_released_is_told_as_one(tenure: CommandLine, provisioner: str) -> None:
    tenure.fleet.rows["revoke"] = [SITE | {"state": "REVOKED", "released": 1}]
    printed = tenure("sites", "revoke", "lab", "--provisioner-url-file", provisioner)
    assert printed.out == "Site lab is revoked. 1 lease was released.\n"


def test_a_broker_that_cannot_be_reached_does_not_keep_the_coordinator_from_refusing(
    tenure: CommandLine, provisioner: str
) -> None:
    tenure.nodes.error = BrokerUnreachable("no connection to h:7")
    printed = tenure("clients", "revoke", "lab", "--provisioner-url-file", provisioner)
    assert printed.code == 3
    assert isinstance(asked(tenure)[0], Revoke)
    assert "is revoked and nothing of it is taken any more, but no connection to h:7" in printed.err
    assert "Run the same command again" in printed.err


# --- sync ----------------------------------------------------------------------------------------


def test_sync_makes_what_is_on_record_and_ends_what_is_not(tenure: CommandLine, provisioner: str) -> None:
    tenure.fleet.rows["credentials"] = CREDENTIALS
    tenure.nodes.there = {
        Principal("main", "site", "gone"),
        Principal("main", "site", "default"),
        Principal("main", "client", "gone"),
        Principal("main", "coordinator"),
        Principal("other", "site", "gone"),
    }
    printed = tenure("sites", "sync", "--json", "--provisioner-url-file", provisioner)
    assert printed.json() == [{"name": "lab", "step": "made"}, {"name": "gone", "step": "ended"}]
    assert tenure.nodes.grants[LAB].digests == ("a" * 64, "c" * 64)
    assert tenure.nodes.steps == ["put tenure.main.site.lab", "drop tenure.main.site.gone"]


def test_sync_of_one_leaves_the_others(tenure: CommandLine, provisioner: str) -> None:
    tenure.nodes.there = {Principal("main", "site", "gone")}
    printed = tenure("sites", "sync", "lab", "--provisioner-url-file", provisioner)
    assert printed.code == 0, printed.err
    assert tenure.nodes.steps == ["put tenure.main.site.lab"]
    assert tenure("sites", "sync", "nobody", "--provisioner-url-file", provisioner).code == 2


def test_a_record_that_did_not_fit_ends_nobody(tenure: CommandLine, provisioner: str) -> None:
    tenure.fleet.rows["credentials"] = CREDENTIALS * 5_000
    tenure.nodes.there = {Principal("main", "site", "gone")}
    printed = tenure("sites", "sync", "--provisioner-url-file", provisioner)
    assert (printed.code, tenure.nodes.steps) == (2, [])


def test_a_record_of_any_length_is_read_in_pages(tenure: CommandLine, provisioner: str) -> None:
    names = [f"s{number:05d}" for number in range(7_000)]
    rows = [row | {"name": name} for name in names for row in CREDENTIALS]
    tenure.fleet.rows["credentials"] = rows
    printed = tenure("sites", "sync", "--json", "--provisioner-url-file", provisioner)
    assert printed.code == 0, printed.err
    assert [row["name"] for row in printed.json()] == names
    assert {len(grant.digests) for grant in tenure.nodes.grants.values()} == {2}


# --- two at once -----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["rotate lab", "rotate lab --finish", "grant lab --capability cpu", "sync lab"])
def test_who_is_revoked_while_its_user_is_made_is_not_let_in_by_that(
    tenure: CommandLine, provisioner: str, command: str
) -> None:
    def revoked(fleet: FakeFleet) -> None:
        if LAB in tenure.nodes.there:
            fleet.rows["credentials"] = [OF_ADA]

    tenure.fleet.on_credentials = revoked
    printed = tenure("sites", *command.split(), "--provisioner-url-file", provisioner)
    assert tenure.nodes.there == set()
    assert tenure.nodes.steps == ["put tenure.main.site.lab", "drop tenure.main.site.lab"]
    if command == "sync lab":
        assert printed.out == "The user of site lab was ended.\n"
    else:
        assert (printed.code, printed.out, "was revoked meanwhile" in printed.err) == (2, "", True)


def test_a_secret_that_was_ended_while_a_user_is_made_is_not_good_by_that(
    tenure: CommandLine, provisioner: str
) -> None:
    tenure.fleet.rows["add_credential"] = [SITE | {"secret_digests": ["a" * 64, "c" * 64]}]
    tenure.fleet.rows["credentials"] = [CREDENTIALS[1]]
    assert tenure("sites", "rotate", "lab", "--provisioner-url-file", provisioner).code == 0
    assert tenure.nodes.grants[LAB].digests == ("c" * 64,)


# --- grants ----------------------------------------------------------------------------------------


def test_a_site_is_granted_something_else_and_its_user_with_it(tenure: CommandLine, provisioner: str) -> None:
    words = "--capability gpu --capability cpu --device laser --most-leases 3"
    printed = tenure("sites", "grant", "lab", *words.split(), "--provisioner-url-file", provisioner)
    assert printed.out == "Site lab is granted cpu with laser, and may hold 3 tasks at once.\n"
    assert asked(tenure) == [GrantSite(site="lab", capabilities=("gpu", "cpu"), devices=("laser",), most_leases=3)]
    assert tenure.nodes.steps == ["put tenure.main.site.lab"]
    tenure("sites", "grant", "lab", "--capability", "cpu", "--provisioner-url-file", provisioner)
    assert asked(tenure)[-1].most_leases is None


def test_a_site_is_issued_with_devices(tenure: CommandLine, provisioner: str) -> None:
    _issue(tenure, provisioner, "--device", "arm", "--device", "laser")
    assert asked(tenure)[0].devices == ("arm", "laser")


def test_a_person_is_given_another_role_and_its_user_with_it(tenure: CommandLine, provisioner: str) -> None:
    printed = tenure("clients", "role", "ada", "observer", "--provisioner-url-file", provisioner)
    assert printed.out == "ada is observer now.\n"
    assert asked(tenure) == [ChangeRole(person="ada", role=Role.OBSERVER)]
    assert tenure.nodes.steps == ["put tenure.main.client.ada"]
    assert tenure("clients", "role", "ada", "king", "--provisioner-url-file", provisioner).code == 2


def test_a_grant_that_the_broker_did_not_hear_of_says_how_to_go_on(tenure: CommandLine, provisioner: str) -> None:
    tenure.nodes.error = BrokerUnreachable("no connection to h:7")
    printed = tenure("sites", "grant", "lab", "--capability", "cpu", "--provisioner-url-file", provisioner)
    assert printed.code == 3
    assert "That is on record of site lab, but no connection to h:7" in printed.err
    assert "tenure sites sync lab" in printed.err


# --- lists ---------------------------------------------------------------------------------------


def test_lists_and_records(tenure: CommandLine) -> None:
    assert tenure("sites", "list").out.split()[:2] == ["SITE", "KIND"]
    assert "health" in tenure("sites", "show", "lab").out
    assert "ada" in tenure("clients", "list", "--role", "observer").out
    tenure.fleet.rows["clients"] = []
    printed = tenure("clients", "show", "ada")
    assert (printed.code, printed.err.startswith("tenure: there is no record of ada")) == (2, True)


def _issue(tenure: CommandLine, provisioner: str, *more: str) -> Printed:
    return tenure("sites", "issue", "lab", "--capability", "cpu", "--provisioner-url-file", provisioner, *more)
