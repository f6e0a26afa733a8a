"""The limit of one file's size is about what a program writes, not about what it was given."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.clock import SystemClock
from tenure.workers.limits import Watch

LIMIT = 1_000


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    for name in ("inputs/deep", "secrets", "outputs", "checkpoint"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("inputs/big", "inputs/deep/big", "secrets/key", "task.json"):
        (tmp_path / name).write_bytes(bytes(2 * LIMIT))
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def breach(folder: int, *, failed: bool) -> str:
    """Which limit is found broken, while it runs or at its end."""
    watch = Watch({"file": LIMIT}, folder, SystemClock(), lambda: 0)
    watch.look()
    watch.finish(failed=failed)
    return watch.breach


@pytest.mark.parametrize("failed", [False, True])
def test_large_inputs_break_no_limit_of_files(folder: int, *, failed: bool) -> None:
    assert breach(folder, failed=failed) == ""


@pytest.mark.parametrize("name", ["big", "outputs/inputs", "checkpoint/big", "outputs/task.json"])
def test_what_the_program_writes_does(folder: int, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(bytes(LIMIT + 1))
    assert breach(folder, failed=False) == "file"
