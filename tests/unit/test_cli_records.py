"""Lists and stories: aligned plain text in a pipe, JSON on request, one line for what is wrong."""

import json
from typing import Any

import pytest

from tenure.errors import CoordinatorUnreachable, DirectiveDecided
from tenure.protocol.cancellation_messages import CancelMany
from tenure.protocol.client_messages import Assign, Cancel, Decide, Query, RegisterWorker
from tests.fixtures_cli import START_MS, CommandLine, FakeFleet, task_id

TASK = task_id(1)
ROWS: dict[str, list[dict[str, Any]]] = {
    "tasks": [
        {
            "task_id": TASK,
            "state": "RUNNING",
            "attempt": 1,
            "capability": "cpu",
            "run": "r",
            "submitted_at_ms": START_MS,
        }
    ],
    "workers": [
        {"worker_id": "w1", "state": "ACTIVE", "slots": 2, "capabilities": ["cpu", "gpu"], "seen_at_ms": START_MS}
    ],
    "leases": [{"task_id": TASK, "fence": 7, "attempt": 1, "state": "ACTIVE", "worker_id": "w1"}],
    "directives": [{"directive_id": "d1", "task_id": TASK, "attempt": 1, "next_attempt": 2, "state": "PENDING"}],
    "quarantine": [{"quarantine_id": "q1", "task_id": TASK, "reason": "stale_fence", "received_at_ms": START_MS}],
    "sites": [{"site": "lab", "kind": "lab", "state": "ACTIVE", "health": "ok", "capabilities": ["cpu"]}],
    "clients": [{"person": "ada", "role": "operator", "state": "ACTIVE", "issued_at_ms": START_MS}],
    "explain": [
        {"at_ms": START_MS, "kind": "submitted", "text": "Submitted by ann."},
        {"at_ms": None, "kind": "now", "text": "It is RUNNING."},
    ],
    "decide": [{"directive_id": "d1", "state": "APPROVED"}],
    "cancel": [{"task_id": TASK, "state": "CANCELLING"}],
    "cancel_many": [{"cancellation_id": 3, "state": "OPEN", "cancelled": 0, "stopping": 0}],
    "cancellations": [{"cancellation_id": 3, "state": "DONE", "cancelled": 41, "stopping": 1}],
    "sweep": [{"expired": 0}],
    "assign": [{"task_id": TASK, "worker_id": "w1", "attempt": 1, "fence": 1}],
    "register_worker": [{"worker_id": "w9", "state": "ACTIVE"}],
    "beat_worker": [{"worker_id": "w9", "state": "ACTIVE"}],
    "drain_worker": [{"worker_id": "w9", "state": "DRAINING"}],
}
COMMANDS = [
    "tasks list",
    "tasks list --state running --capability cpu --run r --limit 5",
    f"tasks show {TASK}",
    "workers list",
    "workers list --state active",
    "workers list --executors",
    "workers show w1",
    "workers register w9 --capability gpu --slots 2 --label room=b12 --resource gb=8",
    "workers heartbeat w9",
    f"workers assign {TASK} w1",
    "workers sweep",
    "workers drain w9",
    "workers lease w1",
    f"workers lease {TASK}",
    "leases list --state active --worker w1",
    f"leases show {TASK}",
    f"directives list --task {TASK}",
    "directives show d1",
    "directives approve d1 --note fine",
    "directives deny --all",
    "sites list",
    "sites list --state active --kind lab",
    "sites show lab",
    "clients list --state active --role operator",
    "clients show ada",
    "quarantine list --reason stale_fence",
    "quarantine show q1",
    f"explain {TASK}",
    f"cancel {TASK} --reason because",
    "cancel --run r",
    "cancel --all",
    "cancel --list",
]


