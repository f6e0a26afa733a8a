"""Workers whose processes are stopped, killed and cut off: nothing may be left running past its lease."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.protocol.control_messages import Stop, StopReason
from tenure.protocol.worker_messages import Cause, Finished, Hello, Released
from tests.fixtures_worker import OWN, READERS, STREAM, Bench, call, python
from tests.waiting import wait_until

StartBench = Callable[..., Bench]
SETSID_CHILD = (
    "import os, signal, subprocess, sys, time;"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "inner = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)';"
    "child = subprocess.Popen([sys.executable, '-c', inner], start_new_session=True);"
    "open(sys.argv[1], 'w').write(f'{os.getpid()} {child.pid}');"
    "time.sleep(600)"
)
FORKS = (
    "import os, sys, time\n"
    "open(sys.argv[1], 'w').write(str(os.getpid()))\n"
    "for family in range(20):\n"
    "    if os.fork() == 0:\n"
    "        os.setsid()\n"
    "        while True:\n"
    "            if os.fork() != 0:\n"
    "                os._exit(0)\n"
    "            time.sleep(0.001 if family < 2 else 0.1)\n"
    "time.sleep(600)\n"
)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartBench]:
    benches: list[Bench] = []

    def start_one(**options: Any) -> Bench:
        benches.append(Bench(tmp_path / "state", **options))
        return benches[-1]

    yield start_one
    for bench in benches:
        bench.close()


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def pids_in(note: Path) -> list[int]:
    return [int(pid) for pid in note.read_text().split()]


def below(pid: int) -> set[int]:
    """All descendants of a process."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found: set[int] = set()
    while more := {child for child, parent in parents.items() if parent in {pid, *found}} - found:
        found |= more
    return found


def with_name(text: str) -> set[int]:
    """Processes whose command line holds that text."""
    found: set[int] = set()
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if text in line.read_text() and alive(int(line.parent.name)):
                found.add(int(line.parent.name))
    return found


# --- one task is ended --------------------------------------------------------------------------


def test_a_stopped_command_takes_its_whole_tree_along(start: StartBench, tmp_path: Path) -> None:
    """SIGTERM is ignored, and the grandchild has left the session."""
    bench = start()
    note = tmp_path / "pids"
    (ticket,) = bench.publish(python(SETSID_CHILD, str(note), lease_ttl_ms=1_000))
    bench.until(lambda: note.exists() and len(pids_in(note)) == 2, "both processes run")
    bench.order(Stop(task_id=ticket.task_id, fence=ticket.fence, reason=StopReason.CANCELLED))
    release = bench.released(ticket)
    assert (release.cause, release.started, release.tree_gone) == (Cause.CANCELLED, True, True)
    assert not any(map(alive, pids_in(note)))


def test_a_stopped_call_takes_its_whole_tree_along_and_the_slot_goes_on(start: StartBench, tmp_path: Path) -> None:
    bench = start()
    note = tmp_path / "pids"
    (ticket,) = bench.publish(call("stubborn", str(note), lease_ttl_ms=1_000))
    bench.until(lambda: note.exists() and len(pids_in(note)) == 2, "both processes run")
    bench.order(Stop(task_id=ticket.task_id, fence=ticket.fence, reason=StopReason.CANCELLED))
    assert bench.released(ticket).tree_gone
    assert not any(map(alive, pids_in(note)))
    (next_one,) = bench.publish(call("add", 1, 1))
    assert bench.result(next_one).outcome.value == "2"


def test_an_async_call_that_ignores_its_cancellation_is_ended_with_its_process(
    start: StartBench, tmp_path: Path
) -> None:
    bench = start(slots=2)
    note = tmp_path / "pids"
    (warm,) = bench.publish(call("nap", 0))
    bench.result(warm)
    neighbour, deaf = bench.publish(call("nap", 600), call("deaf", str(note), lease_ttl_ms=1_000))
    bench.until(note.exists, "the call runs")
    bench.order(Stop(task_id=deaf.task_id, fence=deaf.fence, reason=StopReason.CANCELLED))
    assert bench.released(deaf).cause is Cause.CANCELLED
    together = {release.cause for release in bench.of(Released, neighbour)}
    assert together <= {Cause.COLLATERAL}
    assert not any(map(alive, pids_in(note)))


@pytest.mark.xdist_group("takes all processors")
def test_processes_that_fork_without_end_are_ended(start: StartBench, tmp_path: Path) -> None:
    bench = start()
    note = tmp_path / "pids"
    marker = f"forks-{os.getpid()}"
    (ticket,) = bench.publish(python(FORKS, str(note), marker, lease_ttl_ms=5_000))
    bench.until(lambda: note.exists() and len(with_name(marker)) > 8, "many processes run")
    bench.order(Stop(task_id=ticket.task_id, fence=ticket.fence, reason=StopReason.CANCELLED))
    assert bench.released(ticket).tree_gone
    assert not with_name(marker)


def test_a_call_that_never_lets_go_of_the_interpreter_does_not_stop_the_heartbeat(start: StartBench) -> None:
    bench = start(ttl_ms=1_000)
    (ticket,) = bench.publish(call("hold_the_lock", 2, lease_ttl_ms=1_000, start="claimed"))
    seen: set[int] = set()

    def beats() -> bool:
        heartbeat = bench.beat()
        if heartbeat is not None and any(held.fence == ticket.fence for held in heartbeat.held):
            seen.add(heartbeat.sequence)
        return bool(bench.of(Finished, ticket))

    bench.until(beats, "the call is over")
    assert bench.result(ticket).outcome.value == '"held"'
    assert len(seen) >= 5


# --- the broker is away -------------------------------------------------------------------------


def test_a_worker_that_cannot_renew_ends_its_own_work(start: StartBench, tmp_path: Path) -> None:
    bench = start(ttl_ms=1_000)
    note = tmp_path / "pid"
    (ticket,) = bench.publish(call("sleep", 600, str(note), lease_ttl_ms=1_000))
    bench.until(note.exists, "the call runs")
    bench.wire.cut = True
    wait_until(lambda: not alive(*pids_in(note)), "the worker has ended the call")
    bench.wire.cut = False
    release = bench.released(ticket)
    assert (release.cause, release.started, release.tree_gone) == (Cause.SELF_FENCED, True, True)


def test_a_short_outage_ends_nothing_and_loses_nothing(start: StartBench, tmp_path: Path) -> None:
    bench = start(ttl_ms=3_000)
    note = tmp_path / "pid"
    (ticket,) = bench.publish(call("sleep", 0.6, str(note), lease_ttl_ms=5_000))
    bench.until(note.exists, "the call runs")
    bench.wire.cut = True
    spool = bench.options.state_dir / "workers/lab.w1/spool.jsonl"
    wait_until(lambda: spool.exists() and spool.stat().st_size > 0, "the result is spooled")
    bench.wire.cut = False
    assert bench.result(ticket).outcome.value == '"slept"'


def test_a_broker_that_has_lost_its_data_is_told_everything_again(start: StartBench, tmp_path: Path) -> None:
    bench = start(ttl_ms=1_000)
    note = tmp_path / "pid"
    (ticket,) = bench.publish(call("sleep", 1.5, str(note), start="claimed"))
    bench.until(note.exists, "the call runs")
    with bench.wire.lock:
        bench.wire.broker.store.flush()
        bench.coordinator.ensure_streams(readers=READERS, assignments=[STREAM, OWN])
        bench.coordinator.mark("second")
    bench.events.clear()
    bench.until(lambda: [event for event in bench.events if isinstance(event, Hello)], "a new hello")
    assert bench.result(ticket).outcome.value == '"slept"'
