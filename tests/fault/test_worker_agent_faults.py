"""Agents in processes of their own, stopped and killed: what they left running must end without them."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from tenure.broker.base import EntryId, Mailing, Publication
from tenure.broker.keys import Keys
from tenure.broker.redis_coordinator import RedisCoordinator
from tenure.clock import SystemClock, SystemEntropy, sortable_id
from tenure.errors import WorkerBusy
from tenure.protocol.assignment import Assignment, Ticket
from tenure.protocol.control_messages import CONTROL, Control, Granted, Order, Registered
from tenure.protocol.envelope import Envelope, digest, encode
from tenure.protocol.worker_messages import REPORT, Cause, Claimed, Finished, Hello, Released, WorkerEvent
from tenure.workers.identity import assume
from tests.fixtures_services import require_program
from tests.fixtures_worker import ADDRESS, HANDLERS, OWN, READERS, STREAM, WORKER, call, python
from tests.servers import Server, launch
from tests.waiting import wait_until

ROOT = str(Path(__file__).parents[2])
AGENT = """
import sys
from pathlib import Path
from tenure.broker.keys import Keys
from tenure.broker.redis_connection import BrokerUrl, RedisConnection
from tenure.broker.redis_worker import RedisWorker
from tenure.clock import SystemClock, SystemEntropy
from tenure.workers.agent import Agent
from tenure.workers.options import WorkerOptions

url, folder, handlers, root = sys.argv[1:]
options = WorkerOptions(
    state_dir=Path(folder),
    worker_id="lab.w1",
    site="lab",
    allow=(handlers,),
    ttl_ms=1_000,
    import_path=(root,),
    slots=2,
)


def connect(name):
    connection = RedisConnection(BrokerUrl(url), timeout_ms=500)
    return RedisWorker(connection, Keys("test"), site="lab", worker_id=name)


Agent(options, connect, SystemClock(), SystemEntropy()).run()
"""
TREE = (
    "import os, signal, subprocess, sys, time;"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "inner = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)';"
    "child = subprocess.Popen([sys.executable, '-c', inner], start_new_session=True);"
    "open(sys.argv[1], 'w').write(f'{os.getpid()} {child.pid}');"
    "time.sleep(600)"
)


class Site:
    """A broker, and agents in processes of their own."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.coordinator = RedisCoordinator(server.connect(), Keys("test"))
        self.coordinator.ensure_streams(readers=READERS, assignments=[STREAM, OWN])
        self.coordinator.mark("first")
        self.events: list[WorkerEvent] = []
        self.agents: list[subprocess.Popen[bytes]] = []
        self.fence = 0
        self._ended = Event()
        self._ears = Thread(target=self._listen, name="site")
        self._ears.start()

    def _listen(self) -> None:
        """Take what the agents report, and answer their hellos."""
        face = RedisCoordinator(self.server.connect(), Keys("test"))
        while not self._ended.is_set():
            deliveries = face.receive(readers=READERS, limit=100, block_ms=100)
            face.settle(deliveries)
            for delivery in deliveries:
                report = REPORT.validate_json(delivery.raw)
                self.events.extend(report.events)
                for event in report.events:
                    self._answer(face, event, report.generation)

    @staticmethod
    def _answer(face: RedisCoordinator, event: WorkerEvent, generation: int) -> None:
        """Register who says hello, and grant what is claimed."""
        order: Order
        match event:
            case Hello(ordinal=ordinal):
                order = Registered(generation=generation, ordinal=ordinal)
            case Claimed(binding=binding):
                order = Granted(task_id=binding.task_id, fence=binding.fence, nonce=binding.nonce)
            case _:
                return
        raw = CONTROL.dump_json(Control(epoch=1, orders=(order,)))
        face.post([Mailing(raw, ADDRESS)], {}, 1_000)

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", AGENT, self.server.url, str(self.folder), HANDLERS, ROOT]
        self.agents.append(subprocess.Popen(command, cwd=ROOT))
        return self.agents[-1]

    def publish(self, envelope: Envelope) -> Ticket:
        self.fence += 1
        raw = encode(envelope)
        ticket = Ticket(
            task_id=sortable_id(SystemClock().now_ms(), SystemEntropy()),
            attempt=1,
            fence=self.fence,
            digest=digest(raw),
            epoch=1,
            start=envelope.start,
            ttl_ms=envelope.lease_ttl_ms,
        )
        assignment = Assignment(ticket=ticket, envelope=raw)
        self.coordinator.publish([Publication(EntryId(1, self.fence), assignment, STREAM)])
        return ticket

    def wait_for(self, kind: type[Finished | Released | Claimed], ticket: Ticket) -> WorkerEvent:
        """The first event of that kind about that assignment."""
        found: list[WorkerEvent] = []

        def holds() -> bool:
            found[:] = [
                event for event in self.events if isinstance(event, kind) and event.binding.fence == ticket.fence
            ]
            return bool(found)

        wait_until(holds, f"a {kind.__name__} of {ticket.fence} among {self.events}")
        return found[0]

    def stop(self) -> None:
        self._ended.set()
        self._ears.join()
        for agent in self.agents:
            agent.send_signal(signal.SIGCONT)
            agent.kill()
            agent.wait()
        self.server.stop()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(launch(require_program("valkey"), tmp_path), tmp_path / "state")
    yield site
    site.stop()


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def pids_in(note: Path) -> list[int]:
    return [int(pid) for pid in note.read_text().split()]


