"""The parent's journal: what is in it after an agent's death, whatever the last thing was that it wrote."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.workers.launch_inputs import Journaled
from tenure.workers.launch_journal import LaunchJournal
from tests.fixtures_launch_core import handle_of
from tests.stand_in import order

FIRST, SECOND = order("0" * 25 + "1", 1, memory_bytes=5, resources=(("gpu", 1),)), order("0" * 25 + "2", 2)
KEYS = tuple((each.ticket.task_id, each.ticket.fence) for each in (FIRST, SECOND))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "launches.jsonl"


@pytest.fixture
def journal(path: Path) -> Iterator[LaunchJournal]:
    journal = LaunchJournal(path)
    yield journal
    journal.close()


def found(path: Path) -> list[Journaled]:
    """What the next agent finds."""
    journal = LaunchJournal(path)
    try:
        return journal.load()
    finally:
        journal.close()


def test_a_launch_is_found_again_with_all_that_it_needs(journal: LaunchJournal, path: Path) -> None:
    journal.order(KEYS[0], FIRST)
    journal.order(KEYS[1], SECOND)
    journal.handle(KEYS[1], handle_of(KEYS[1]))

    wanted = [Journaled(FIRST), Journaled(SECOND, handle_of(KEYS[1]))]
    assert found(path) == wanted
    assert found(path) == wanted
    assert path.stat().st_mode & 0o077 == 0


def test_what_is_over_is_not_found(journal: LaunchJournal, path: Path) -> None:
    journal.order(KEYS[0], FIRST)
    journal.order(KEYS[1], SECOND)
    journal.over(KEYS[0])
    assert found(path) == [Journaled(SECOND)]


def test_the_file_is_emptied_when_nothing_is_left(journal: LaunchJournal, path: Path) -> None:
    journal.order(KEYS[0], FIRST)
    journal.over(KEYS[0])
    assert path.read_bytes() == b""
    journal.over(KEYS[1])


def test_ordering_again_writes_nothing(journal: LaunchJournal, path: Path) -> None:
    journal.order(KEYS[0], FIRST)
    size = path.stat().st_size
    journal.order(KEYS[0], FIRST)
    assert path.stat().st_size == size


@pytest.mark.parametrize("cut", [1, 20, 200])
def test_a_torn_last_line_costs_that_line_alone(
    journal: LaunchJournal, path: Path, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    journal.order(KEYS[0], FIRST)
    journal.order(KEYS[1], SECOND)
    path.write_bytes(path.read_bytes()[: -1 - cut])
    with caplog.at_level(logging.WARNING):
        assert found(path) == [Journaled(FIRST)]
    assert "skipped" in caplog.text


def test_a_line_after_a_torn_one_is_read(journal: LaunchJournal, path: Path) -> None:
    with path.open("ab") as file:
        file.write(b'{"kind":"order","tick')
    journal.order(KEYS[0], FIRST)
    assert found(path) == [Journaled(FIRST)]


def test_rubbish_is_skipped(journal: LaunchJournal, path: Path) -> None:
    path.write_bytes(b"\x00\xff\n{}\n" + b'{"kind":"handle","task_id":"x"}\n' + b"[" * 100_000 + b"\n")
    journal.order(KEYS[0], FIRST)
    assert found(path) == [Journaled(FIRST)]


def test_the_next_agent_writes_on(path: Path) -> None:
    first = LaunchJournal(path)
    first.order(KEYS[0], FIRST)
    first.close()
    second = LaunchJournal(path)
    assert second.load() == [Journaled(FIRST)]
    second.handle(KEYS[0], handle_of(KEYS[0]))
    second.order(KEYS[1], SECOND)
    second.close()
    assert found(path) == [Journaled(FIRST, handle_of(KEYS[0])), Journaled(SECOND)]


def test_a_handle_of_nothing_is_nothing(journal: LaunchJournal, path: Path) -> None:
    journal.handle(KEYS[0], handle_of(KEYS[0]))
    assert found(path) == []
