"""A runner in a process of its own, given orders by hand: deadlines, replacement and proof."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tenure.broker.base import LogChunk
from tenure.clock import SystemClock
from tenure.protocol.envelope import CommandWork
from tenure.protocol.worker_messages import Binding, FailureKind
from tenure.workers.actions import StartCommand
from tenure.workers.calls import call_packet
from tenure.workers.freight import Freight, StoreAddress
from tenure.workers.gear import Gear
from tenure.workers.inputs import CallEnded, Input, TreeEnded
from tenure.workers.launching import Launch
from tenure.workers.options import WorkerOptions
from tenure.workers.runner_link import RunnerLink
from tests.fixtures_worker import HANDLERS
from tests.waiting import wait_until

ROOT = str(Path(__file__).parents[2])


class Driver:
    """A link to a runner, and what came back over it."""

    def __init__(self, folder: Path) -> None:
        self.options = WorkerOptions(state_dir=folder, allow=(HANDLERS,), import_path=(ROOT,))
        self.lock = (folder / "lock").open("w")
        self.printed: list[tuple[str, int, list[LogChunk]]] = []
        launch = Launch(self.options, folder, self.lock.fileno())
        self.link = RunnerLink(0, Gear(launch, Freight(None, StoreAddress(), SystemClock()), self.note_printed))
        self.inputs: list[Input] = []
        self.calls = 0

    def note_printed(self, task_id: str, fence: int, chunks: Sequence[LogChunk]) -> None:
        self.printed.append((task_id, fence, list(chunks)))

    def command(self, *argv: str) -> None:
        self.calls += 1
        binding = Binding(task_id="0" * 26, attempt=1, fence=self.calls, digest="a" * 64, nonce="b" * 32)
        self.link.start(StartCommand(0, self.calls, binding, CommandWork(argv=argv)))

    def call(self, function: str, arguments: str = '{"args":[],"kwargs":{}}') -> None:
        self.calls += 1
        packet = call_packet(self.calls, ("0" * 26, 1, self.calls), f"{HANDLERS}:{function}", arguments)
        assert self.link.child().send(packet)

    def until(self, kind: type[Input], description: str) -> Input:
        """The next input of that kind."""
        found: list[Input] = []

        def holds() -> bool:
            self.inputs += [*self.link.read_results(), *self.link.read_control()]
            found[:] = [happened for happened in self.inputs if isinstance(happened, kind)]
            return bool(found)

        wait_until(holds, description)
        self.inputs.remove(found[0])
        return found[0]

    def tree_ended(self) -> TreeEnded:
        ended = self.until(TreeEnded, "the tree has ended")
        assert isinstance(ended, TreeEnded)
        return ended


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    driver = Driver(tmp_path)
    yield driver
    driver.link.close()
    assert driver.link.wait(10)
    driver.lock.close()


def test_a_tree_whose_deadline_passes_is_ended_by_the_runner_alone(driver: Driver) -> None:
    driver.link.allow_until(SystemClock().elapsed_ms() + 200, 500)
    driver.command("sleep", "600")
    ended = driver.tree_ended()
    assert (ended.by_deadline, ended.gone, ended.outcome) == (True, True, None)


def test_a_deadline_that_is_pushed_on_ends_nothing(driver: Driver) -> None:
    clock = SystemClock()
    driver.link.allow_until(clock.elapsed_ms() + 300, 500)
    driver.command("sleep", "0.6")
    driver.link.allow_until(clock.elapsed_ms() + 60_000, 500)
    ended = driver.tree_ended()
    assert ended.outcome is not None
    assert ended.outcome.value == '""'


def test_what_is_long_overdue_gets_no_grace(driver: Driver) -> None:
    """As after a suspend of the host: SIGTERM would be ignored for a minute."""
    clock = SystemClock()
    driver.link.allow_until(None, 60_000)
    script = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    driver.command(sys.executable, "-c", script)
    began_ms = clock.elapsed_ms()
    driver.link.allow_until(began_ms - 100_000, 60_000)
    assert driver.tree_ended().by_deadline
    assert clock.elapsed_ms() - began_ms < 10_000


@pytest.mark.parametrize("overdue_ms", [0, 100_000])
def test_a_deadline_cuts_short_a_longer_grace(driver: Driver, overdue_ms: int) -> None:
    clock = SystemClock()
    driver.link.allow_until(None, 500)
    script = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    driver.command(sys.executable, "-c", script)
    driver.link.end_tree(600_000)
    began_ms = clock.elapsed_ms()
    driver.link.allow_until(began_ms + 200 - overdue_ms, 500)
    driver.tree_ended()
    assert clock.elapsed_ms() - began_ms < 10_000


def test_an_idle_child_makes_room_for_a_command_and_comes_back(driver: Driver) -> None:
    driver.call("noop")
    driver.until(CallEnded, "the call has ended")
    driver.command("echo", "one")
    ended = driver.tree_ended()
    assert ended.outcome is not None
    assert ended.outcome.value == '"one\\n"'
    driver.call("noop")
    driver.until(CallEnded, "the call has ended")


def test_calls_that_a_dead_child_had_not_begun_are_named(driver: Driver) -> None:
    for function in ("kill_self", "noop", "noop"):
        driver.call(function)
    ended = driver.tree_ended()
    assert list(ended.unstarted) == [2, 3]
    assert "SIGKILL" in ended.detail


def test_a_recall_and_a_child_share_the_calls_between_them(driver: Driver) -> None:
    for _ in range(200):
        driver.call("noop")
    driver.until(CallEnded, "the first call has ended")
    back = driver.link.recall()
    ended: set[int] = {1}
    while len(ended) + len(back) < 200:
        happened = driver.until(CallEnded, "a call has ended")
        assert isinstance(happened, CallEnded)
        ended.add(happened.call)
    assert ended.isdisjoint(back)
    assert driver.link.recall() == []


def test_stopping_nothing_is_answered_at_once(driver: Driver) -> None:
    assert driver.link.end_tree(0) == [TreeEnded(0, gone=True)]


def test_a_program_that_is_none_is_a_failure_of_the_task(driver: Driver) -> None:
    driver.command("/nowhere/at/all")
    ended = driver.tree_ended()
    assert ended.outcome is not None
    assert ended.outcome.failure is not None
    assert ended.outcome.failure.kind is FailureKind.COMMAND_NOT_FOUND
    driver.command("echo", "two")
    assert driver.tree_ended().outcome is not None
