"""`tenure run-assignment`: what it takes for a ticket, and what its exit code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure.cli.commands import tenure as command_line
from tenure.cli.execution import ExecutionForm
from tenure.cli.run_assignment import RunForm, conclusion, executor_name, read_ticket
from tenure.errors import UsageError
from tenure.protocol.launch import LaunchTicket
from tenure.testing import SeededEntropy
from tests.fixtures_cli import CommandLine, FakeFleet

TICKET = LaunchTicket(
    namespace="main",
    site="default",
    parent="p",
    capability="default",
    entry="1-2",
    world="main",
    run="r",
    task_id="0" * 26,
    attempt=1,
    fence=1,
    digest="a" * 64,
    ttl_ms=30_000,
)


@pytest.fixture
def tenure(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(FakeFleet(), capsys)


def form(ticket: str | None = None, ticket_file: Path | None = None) -> RunForm:
    return RunForm(ticket, ticket_file, "2m", ExecutionForm())


def test_a_ticket_is_taken_as_an_argument_or_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "ticket.json"
    file.write_text(f"{TICKET.text()}\n")
    assert read_ticket(form(TICKET.text())) == TICKET
    assert read_ticket(form(ticket_file=file)) == TICKET


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("", "Invalid JSON"),
        ("{}", "namespace"),
        (TICKET.text().replace('"fence":1', '"fence":0'), "fence"),
        (TICKET.text().replace("{", '{"secret":1,', 1), "does not belong there"),
        (TICKET.text() + " " * 2_000, "over the limit"),
    ],
)
def test_a_ticket_that_cannot_be_read_is_one_line(tenure: CommandLine, given: str, text: str) -> None:
    printed = tenure("run-assignment", "--ticket", given)
    assert printed.code == 2
    assert printed.err.startswith("tenure: the launch ticket cannot be used: ")
    assert text in printed.err
    assert printed.err.count("\n") == 1


def test_a_ticket_is_needed_once(tenure: CommandLine, tmp_path: Path) -> None:
    assert tenure("run-assignment").code == 2
    assert tenure("run-assignment", "--ticket", "{}", "--ticket-file", str(tmp_path / "x")).code == 2
    missing = tenure("run-assignment", "--ticket-file", str(tmp_path / "x"))
    assert (missing.code, missing.err) == (2, f"tenure: {tmp_path / 'x'}: No such file or directory.\n")


def test_a_wrong_patience_is_one_line(tenure: CommandLine) -> None:
    printed = tenure("run-assignment", "--ticket", TICKET.text(), "--patience", "soon")
    assert printed.code == 2
    assert "--patience" in printed.err


def test_a_name_shows_the_parent_and_is_a_workers_id() -> None:
    entropy = SeededEntropy()
    first, second = executor_name("p" * 64, entropy), executor_name("p" * 64, entropy)
    assert first != second
    assert first.startswith("p" * 48 + ".x")
    assert len(first) <= 64


@pytest.mark.parametrize(
    ("counts", "code"),
    [
        ({"withdrawn": 1}, 0),
        ({"refused": 1}, 0),
        ({"finished": 1, "accepted": 1}, 0),
        ({"finished": 1, "rejected": 1}, 0),
        ({"released": 1, "duplicate": 1}, 0),
        ({"released": 1, "accepted": 1}, 0),
        ({"finished": 1}, 3),
        ({"released": 1}, 3),
        ({"unreadable": 1}, 3),
        ({}, 3),
    ],
)
def test_the_exit_code_says_whether_anything_is_left_to_do_here(counts: dict[str, int], code: int) -> None:
    assert conclusion(counts)[0] == code


def test_the_help_does_not_list_it_and_explains_it(tenure: CommandLine) -> None:
    assert "run-assignment" in command_line.commands
    assert "run-assignment" not in tenure("--help").out
    assert "--ticket" in tenure("run-assignment", "--help").out


def test_an_unreadable_ticket_is_an_error_of_use() -> None:
    with pytest.raises(UsageError, match="launch ticket"):
        read_ticket(form("no"))
