"""`tenure doctor` on a worker's host: a site's credential asks the coordinator nothing, and a good host is good."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.broker.keys import Keys
from tenure.errors import BrokerRefused
from tests.fixtures_cli import CommandLine, FakeFleet
from tests.fixtures_services import require_program
from tests.secured import SecuredBroker, launch_secured
from tests.servers import KINDS

Rows = list[dict[str, Any]]


class Host:
    """A host that has the credential of site `imaging`, which was granted `gpu`."""

    def __init__(self, secured: SecuredBroker, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.secured = secured
        self.file = folder / "imaging.url"
        self.file.write_text(secured.site_url("imaging", ("gpu",)) + "\n")
        self.file.chmod(0o600)
        # Whoever asks the coordinator here is refused, as the broker would.
        self._tenure = CommandLine(FakeFleet(error=BrokerRefused("a site may not ask")), capsys)

    def doctor(self, *more: str) -> tuple[int, Rows]:
        printed = self._tenure("doctor", "--json", "--broker-url-file", str(self.file), *more)
        return printed.code, printed.json()


@pytest.fixture(params=KINDS)
def host(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Host]:
    """At a broker to which a coordinator has come."""
    secured = launch_secured(require_program(request.param), tmp_path)
    secured.admin("SET", Keys("main").incarnation(), "main 1 run")
    yield Host(secured, tmp_path, capsys)
    secured.server.stop()


def levels(found: Rows, about: str) -> list[str]:
    return [row["level"] for row in found if row["about"] == about]


def test_a_host_on_which_nothing_is_wrong_is_in_order(host: Host) -> None:
    code, found = host.doctor("--capability", "gpu")
    assert (code, {row["level"] for row in found}) == (0, {"ok"})
    assert levels(found, "grants") == ["ok"]
    (told,) = [row["text"] for row in found if row["about"] == "site"]
    assert "site imaging" in told
    assert "were not looked at" in told


def test_a_capability_that_was_not_granted_is_bad(host: Host) -> None:
    code, found = host.doctor("--capability", "gpu", "--capability", "microscope")
    assert (code, levels(found, "grants")) == (3, ["ok", "bad"])
    assert any("tenure sites show imaging" in row["remedy"] for row in found)


def test_a_broker_that_no_coordinator_has_come_to_is_bad(host: Host) -> None:
    host.secured.admin("DEL", Keys("main").incarnation())
    code, found = host.doctor()
    assert (code, levels(found, "coordinator")) == (3, ["bad"])


def test_users_are_not_compared_and_that_is_said(host: Host) -> None:
    code, found = host.doctor("--provisioner-url-file", str(host.file))
    assert code == 0
    assert [row["remedy"] for row in found if row["level"] == "warn"] == ["Give the --broker-url-file of an operator"]


def test_a_site_that_is_let_in_no_more_is_bad(host: Host) -> None:
    host.file.write_text(host.file.read_text().replace("@", "x@"))
    code, found = host.doctor("--capability", "gpu")
    assert (code, levels(found, "site")) == (3, ["bad", "ok"])
