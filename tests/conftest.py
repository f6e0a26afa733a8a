"""Marks each test with the level that its folder names, so that `pytest -m unit` and `pytest tests/unit` agree."""

import signal
from pathlib import Path

import pytest

LEVELS = frozenset({"unit", "contract", "property", "integration", "fault", "e2e"})


def pytest_configure() -> None:
    # A job in a shell's background ignores Ctrl-C, and so would every program that a test starts and then interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    root = Path(__file__).parent
    for item in items:
        if not item.path.is_relative_to(root):
            continue
        level = item.path.relative_to(root).parts[0]
        if level in LEVELS:
            item.add_marker(level)
