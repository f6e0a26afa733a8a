"""`tenure doctor` with a provisioner's credential: every way in that is on no record is bad, and says what mends it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tenure.broker.acl import Grant, Rights, coordinator_grant, person_grant, site_grant
from tenure.broker.principals import Principal
from tenure.cli import acl_checks
from tenure.cli.checks import Finding
from tenure.cli.desk import Desk
from tenure.errors import BrokerUnreachable
from tenure.protocol.principal_messages import Role
from tests.fixtures_cli import CommandLine, FakeFleet, FakeNodes, user_of

A, B = "a" * 64, "b" * 64
LAB, ADA = site_grant("main", "lab", ["cpu"], [A]), person_grant("main", "ada", Role.SUBMITTER, [B])
COORDINATOR = coordinator_grant("main", [A])
CREDENTIALS: dict[str, list[dict[str, Any]]] = {
    "site": [{"holder": "site", "name": "lab", "secret_digest": A, "capabilities": ["cpu"], "role": None}],
    "person": [{"holder": "person", "name": "ada", "secret_digest": B, "capabilities": [], "role": "submitter"}],
}


class Fleet(FakeFleet):
    """Has the two credentials on record."""

    def _rows(self, name: str, request: Any) -> list[dict[str, Any]]:
        return CREDENTIALS[dict(request.where)["holder"]] if name == "credentials" else super()._rows(name, request)


@pytest.fixture
def tenure(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    tenure = CommandLine(Fleet(), capsys)
    for grant in (LAB, ADA, COORDINATOR):
        let_in(tenure.nodes, grant)
    return tenure


def let_in(nodes: FakeNodes, grant: Grant) -> None:
    nodes.there.add(grant.principal)
    nodes.have[grant.principal.user] = user_of(grant)


def change(nodes: FakeNodes, grant: Grant, **changes: Any) -> None:
    nodes.have[grant.principal.user] = replace(nodes.have[grant.principal.user], **changes)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "provisioner.url"
    path.write_text("redis://p:s@h:1\n")
    path.chmod(0o600)
    return path


def found(tenure: CommandLine, path: Path) -> list[Finding]:
    with tenure.session() as session, Desk(session, {}) as desk:
        return list(acl_checks.users(desk, [path]))


def bad(tenure: CommandLine, path: Path) -> list[tuple[str, str]]:
    return [(each.text, each.remedy) for each in found(tenure, path) if each.level == "bad"]


def test_a_broker_that_has_what_is_on_record_is_in_order(tenure: CommandLine, path: Path) -> None:
    assert [each.level for each in found(tenure, path)] == ["ok"]


def test_nothing_is_looked_at_without_a_credential(tenure: CommandLine) -> None:
    with tenure.session() as session, Desk(session, {}) as desk:
        assert list(acl_checks.users(desk, [])) == []


@pytest.mark.parametrize(("free", "level"), [(True, "bad"), (False, "warn")])
def test_the_user_default_is_told_of(tenure: CommandLine, path: Path, *, free: bool, level: str) -> None:
    tenure.nodes.have["default"] = replace(user_of(LAB), needs_no_secret=free)
    assert [each.level for each in found(tenure, path)] == ([level] if free else [level, "ok"])
    tenure.nodes.have["default"] = replace(tenure.nodes.have["default"], is_on=False)
    assert [each.level for each in found(tenure, path)] == ["ok"]


def test_whoever_is_not_on_record_is_a_stranger(tenure: CommandLine, path: Path) -> None:
    let_in(tenure.nodes, site_grant("main", "gone", ["cpu"], [B]))
    let_in(tenure.nodes, site_grant("main", "default", ["cpu"], [B]))
    let_in(tenure.nodes, site_grant("other", "gone", ["cpu"], [B]))
    assert bad(tenure, path) == [
        ("the broker lets in tenure.main.site.gone, who is not on record or was revoked", "tenure sites sync gone")
    ]


def test_a_missing_user_and_one_that_is_off_keep_somebody_out(tenure: CommandLine, path: Path) -> None:
    change(tenure.nodes, LAB, is_on=False)
    del tenure.nodes.have[ADA.principal.user]
    assert bad(tenure, path) == [
        ("h:1 does not let in tenure.main.site.lab", "tenure sites sync lab"),
        ("h:1 does not let in tenure.main.client.ada", "tenure clients sync ada"),
    ]


def test_secrets_are_those_on_record(tenure: CommandLine, path: Path) -> None:
    change(tenure.nodes, LAB, digests=frozenset({A, B}))
    change(tenure.nodes, ADA, digests=frozenset())
    texts = [text for text, _ in bad(tenure, path)]
    assert texts == [
        "h:1 lets in tenure.main.site.lab with a secret that is not on record",
        "h:1 does not know every secret of tenure.main.client.ada",
    ]
    change(tenure.nodes, LAB, digests=frozenset({A}), needs_no_secret=True)
    assert "not on record" in bad(tenure, path)[0][0]


@pytest.mark.parametrize("grant", [LAB, ADA, COORDINATOR])
@pytest.mark.parametrize("changes", [{"rights": Rights(("ping", "keys"))}, {"has_more": True}])
def test_rights_are_those_that_follow_from_the_record(
    tenure: CommandLine, path: Path, grant: Grant, changes: dict[str, Any]
) -> None:
    change(tenure.nodes, grant, **changes)
    ((text, _),) = bad(tenure, path)
    assert text == f"{grant.principal.user} may do something else at h:1 than it should"


def test_a_replica_that_was_not_named_is_told_of(tenure: CommandLine, path: Path) -> None:
    tenure.nodes.feeds = 1
    assert [each.level for each in found(tenure, path)] == ["warn", "ok"]


def test_a_broker_that_refuses_is_a_finding_and_no_crash(tenure: CommandLine, path: Path) -> None:
    tenure.nodes.deaf = BrokerUnreachable("no connection to h:1")
    assert bad(tenure, path) == [("the broker's users cannot be looked at: no connection to h:1", "")]


def test_the_principals_of_another_namespace_are_nobodys_business(tenure: CommandLine, path: Path) -> None:
    tenure.nodes.there.add(Principal("other", "client", "eve"))
    assert bad(tenure, path) == []
