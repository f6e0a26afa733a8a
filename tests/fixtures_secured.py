"""A server of each kind that lets nobody in without a credential, for one test.

Ask for it with `from tests.fixtures_secured import secured_broker` in the `conftest.py` of a level.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures_services import require_program
from tests.secured import SecuredBroker, launch_secured
from tests.servers import KINDS


@pytest.fixture(params=KINDS)
def secured_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SecuredBroker]:
    """Valkey, then Redis 7, with a coordinator and a provisioner; sites and people are made when they are asked for."""
    folder = tmp_path / "secured"
    folder.mkdir(mode=0o700)
    secured = launch_secured(require_program(request.param), folder)
    yield secured
    secured.server.stop()
