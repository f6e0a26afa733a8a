"""A server of each kind that lets nobody in without a credential, for one test.

A level has it by importing `secured_broker` into its `conftest.py`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures_services import require_program
from tests.secured import SecuredBroker, launch_secured
from tests.servers import KINDS

_NOTHING_ELSE_HOLDS_BACK = ("--enable-debug-command", "yes", "--enable-module-command", "yes")
"""Commands that a server refuses everybody would say nothing about anybody's rights."""


@pytest.fixture(params=KINDS)
def secured_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SecuredBroker]:
    """Valkey, then Redis 7, with a coordinator and a provisioner; sites and people are made when they are asked for."""
    folder = tmp_path / "secured"
    folder.mkdir(mode=0o700)
    secured = launch_secured(require_program(request.param), folder, *_NOTHING_ELSE_HOLDS_BACK)
    yield secured
    secured.server.stop()