@pytest.fixture
def tenure(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(FakeFleet(rows=dict(ROWS)), capsys)


@pytest.mark.parametrize("command", COMMANDS)
def test_plain_text_has_no_colours_and_no_boxes(tenure: CommandLine, command: str) -> None:
    printed = tenure(*command.split())
    assert printed.code == 0, printed.err
    assert printed.out.strip()
    assert "\x1b" not in printed.out
    assert all(character not in printed.out for character in "─│┌━┃")


@pytest.mark.parametrize("command", COMMANDS)
def test_json_is_valid_everywhere(tenure: CommandLine, command: str) -> None:
    printed = tenure(*command.split(), "--json")
    assert printed.code == 0, printed.err
    assert printed.json()
    assert not printed.err


@pytest.mark.parametrize("command", COMMANDS)
def test_no_coordinator_is_one_line_and_code_3(capsys: pytest.CaptureFixture[str], command: str) -> None:
    fleet = FakeFleet(error=CoordinatorUnreachable("no coordinator answered within 10 s", "Start it"))
    printed = CommandLine(fleet, capsys)(*command.split())
    assert (printed.code, printed.out) == (3, "")
    assert printed.err == "tenure: no coordinator answered within 10 s. Start it.\n"


def test_errors_are_objects_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    fleet = FakeFleet(error=DirectiveDecided("d1 is APPROVED already"))
    printed = CommandLine(fleet, capsys)("directives", "deny", "d1", "--json")
    assert printed.code == 2
    assert json.loads(printed.err)["error"] == {
        "code": "directive_decided",
        "message": "d1 is APPROVED already",
        "remedy": "",
    }


def test_lists_are_aligned_and_say_what_they_show(tenure: CommandLine) -> None:
    head, row = tenure("workers", "list").out.splitlines()
    assert head.split() == ["WORKER", "STATE", "SITE", "SLOTS", "HELD", "CAPABILITIES", "HOST", "PID", "SEEN"]
    assert row.index("ACTIVE") == head.index("STATE")
    assert "cpu, gpu" in row


def test_an_empty_list_says_so_and_is_an_empty_array(capsys: pytest.CaptureFixture[str]) -> None:
    tenure = CommandLine(FakeFleet(), capsys)
    assert tenure("tasks", "list").out == "There are no tasks.\n"
    assert tenure("tasks", "list", "--json").json() == []


def test_a_full_list_says_that_there_may_be_more(tenure: CommandLine) -> None:
    assert "--limit" in tenure("tasks", "list", "--limit", "1").err


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("tasks show abc", "is not a task id"),
        ("explain 01J", "is not a task id"),
        ("tasks list --state broken", "--state"),
        ("tasks list --limit 0", "--limit"),
        ("workers register", "WORKER_ID"),
        ("workers register w --label x", "key=value"),
        ("workers register w --resource gb=many", "whole number"),
        ("workers register bad/name", "worker_id"),
        ("directives approve", "say which directives"),
        ("directives approve d1 --all", "say which directives"),
        ("cancel", "say which tasks"),
        (f"cancel {TASK} --run r", "in one way only"),
        ("cancel --capability cpu --all", "in one way only"),
        (f"cancel --all {TASK}", "in one way only"),
        ("cancel --run no/name", "run"),
        ("cancel --list --run r", "cancels nothing"),
        ("nonsense", "nonsense"),
        ("tasks list --nonsense", "--nonsense"),
        ("tasks list --broker-url redis://:secret@h:1", "password"),
    ],
)
def test_wrong_use_is_one_line_and_code_2(tenure: CommandLine, command: str, words: str) -> None:
    printed = tenure(*command.split())
    assert printed.code == 2
    assert printed.err.startswith("tenure: ")
    assert printed.err.count("\n") == 1
    assert words in printed.err
    assert "secret" not in printed.err
    assert json.loads(tenure(*command.split(), "--json").err)["error"]["message"]


@pytest.mark.parametrize("command", [f"tasks show {task_id(9)}", "workers show w0", "directives show d0"])
def test_an_unknown_record_is_said_to_be_unknown(capsys: pytest.CaptureFixture[str], command: str) -> None:
    printed = CommandLine(FakeFleet(), capsys)(*command.split())
    assert printed.code == 2
    assert "there is no record of" in printed.err


def test_filters_reach_the_coordinator(tenure: CommandLine) -> None:
    tenure("tasks", "list", "--state", "lost", "--run", "r", "--limit", "7")
    (asked,) = tenure.fleet.asked
    assert asked == Query(what="tasks", where=(("state", "LOST"), ("run", "r")), limit=7)


