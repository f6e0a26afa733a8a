"""A worker with real runners and children: what tasks see, and what becomes of them."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tenure.protocol.assignment import Ticket
from tenure.protocol.control_messages import Drain, Stop, StopReason
from tenure.protocol.worker_messages import (
    Cause,
    Claimed,
    Failure,
    FailureKind,
    Finished,
    Leaving,
    Progressed,
    Released,
)
from tests.fixtures_worker import OWN, READERS, STREAM, WORKER, Bench, call, command, python, results_of
from tests.waiting import wait_until

StartBench = Callable[..., Bench]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartBench]:
    """Starts a worker; it is ended with the test."""
    benches: list[Bench] = []

    def start_one(**options: Any) -> Bench:
        benches.append(Bench(tmp_path / "state", **options))
        return benches[-1]

    yield start_one
    for bench in benches:
        bench.close()


def failure_of(finished: Finished) -> Failure:
    assert finished.outcome.failure is not None, finished
    return finished.outcome.failure


def value_of(finished: Finished) -> Any:
    assert finished.outcome.value is not None, finished
    return json.loads(finished.outcome.value)


# --- calls --------------------------------------------------------------------------------------


@pytest.mark.parametrize("start_rule", ["granted", "claimed"])
def test_a_call_returns_its_value(start: StartBench, start_rule: str) -> None:
    bench = start()
    (ticket,) = bench.publish(call("add", 1, 2, start=start_rule))
    assert value_of(bench.result(ticket)) == 3


def test_many_calls_go_through_one_child_in_order(start: StartBench) -> None:
    bench = start()
    tickets = bench.publish(*[call("add", number, 0, start="claimed") for number in range(300)])
    assert [value_of(bench.result(ticket)) for ticket in tickets] == list(range(300))
    assert bench.drain().counts["accepted"] == 300


@pytest.mark.parametrize(
    ("function", "arguments", "kind", "text"),
    [
        ("fail", ["no"], FailureKind.EXCEPTION, "ValueError: no"),
        ("leave", [3], FailureKind.EXCEPTION, "SystemExit: 3"),
        ("unfit", [], FailureKind.RESULT_NOT_JSON, "no JSON form"),
        ("large", [300_000], FailureKind.RESULT_TOO_LARGE, "over the limit"),
        ("add", [1], FailureKind.INVALID_ARGUMENTS, ""),
        ("nothing_of_that_name", [], FailureKind.UNKNOWN_HANDLER, "nothing_of_that_name"),
    ],
)
def test_a_call_that_fails_says_how(
    start: StartBench, function: str, arguments: list[Any], kind: FailureKind, text: str
) -> None:
    bench = start()
    (ticket,) = bench.publish(call(function, *arguments))
    failure = failure_of(bench.result(ticket))
    assert failure.kind is kind
    assert text in failure.message


def test_a_module_that_is_not_allowed_is_not_imported(start: StartBench) -> None:
    bench = start(allow=("tests.other",))
    (ticket,) = bench.publish(call("add", 1, 2))
    assert failure_of(bench.result(ticket)).kind is FailureKind.NOT_ALLOWED


def test_a_handler_knows_what_it_runs_for_and_tells_how_far_it_is(start: StartBench) -> None:
    bench = start()
    (ticket,) = bench.publish(call("run"))
    assert value_of(bench.result(ticket)) == [ticket.task_id, 1, ticket.fence]


def test_progress_arrives(start: StartBench) -> None:
    bench = start()
    (ticket,) = bench.publish(python("print(1)"))
    bench.result(ticket)
    (ticket,) = bench.publish(call("report_and_sleep", 0.5, 0.4))
    bench.result(ticket)
    (progress,) = bench.of(Progressed, ticket)
    assert (progress.cursor, progress.fraction_ppm, progress.message) == (1, 500_000, "half")


def test_what_handlers_print_does_not_disturb_their_results(start: StartBench) -> None:
    bench = start()
    (ticket,) = bench.publish(call("shout", 200_000))
    assert value_of(bench.result(ticket)) == 200_000


def test_a_child_sees_nothing_of_the_workers_environment(start: StartBench) -> None:
    bench = start(environment=(("PATH", "/usr/bin:/bin"), ("LANG", "C.UTF-8")))
    (ticket,) = bench.publish(call("environment"))
    seen = value_of(bench.result(ticket))
    assert set(seen) - {"LC_CTYPE"} == {"PATH", "LANG", "PYTHONPATH"}


def test_a_child_works_in_a_folder_of_its_own_that_is_removed(start: StartBench) -> None:
    bench = start()
    (ticket,) = bench.publish(call("where"))
    folder = Path(value_of(bench.result(ticket)))
    assert folder.is_relative_to(bench.options.state_dir)
    bench.drain()
    wait_until(lambda: not folder.exists(), "the folder is removed")


def test_async_calls_run_side_by_side_in_one_process(start: StartBench, tmp_path: Path) -> None:
    bench = start(slots=4)
    (first,) = bench.publish(call("nap", 0))
    bench.result(first)
    tickets = bench.publish(*[call("meet", 4, str(tmp_path)) for _ in range(4)])
    assert [value_of(bench.result(ticket)) for ticket in tickets] == ["met"] * 4


def test_a_lot_of_short_async_calls_come_back(start: StartBench) -> None:
    bench = start(slots=3)
    tickets = bench.publish(*[call("nap", 0, start="claimed") for _ in range(100)])
    assert {value_of(bench.result(ticket)) for ticket in tickets} == {"napped"}


def test_sync_and_async_calls_and_commands_share_a_worker(start: StartBench) -> None:
    bench = start(slots=2)
    work = [call("add", 1, 1), call("nap", 0.01), command("echo", "x")]
    finished = results_of(bench, *[work[number % 3] for number in range(30)])
    assert [value_of(each) for each in finished] == [2, "napped", "x\n"] * 10


# --- commands -----------------------------------------------------------------------------------


def test_a_commands_output_is_its_value(start: StartBench) -> None:
    bench = start()
    (ticket,) = bench.publish(command("cat", stdin="gr\u00fc\u00dfe\n"))
    assert value_of(bench.result(ticket)) == "gr\u00fc\u00dfe\n"


def test_a_commands_environment_and_folder_are_its_own(start: StartBench) -> None:
    bench = start(environment=())
    script = "import os, json; print(json.dumps([dict(os.environ), os.getcwd(), os.getsid(0) == os.getpid()]))"
    (ticket,) = bench.publish(python(script, env=(("MINE", "1"),)))
    environment, folder, leads = json.loads(value_of(bench.result(ticket)))
    environment.pop("LC_CTYPE", None)
    assert environment == {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "MINE": "1",
        "TENURE_TASK_ID": ticket.task_id,
        "TENURE_ATTEMPT": "1",
        "TENURE_FENCE": str(ticket.fence),
    }
    assert leads
    wait_until(lambda: not Path(folder).exists(), "the task folder is removed")


def test_a_command_inherits_no_descriptor_but_its_three(start: StartBench) -> None:
    bench = start()
    (ticket,) = bench.publish(command("sh", "-c", "ls /proc/self/fd"))
    assert value_of(bench.result(ticket)).split() == ["0", "1", "2", "3"]  # 3 is the folder that ls reads


def test_more_output_than_a_pipe_holds_blocks_nobody(start: StartBench) -> None:
    bench = start()
    script = "import sys; sys.stderr.write('e' * 300_000); print('o' * 200_000)"
    (ticket,) = bench.publish(python(script))
    assert len(value_of(bench.result(ticket))) == 200_001


def test_a_command_that_prints_without_end_is_too_large_and_harmless(start: StartBench) -> None:
    bench = start()
    (ticket,) = bench.publish(python("for _ in range(50): print('o' * 100_000)"))
    assert failure_of(bench.result(ticket)).kind is FailureKind.RESULT_TOO_LARGE


@pytest.mark.parametrize(
    ("argv", "kind", "code"),
    [
        (["sh", "-c", "echo what went wrong >&2; exit 7"], FailureKind.EXIT_CODE, 7),
        (["sh", "-c", "kill -9 $$"], FailureKind.SIGNAL, -9),
        (["/nowhere/to/be/found"], FailureKind.COMMAND_NOT_FOUND, None),
        (["/etc/hostname"], FailureKind.COMMAND_NOT_FOUND, None),
    ],
)
def test_a_command_that_fails_says_how(start: StartBench, argv: list[str], kind: FailureKind, code: int | None) -> None:
    bench = start()
    (ticket,) = bench.publish(command(*argv))
    failure = failure_of(bench.result(ticket))
    assert (failure.kind, failure.exit_code) == (kind, code)
    if kind is FailureKind.EXIT_CODE:
        assert failure.trace == "what went wrong\n"


def test_what_a_command_leaves_running_ends_with_it(start: StartBench) -> None:
    bench = start()
    script = (
        "import subprocess, sys;"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=subprocess.DEVNULL);"
        "print(child.pid)"
    )
    (ticket,) = bench.publish(python(script))
    pid = int(value_of(bench.result(ticket)))
    assert not Path(f"/proc/{pid}").exists()


# --- the broker ---------------------------------------------------------------------------------


def test_a_worker_waits_for_a_coordinator_that_makes_its_streams(start: StartBench) -> None:
    bench = start()
    with bench.wire.lock:
        bench.wire.broker.store.flush()
    wait_until(lambda: bench.beat() is not None, "the worker beats")
    with bench.wire.lock:
        bench.coordinator.ensure_streams(readers=READERS, assignments=[STREAM, OWN])
    (ticket,) = bench.publish(call("add", 1, 2))
    assert value_of(bench.result(ticket)) == 3


# --- ends ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["die", "kill_self"])
def test_a_call_whose_process_dies_is_released_and_the_next_runs(start: StartBench, function: str) -> None:
    bench = start()
    dies, lives = bench.publish(call(function, *([5] if function == "die" else [])), call("add", 1, 1))
    release = bench.released(dies)
    assert (release.cause, release.started, release.tree_gone) == (Cause.PROCESS_DIED, True, True)
    assert release.detail
    assert value_of(bench.result(lives)) == 2


def test_a_fork_that_comes_back_from_a_handler_reports_nothing(start: StartBench) -> None:
    bench = start()
    forks, next_one = bench.publish(call("fork_and_return"), call("add", 1, 1))
    bench.result(forks)
    bench.result(next_one)
    assert len(bench.of(Finished, forks)) == 1


def test_a_handler_that_closes_all_descriptors_loses_only_itself(start: StartBench) -> None:
    bench = start()
    closes, next_one = bench.publish(call("close_everything"), call("add", 1, 1))
    assert bench.released(closes).cause is Cause.PROCESS_DIED
    assert value_of(bench.result(next_one)) == 2


def test_a_thread_that_a_handler_leaves_behind_does_not_keep_the_worker(start: StartBench) -> None:
    bench = start()
    (ticket,) = bench.publish(call("leave_a_thread"))
    bench.result(ticket)
    assert bench.drain().counts["accepted"] == 1


def test_a_sync_call_is_ended_after_its_timeout(start: StartBench) -> None:
    bench = start()
    (warm,) = bench.publish(call("add", 1, 1))
    bench.result(warm)
    (ticket,) = bench.publish(call("sleep", 600, timeout_ms=300))
    failure = failure_of(bench.result(ticket))
    assert (failure.kind, failure.message) == (FailureKind.TIMEOUT, "ran longer than 300 ms")


def test_an_async_call_is_cancelled_after_its_timeout(start: StartBench) -> None:
    bench = start(slots=2)
    (warm,) = bench.publish(call("nap", 0))
    bench.result(warm)
    slow, other = bench.publish(call("nap", 600, timeout_ms=300), call("nap", 1))
    assert failure_of(bench.result(slow)).kind is FailureKind.TIMEOUT
    assert value_of(bench.result(other)) == "napped"


def test_a_command_is_ended_after_its_timeout(start: StartBench) -> None:
    bench = start()
    (ticket,) = bench.publish(command("sleep", "600", timeout_ms=300))
    assert failure_of(bench.result(ticket)).kind is FailureKind.TIMEOUT


def test_an_async_call_is_cancelled_alone(start: StartBench, tmp_path: Path) -> None:
    bench = start(slots=2)
    (warm,) = bench.publish(call("nap", 0))
    bench.result(warm)
    note = tmp_path / "napping"
    cancelled, other = bench.publish(call("nap", 600, str(note)), call("nap", 0.5))
    bench.until(note.exists, "the call runs")
    bench.order(Stop(task_id=cancelled.task_id, fence=cancelled.fence, reason=StopReason.CANCELLED))
    release = bench.released(cancelled)
    assert (release.cause, release.started, release.tree_gone) == (Cause.CANCELLED, True, True)
    assert value_of(bench.result(other)) == "napped"


def test_a_handler_that_asks_whether_it_is_cancelled_may_end_by_itself(start: StartBench, tmp_path: Path) -> None:
    bench = start()
    note = tmp_path / "running"
    (ticket,) = bench.publish(call("obliging", str(note)))
    bench.until(note.exists, "the call runs")
    bench.order(Stop(task_id=ticket.task_id, fence=ticket.fence, reason=StopReason.CANCELLED))
    assert value_of(bench.result(ticket)) == "ended by itself"


def test_calls_behind_a_long_one_go_to_another_slot(start: StartBench) -> None:
    bench = start(slots=2)
    learn = bench.publish(*[call("sleep", 0, start="claimed") for _ in range(100)])
    for ticket in learn:
        bench.result(ticket)
    long, *short = bench.publish(call("sleep", 2.0, start="claimed"), *[call("sleep", 0, start="claimed")] * 30)
    for ticket in short:
        bench.until(partial(_is_over, bench, ticket), "a short call is over")
    assert not bench.of(Finished, long)
    assert all(not release.started for ticket in short for release in bench.of(Released, ticket))
    bench.result(long)


def _is_over(bench: Bench, ticket: Ticket) -> bool:
    return bool(bench.of(Finished, ticket)) or bool(bench.of(Released, ticket))


def test_draining_finishes_what_runs_and_says_goodbye(start: StartBench) -> None:
    bench = start(slots=2)
    (first,) = bench.publish(call("add", 1, 1))
    bench.result(first)
    bench.grants = False
    running, waiting = bench.publish(call("sleep", 0.5, start="claimed"), call("add", 1, 1))
    bench.until(lambda: bench.of(Claimed, waiting), "both are held")
    summary = bench.drain()
    bench.turn()
    assert value_of(bench.result(running)) == "slept"
    assert bench.released(waiting).started is False
    assert [event for event in bench.events if isinstance(event, Leaving)][-1].gone
    assert bench.beat() is None
    assert summary.worker_id == WORKER


def test_an_order_to_drain_ends_the_worker(start: StartBench) -> None:
    bench = start()
    (ticket,) = bench.publish(call("add", 1, 1))
    bench.result(ticket)
    bench.order(Drain())
    bench.until(lambda: Leaving(gone=True) in bench.events, "the worker has left")


def test_a_second_request_ends_what_runs(start: StartBench, tmp_path: Path) -> None:
    bench = start()
    note = tmp_path / "pid"
    (ticket,) = bench.publish(call("sleep", 600, str(note), start="claimed"))
    bench.until(note.exists, "the call runs")
    bench.drain(2)
    bench.turn()
    assert bench.released(ticket).cause is Cause.DRAINED
    assert not Path(f"/proc/{note.read_text()}").exists()


def test_the_interpreter_of_commands_is_not_the_workers(start: StartBench) -> None:
    bench = start()
    (ticket,) = bench.publish(command(sys.executable, "-c", "import os; print(os.getppid())"))
    assert int(value_of(bench.result(ticket))) != os.getpid()