def run_tree(site: Site, note: Path) -> Ticket:
    """Start a command with a grandchild outside its session; both ignore SIGTERM."""
    ticket = site.publish(python(TREE, str(note), lease_ttl_ms=1_000, start="claimed"))
    wait_until(lambda: note.exists() and len(pids_in(note)) == 2, "both processes run")
    return ticket


def test_a_stopped_agent_cannot_leave_anything_running_past_the_lease(site: Site, tmp_path: Path) -> None:
    """The runner's own timer ends the tree; the agent says so when it is woken."""
    note = tmp_path / "pids"
    agent = site.start()
    ticket = run_tree(site, note)
    agent.send_signal(signal.SIGSTOP)
    clock = SystemClock()
    began_ms = clock.elapsed_ms()
    wait_until(lambda: not any(map(alive, pids_in(note))), "the tree has ended")
    assert clock.elapsed_ms() - began_ms < 1_000 + 550 + 1_000  # ttl, grace, and a machine that is busy
    agent.send_signal(signal.SIGCONT)
    release = site.wait_for(Released, ticket)
    assert isinstance(release, Released)
    assert (release.cause, release.started, release.tree_gone) == (Cause.SELF_FENCED, True, True)


def test_what_a_killed_agent_was_running_ends_with_it(site: Site, tmp_path: Path) -> None:
    note = tmp_path / "pids"
    agent = site.start()
    run_tree(site, note)
    agent.kill()
    agent.wait()
    wait_until(lambda: not any(map(alive, pids_in(note))), "the tree has ended")


def test_what_a_killed_agent_was_calling_ends_with_it(site: Site, tmp_path: Path) -> None:
    note = tmp_path / "pids"
    agent = site.start()
    site.publish(call("stubborn", str(note), start="claimed"))
    wait_until(lambda: note.exists() and len(pids_in(note)) == 2, "both processes run")
    agent.kill()
    agent.wait()
    wait_until(lambda: not any(map(alive, pids_in(note))), "the tree has ended")


def test_the_next_agent_starts_nothing_before_the_last_ones_tree_is_gone(site: Site, tmp_path: Path) -> None:
    note = tmp_path / "pids"
    agent = site.start()
    run_tree(site, note)
    agent.kill()
    agent.wait()
    identity = assume(site.folder, WORKER, SystemClock(), SystemEntropy())
    assert not any(map(alive, pids_in(note)))
    assert identity.predecessor > 0
    identity.release()


def test_the_next_agent_gives_back_what_the_last_one_may_have_started(site: Site, tmp_path: Path) -> None:
    note = tmp_path / "pids"
    agent = site.start()
    ticket = run_tree(site, note)
    agent.kill()
    agent.wait()
    site.start()
    release = site.wait_for(Released, ticket)
    assert isinstance(release, Released)
    assert (release.cause, release.started, release.tree_gone) == (Cause.AGENT_RESTARTED, True, True)


def test_the_next_agent_tells_the_results_that_nobody_has_answered(site: Site) -> None:
    agent = site.start()
    ticket = site.publish(call("add", 1, 2, start="claimed"))
    first = site.wait_for(Finished, ticket)
    agent.kill()
    agent.wait()
    site.events.clear()
    site.start()
    assert site.wait_for(Finished, ticket) == first


def test_a_second_agent_of_the_same_worker_is_refused(site: Site) -> None:
    site.start()
    ticket = site.publish(call("add", 1, 2, start="claimed"))
    site.wait_for(Finished, ticket)
    with pytest.raises(WorkerBusy, match="another agent"):
        assume(site.folder, WORKER, SystemClock(), SystemEntropy())


def test_a_killed_runner_takes_its_child_along_and_claims_no_proof(site: Site, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    site.start()
    ticket = site.publish(call("sleep", 600, str(note), start="claimed"))
    wait_until(note.exists, "the call runs")
    (child,) = pids_in(note)
    runner = int(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(runner, signal.SIGKILL)
    release = site.wait_for(Released, ticket)
    assert isinstance(release, Released)
    assert (release.cause, release.started, release.tree_gone) == (Cause.PROCESS_DIED, True, False)
    wait_until(lambda: not alive(child), "the child has ended")
    site.wait_for(Finished, site.publish(call("add", 1, 2, start="claimed")))


def test_tasks_cannot_read_the_memory_or_environment_of_agent_and_runner(site: Site) -> None:
    agent = site.start()
    script = (
        "import os\n"
        "def readable(pid):\n"
        "    try:\n"
        "        return bool(open(f'/proc/{pid}/environ').read())\n"
        "    except OSError:\n"
        "        return False\n"
        f"print(readable(os.getppid()), readable({agent.pid}))\n"
    )
    result = site.wait_for(Finished, site.publish(python(script, start="claimed")))
    assert isinstance(result, Finished)
    expected = '"False False\\n"' if os.geteuid() != 0 else result.outcome.value  # root reads everything
    assert result.outcome.value == expected
