"""`tenure doctor` at a broker that lets in anybody: as bad without a provisioner's credential as with one."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tenure.cli import checks
from tests.fixtures_services import require_program
from tests.servers import KINDS, Server, launch


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Server]:
    running = launch(require_program(request.param), tmp_path)
    yield running
    running.stop()


def levels(url: str) -> list[str]:
    return [found.level for found in checks.broker(url) if found.about == "credentials"]


def test_a_broker_is_good_once_it_asks_for_a_credential(server: Server) -> None:
    assert levels(server.url) == ["bad"]
    server.admin("CONFIG", "SET", "requirepass", "word")
    assert levels(server.url.replace("//", "//:word@")) == ["ok"]
