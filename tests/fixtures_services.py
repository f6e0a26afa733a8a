"""What a test needs of the machine: without it the test is skipped at home and fails where CI=true."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

from tests.servers import program_of


def unavailable(what: str) -> NoReturn:
    """End the test because the machine lacks something."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what}; with CI=true that is a failure")
    pytest.skip(what)


def require_program(kind: str) -> str:
    """The server program of that kind."""
    return program_of(kind) or unavailable(f"no {kind} server is installed")