def test_steps_reach_the_coordinator(tenure: CommandLine) -> None:
    tenure("directives", "approve", "--all")
    tenure("workers", "assign", TASK.lower(), "w1")
    tenure("workers", "register", "w9", "--capability", "gpu", "--label", "a=b=c", "--resource", "gb=8")
    tenure("cancel", TASK, "--reason", "why")
    asked = [ask for ask in tenure.fleet.asked if not isinstance(ask, Query)]
    assert asked == [
        Decide(directives=("d1",), approve=True),
        Assign(task_id=TASK, worker_id="w1"),
        RegisterWorker(worker_id="w9", capabilities=("gpu",), labels=(("a", "b=c"),), resources=(("gb", 8),)),
        Cancel(task_ids=(TASK,), reason="why"),
    ]


def test_a_decision_about_a_task_names_the_directive_that_waits_now(tenure: CommandLine) -> None:
    """Repeated, it must not be about an attempt that was lost since."""
    older = {"directive_id": "d0", "task_id": TASK, "next_attempt": 1, "state": "DENIED"}
    tenure.fleet.rows["directives"] = [older, *tenure.fleet.rows["directives"]]
    tenure("directives", "deny", TASK, "d0", "--note", "too late")
    assert tenure.fleet.asked[-1] == Decide(directives=("d1", "d0"), approve=False, note="too late")


def test_where_no_directive_of_a_task_waits_nothing_is_asked_nor_called_approved(tenure: CommandLine) -> None:
    """Asked about the newest, the coordinator could take it for a repeated request and call that one APPROVED."""
    decided = {"directive_id": "d1", "task_id": TASK, "next_attempt": 2, "state": "APPROVED"}
    tenure.fleet.rows["directives"] = [decided]
    printed = tenure("directives", "approve", TASK)
    assert (printed.code, "d1 is APPROVED already" in printed.err) == (2, True)
    assert not [ask for ask in tenure.fleet.asked if isinstance(ask, Decide)]


def test_what_has_no_directive_is_not_decided_about_however_late_it_gets_one(tenure: CommandLine) -> None:
    """The request is not even sent: repeated over a restart, it might allow an attempt that was lost since."""
    tenure.fleet.rows["directives"] = []
    printed = tenure("directives", "approve", TASK)
    assert (printed.code, "waits for a decision" in printed.err) == (2, True)
    assert not [ask for ask in tenure.fleet.asked if isinstance(ask, Decide)]


def test_cancelling_many_is_one_request_and_tells_the_numbers_at_its_end(tenure: CommandLine) -> None:
    printed = tenure("cancel", "--run", "r", "--capability", "cpu", "--campaign", "c", "--reason", "why")
    assert printed.out == (
        "41 tasks were cancelled. 1 is told to stop, and is CANCELLING until the end is proved: "
        "`tenure tasks list --state cancelling`.\n"
    )
    assert tenure.fleet.asked == [
        CancelMany(run="r", capability="cpu", campaign="c", reason="why"),
        Query(what="cancellations", where=(("cancellation_id", "3"),), limit=1),
    ]


def test_requests_to_cancel_can_be_looked_at_again(tenure: CommandLine) -> None:
    row = {"cancellation_id": 3, "state": "OPEN", "run": "r", "cancelled": 40, "stopping": 2, "asked_by": "ada"}
    tenure.fleet.rows["cancellations"] = [row | {"campaign": None, "asked_at_ms": START_MS, "ended_at_ms": None}]
    heading, line = tenure("cancel", "--list").out.splitlines()
    assert heading.startswith("REQUEST  STATE  RUN")
    assert line.split()[:8] == ["3", "OPEN", "r", "-", "-", "-", "40", "2"]
    assert tenure.fleet.asked == [Query(what="cancellations", limit=1_000)]
    assert tenure("cancel", "--list", "--json").json()[0]["cancelled"] == 40


def test_a_request_that_fits_nothing_says_so(tenure: CommandLine) -> None:
    tenure.fleet.rows["cancellations"] = [{"cancellation_id": 3, "state": "DONE", "cancelled": 0, "stopping": 0}]
    printed = tenure("cancel", "--run", "r")
    assert (printed.code, printed.out) == (0, "0 tasks were cancelled.\n")
    assert printed.err.startswith("Nothing that you may cancel and that has not ended fits this")


def test_a_story_is_told_in_order_with_times(tenure: CommandLine) -> None:
    lines = tenure("explain", TASK).out.splitlines()
    assert TASK in lines[0]
    assert lines[1].endswith("Submitted by ann.")
    assert lines[2].strip() == "It is RUNNING."
    assert tenure("explain", TASK, "--json").json()["story"][0]["kind"] == "submitted"
