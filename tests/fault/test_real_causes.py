"""Why an attempt was lost is noticed, recorded and explained, on a real fleet: one cause per test."""

import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tenure
from tenure.protocol.client_messages import Explain
from tests import fixtures_fleet_handlers as handlers
from tests.fault.instrument import Records
from tests.fault.trial import Sweep, Trials
from tests.fixtures_fleet import TTL_MS, Fleet, Worker, tend
from tests.fixtures_services import unavailable
from tests.waiting import wait_until

_GROUPS = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
LIMIT_MB = 200


def story(fleet: Fleet, task_id: str) -> str:
    return "\n".join(str(line["text"]) for line in fleet.client.ask(Explain(task_id=task_id)).rows)


def cause(fleet: Fleet, task_id: str) -> tuple[str, str]:
    """Reason and detail of the directive that followed the task's first attempt."""
    rows = Records(fleet.database).rows(
        "SELECT reason, detail FROM directive WHERE task_id = ? AND attempt = 1", task_id
    )
    return str(rows[0][0]), str(rows[0][1])


def lose(trials: Trials, fleet: Fleet, harm: Callable[[int], None]) -> Sweep:
    """Lose the first attempt of a task by that harm to the process that runs it; the second one succeeds."""
    sweep = trials.sweep(fleet, count=1, seconds=5)
    (victim,) = sweep.wait_for_running(1)
    name = fleet.worker_of(victim.pid)
    harm(victim.pid)
    sweep.wait_for_next_attempt([victim])
    tend(fleet, name)
    return sweep


@pytest.mark.parametrize(
    ("code", "words"), [(3, "exit code 3"), (-signal.SIGSEGV, "SIGSEGV"), (-signal.SIGKILL, "SIGKILL")]
)
def test_a_process_that_died_is_explained_by_how_it_ended(trials: Trials, code: int, words: str) -> None:
    with trials.fleet(Worker("w1")) as fleet:
        said = fleet.client.using(lease_ttl=f"{TTL_MS}ms", retry=tenure.Retry(lost=1))
        handle = said.submit(handlers.die_once, str(trials.instrument.path), 5, code)
        assert handle.result(20) == 5

        reason, detail = cause(fleet, handle.task_id)
        assert reason == "process_died"
        assert words in detail
        assert "memory" not in detail
        assert detail in story(fleet, handle.task_id)


@contextmanager
def memory_group(limit_mb: int) -> Generator[Path]:
    """A control group of ours with little memory; the test is skipped where none may be made."""
    top = next((each for each in _GROUPS if (each / "memory.limit_in_bytes").exists()), _GROUPS[1])
    group = top / f"tenure-test-{os.getpid()}"
    limit = "memory.limit_in_bytes" if top == _GROUPS[0] else "memory.max"
    try:
        group.mkdir()
        (group / limit).write_text(str(limit_mb << 20))
    except OSError as error:
        unavailable(f"no control group can be made here: {error}")
    try:
        yield group
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text(), "the group is empty")
        group.rmdir()


def test_a_process_that_ran_out_of_memory_is_explained_by_that(trials: Trials) -> None:
    """The kernel ends the task and not the agent or the runner, and the group's counter tells why."""
    with memory_group(LIMIT_MB) as group, trials.fleet(Worker("w1")) as fleet:
        (group / "cgroup.procs").write_text(str(fleet.processes["w1"].pid))
        for runner in fleet.everything_of("w1")[1:]:
            (group / "cgroup.procs").write_text(str(runner.pid))
        said = fleet.client.using(lease_ttl=f"{TTL_MS}ms", retry=tenure.Retry(lost=1))
        handle = said.submit(handlers.eat_memory, str(trials.instrument.path), 5, 2 * LIMIT_MB)
        assert handle.result(30) == 5

        reason, detail = cause(fleet, handle.task_id)
        assert reason == "process_died"
        assert "SIGKILL" in detail
        assert "out of memory" in detail
        assert fleet.processes["w1"].running


@pytest.mark.slow
def test_silence_is_explained_by_how_long_it_lasted(trials: Trials) -> None:
    with trials.fleet() as fleet:
        sweep = lose(trials, fleet, lambda pid: fleet.processes[fleet.worker_of(pid)].kill())
        reason, detail = cause(fleet, sweep.ids[0])

        assert reason == "lease_expired"
        assert "was not heard for" in detail
        trials.judge("worker is silent", fleet, sweep)


def test_a_worker_that_is_told_to_end_at_once_says_so(trials: Trials) -> None:
    def end_at_once(pid: int) -> None:
        process = fleet.processes[fleet.worker_of(pid)]
        process.signal(signal.SIGTERM)
        wait_until(lambda: "DRAINING" in states(fleet), "it drains")
        process.signal(signal.SIGTERM)

    with trials.fleet() as fleet:
        sweep = lose(trials, fleet, end_at_once)
        reason, detail = cause(fleet, sweep.ids[0])

        assert reason == "drained"
        assert "drained" in detail
        trials.judge("worker told to end at once", fleet, sweep)


def states(fleet: Fleet) -> set[object]:
    return {state for (state,) in Records(fleet.database).rows("SELECT state FROM worker")}
