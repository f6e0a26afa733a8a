"""Executors as real processes on a real broker with a real coordinator: each runs one assignment, once, and ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import tenure
from tenure.client.handle import Handle
from tenure.errors import TaskCancelled, TaskFailed
from tenure.protocol.client_messages import Query
from tests.fixtures_e2e import gone
from tests.fixtures_executor import Executors, Parent, launching
from tests.fixtures_fleet import HANDLERS, Fleet, open_fleet
from tests.fixtures_worker import HANDLERS as MORE_HANDLERS
from tests.waiting import wait_until

Scene = tuple[Parent, Executors]
LEAVE_A_FILE = "from pathlib import Path; Path('outputs/a.txt').write_text('left'); print('done')"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """A broker, and a coordinator whose store is a folder."""
    store = tmp_path / "store"
    store.mkdir()

    def prepare(fleet: Fleet) -> None:
        fleet.env["TENURE_ARTIFACTS"] = str(store)

    with open_fleet(tmp_path, (), prepare=prepare) as fleet:
        yield fleet


@pytest.fixture
def scene(fleet: Fleet, tmp_path: Path) -> Iterator[Scene]:
    with launching(fleet, tmp_path) as scene:
        yield scene


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    return tmp_path / "marks"


def starts(marks: Path) -> int:
    """How many times the handler was run."""
    return sum(line.startswith("start") for line in marks.read_text().splitlines()) if marks.exists() else 0


def held(marks: Path) -> Path:
    """Let what leaves these marks wait until the file is gone."""
    hold = marks.with_name(f"{marks.name}.hold")
    hold.touch()
    return hold


def lease(fleet: Fleet, handle: Handle[Any]) -> dict[str, Any]:
    """The newest lease of the task, as it is on record."""
    rows = fleet.client.ask(Query(what="leases", where=(("task_id", handle.task_id),))).rows
    return dict(max(rows, key=lambda row: int(row["fence"])))


# --- what becomes of the task -----------------------------------------------------------------------------------------


def test_an_executor_runs_its_assignment_and_leaves_nothing(fleet: Fleet, scene: Scene, marks: Path) -> None:
    parent, executors = scene
    handle = fleet.client.submit(f"{HANDLERS}:work", str(marks), 7, 0.0)
    assert executors.run(parent.take()) == 0
    assert handle.result(10) == 7
    assert starts(marks) == 1
    assert not executors.left()
    assert lease(fleet, handle)["worker_id"].startswith("parent.x")
    workers = [row["worker_id"] for row in fleet.client.ask(Query(what="workers")).rows]
    assert workers == ["parent"]
    wait_until(lambda: not fleet.server.admin_list("KEYS", "*:parent.x*"), "the broker holds nothing of the executor")


def test_what_was_directed_to_the_parent_is_found_on_its_own_stream(fleet: Fleet, scene: Scene) -> None:
    parent, executors = scene
    handle = fleet.client.using(resources={"gpu": 1}).submit(f"{HANDLERS}:count", 3)
    ticket = parent.take()
    assert ticket.is_directed
    assert executors.call("--ticket", "-", "--allow", HANDLERS, typed=ticket.text()).wait(30) == 0
    assert handle.result(10) == 3


def test_a_handler_that_fails_is_the_tasks_affair(fleet: Fleet, scene: Scene) -> None:
    parent, executors = scene
    handle = fleet.client.submit(f"{MORE_HANDLERS}:fail", "no good")
    assert executors.run(parent.take()) == 0
    with pytest.raises(TaskFailed, match="no good"):
        handle.result(10)


def test_what_a_command_leaves_is_kept(fleet: Fleet, scene: Scene, tmp_path: Path) -> None:
    parent, executors = scene
    handle = fleet.client.using(lease_ttl="5s").command([sys.executable, "-c", LEAVE_A_FILE])
    assert executors.run(parent.take()) == 0
    assert handle.result(20) == "done\n"
    handle.download(tmp_path / "got")
    assert (tmp_path / "got" / "a.txt").read_text() == "left"
    assert not executors.left()


def test_a_folder_that_is_to_be_kept_stays(fleet: Fleet, scene: Scene, tmp_path: Path) -> None:
    parent, executors = scene
    handle = fleet.client.using(keep_folder=True).command([sys.executable, "-c", LEAVE_A_FILE])
    assert executors.run(parent.take()) == 0
    assert handle.result(20) == "done\n"
    (kept,) = tmp_path.glob("tmp/tenure-executor-*/workers/parent.x*/kept/*/outputs/a.txt")
    assert kept.read_text() == "left"


def test_user_code_sees_nothing_of_the_executors_environment(fleet: Fleet, scene: Scene) -> None:
    parent, executors = scene
    handle = fleet.client.submit(f"{MORE_HANDLERS}:environment")
    assert executors.run(parent.take()) == 0
    allowed = {"PATH", "HOME", "LANG", "TZ", "TMPDIR", "PYTHONPATH"}
    assert {name for name in handle.result(10) if not name.startswith("LC_")} <= allowed


def test_the_ticket_says_where_it_belongs_whatever_is_set(fleet: Fleet, scene: Scene, tmp_path: Path) -> None:
    parent, executors = scene
    fleet.env |= {"TENURE_NAMESPACE": "another", "TENURE_SITE": "elsewhere"}
    handle = fleet.client.submit(f"{HANDLERS}:count", 5)
    file = tmp_path / "ticket.json"
    file.write_text(parent.take().text())
    assert executors.call("--ticket-file", str(file), "--allow", HANDLERS).wait(30) == 0
    assert handle.result(10) == 5


# --- once and no more -------------------------------------------------------------------------------------------------


def test_two_executors_at_once_run_it_once(fleet: Fleet, scene: Scene, marks: Path) -> None:
    parent, executors = scene
    hold = held(marks)
    handle = fleet.client.submit(f"{HANDLERS}:work", str(marks), 1, 0.0)
    ticket = parent.take()
    both = [executors.start(ticket), executors.start(ticket)]
    wait_until(lambda: any(one.poll() is not None for one in both), "the one that was too late has ended", 30)
    hold.unlink()
    assert [one.wait(30) for one in both] == [0, 0]
    assert handle.result(10) == 1
    assert starts(marks) == 1


def test_an_executor_after_the_end_finds_nothing(fleet: Fleet, scene: Scene, marks: Path) -> None:
    parent, executors = scene
    handle = fleet.client.submit(f"{HANDLERS}:work", str(marks), 1, 0.0)
    ticket = parent.take()
    assert executors.run(ticket) == 0
    assert handle.result(10) == 1
    assert executors.run(ticket) == 0
    assert "not there any more" in executors.said()
    assert starts(marks) == 1


def test_an_assignment_that_was_withdrawn_is_not_run(fleet: Fleet, scene: Scene, marks: Path) -> None:
    parent, executors = scene
    handle = fleet.client.submit(f"{HANDLERS}:work", str(marks), 1, 0.0)
    ticket = parent.take()
    assert handle.cancel()
    assert executors.run(ticket) == 0
    assert starts(marks) == 0


def test_a_copy_of_an_entry_whose_lease_is_over_is_refused(fleet: Fleet, scene: Scene, marks: Path) -> None:
    parent, executors = scene
    handle = fleet.client.submit(f"{HANDLERS}:work", str(marks), 1, 0.0)
    ticket = parent.take()
    copied = parent.copy(ticket)
    assert handle.cancel()
    assert executors.run(copied) == 0
    assert "another executor has the assignment, or it is over" in executors.said()
    assert starts(marks) == 0


def test_another_fence_than_the_entrys_is_not_run(fleet: Fleet, scene: Scene, marks: Path) -> None:
    parent, executors = scene
    fleet.client.submit(f"{HANDLERS}:work", str(marks), 1, 0.0)
    ticket = parent.take()
    assert executors.run(ticket.model_copy(update={"fence": ticket.fence + 1})) == 0
    assert starts(marks) == 0


# --- ends that are not the task's own ---------------------------------------------------------------------------------


def test_cancelling_ends_what_runs(fleet: Fleet, scene: Scene, marks: Path) -> None:
    parent, executors = scene
    held(marks)
    handle = fleet.client.submit(f"{HANDLERS}:work", str(marks), 1, 0.0)
    ticket = parent.take()
    process = executors.start(ticket)
    wait_until(lambda: starts(marks), "the handler runs", 30)
    handle.cancel()
    with pytest.raises(TaskCancelled):
        handle.result(20)
    assert process.wait(20) == 0
    wait_until(lambda: parent.is_told_to_stop(ticket), "the parent hears of it too")


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_ends_what_runs_at_once(fleet: Fleet, scene: Scene, marks: Path, number: int) -> None:
    parent, executors = scene
    hold = held(marks)
    once_more = fleet.client.using(retry=tenure.Retry(lost=1), lease_ttl="8s")  # its parent says nothing of its end
    handle = once_more.submit(f"{HANDLERS}:work", str(marks), 1, 0.0)
    process = executors.start(parent.take())
    wait_until(lambda: starts(marks), "the handler runs", 30)
    process.send_signal(number)
    assert process.wait(20) == 0
    hold.unlink()
    assert executors.run(parent.take()) == 0
    assert handle.result(10) == 1
    assert starts(marks) == 2
    causes = [row["cause"] for row in fleet.client.ask(Query(what="leases")).rows]
    assert "drained" in causes
    assert not executors.left()


def test_an_executor_that_is_killed_leaves_no_process(fleet: Fleet, scene: Scene, tmp_path: Path) -> None:
    parent, executors = scene
    note = tmp_path / "pids"
    fleet.client.submit(f"{MORE_HANDLERS}:stubborn", str(note))
    process = executors.start(parent.take())
    wait_until(lambda: note.exists() and len(note.read_text().split()) == 2, "the handler runs", 30)
    tree = psutil.Process(process.pid).children(recursive=True)
    assert {int(pid) for pid in note.read_text().split()} <= {one.pid for one in tree}
    process.kill()
    process.wait(20)
    wait_until(gone(tree), "everything that it has started is gone", 20)


# --- without a fleet --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_result_waits_for_a_coordinator_that_is_down(fleet: Fleet, scene: Scene, marks: Path) -> None:
    parent, executors = scene
    hold = held(marks)
    handle = fleet.client.submit(f"{HANDLERS}:work", str(marks), 1, 0.0)
    process = executors.start(parent.take())
    wait_until(lambda: starts(marks), "the handler runs", 30)
    fleet.processes["coordinator"].kill()
    hold.unlink()
    wait_until(lambda: "end" in marks.read_text(), "the handler has ended")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(7)
    fleet.start_coordinator()
    assert process.wait(30) == 0
    assert handle.result(10) == 1
    assert starts(marks) == 1


@pytest.mark.slow
def test_a_result_survives_a_broker_that_has_lost_everything(fleet: Fleet, scene: Scene, marks: Path) -> None:
    parent, executors = scene
    hold = held(marks)
    handle = fleet.client.submit(f"{HANDLERS}:work", str(marks), 1, 0.0)
    process = executors.start(parent.take())
    wait_until(lambda: starts(marks), "the handler runs", 30)
    fleet.server.stop()
    hold.unlink()
    wait_until(lambda: "end" in marks.read_text(), "the handler has ended")
    fleet.start_server()
    assert process.wait(40) == 0
    assert handle.result(20) == 1
    assert starts(marks) == 1


@pytest.mark.slow
def test_an_executor_that_nobody_answers_gives_up(fleet: Fleet, scene: Scene, marks: Path) -> None:
    parent, executors = scene
    handle = fleet.client.submit(f"{HANDLERS}:work", str(marks), 1, 0.0)
    ticket = parent.take()
    fleet.processes["coordinator"].kill()
    assert executors.run(ticket, "--patience", "1s") == 3
    assert starts(marks) == 0
    fleet.start_coordinator()
    assert executors.run(parent.take()) == 0
    assert handle.result(20) == 1
    assert starts(marks) == 1


@pytest.mark.slow
def test_an_executor_that_finds_no_broker_gives_up(fleet: Fleet, scene: Scene) -> None:
    parent, executors = scene
    fleet.client.submit(f"{HANDLERS}:count", 1)
    ticket = parent.take()
    fleet.address = "redis://127.0.0.1:1"
    assert executors.run(ticket, "--patience", "1s") == 3
    assert "the fleet was not reached, and nothing was run" in executors.said()
    assert not executors.left()


def test_a_ticket_that_cannot_be_read_is_said_in_one_line(scene: Scene) -> None:
    _, executors = scene
    assert executors.call("--ticket", json.dumps({"parent": "p"})).wait(30) == 2
    assert executors.said().startswith("tenure: the launch ticket cannot be used")
    assert executors.said().count("\n") == 1
