"""What only a real server can do to us: block, vanish, refuse, run out of memory, be something else."""

import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

import pytest

from tenure.broker.base import EntryId, LogKey, Mailing, Publication, StreamEntry, WithdrawOutcome
from tenure.broker.incarnation import Incarnation, compare, require_safe
from tenure.broker.keys import DEFAULT_PERSON, GROUP, Keys
from tenure.broker.redis_client import RedisClient
from tenure.broker.redis_connection import RedisConnection
from tenure.broker.redis_coordinator import RedisCoordinator
from tenure.broker.redis_worker import RedisWorker
from tenure.broker.url import BrokerUrl
from tenure.errors import BrokerRefused, BrokerUnreachable, BrokerUnsafe, StreamMissing
from tests.broker_names import C1, CPU, OWN, READERS, W1
from tests.contract.conftest import ServerBench
from tests.servers import HARDENED, Server, free_port

Make = Callable[..., Publication]
Starts = Callable[..., Server]
START = EntryId(0, 0)
LONG_MS = 30_000


@pytest.fixture
def coordinator(server_bench: ServerBench) -> RedisCoordinator:
    found = server_bench.coordinator()
    found.ensure_streams(readers=READERS, assignments=[CPU, OWN])
    return found


def in_thread(call: Callable[[], object]) -> Future[object]:
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(call)
    finally:
        pool.shutdown(wait=False)


Reader = Callable[[ServerBench], tuple[Callable[[], object], Callable[[], None]]]


def taking(bench: ServerBench) -> tuple[Callable[[], object], Callable[[], None]]:
    worker = bench.worker()
    return lambda: worker.take(capabilities=["cpu"], limit=1, block_ms=LONG_MS), worker.close


def listening(bench: ServerBench) -> tuple[Callable[[], object], Callable[[], None]]:
    worker = bench.worker()
    return lambda: worker.orders(after=START, block_ms=LONG_MS), worker.close


def awaiting_answers(bench: ServerBench) -> tuple[Callable[[], object], Callable[[], None]]:
    client = bench.client()
    return lambda: client.answers(after=START, block_ms=LONG_MS), client.close


def following(bench: ServerBench) -> tuple[Callable[[], object], Callable[[], None]]:
    client = bench.client()
    log = LogKey("lab", "0" * 26, 1)
    return lambda: client.printed(log, after=START, block_ms=LONG_MS), client.close


def receiving(bench: ServerBench) -> tuple[Callable[[], object], Callable[[], None]]:
    connection = bench.connect()
    coordinator = RedisCoordinator(connection, bench.keys)
    return lambda: coordinator.receive(readers=READERS, limit=1, block_ms=LONG_MS), connection.close


# --- blocked readers -----------------------------------------------------------------------------


@pytest.mark.parametrize("reader", [taking, listening, awaiting_answers, following, receiving])
def test_closing_from_another_thread_ends_a_blocked_reader(
    server_bench: ServerBench, coordinator: RedisCoordinator, reader: Reader
) -> None:
    read, close = reader(server_bench)
    blocked = in_thread(read)
    server_bench.server.wait_until_blocked()

    close()

    with pytest.raises(BrokerUnreachable, match="closed by this process"):
        blocked.result(timeout=5)


def test_a_reader_never_goes_on_reading_from_the_connection_that_took_its_sockets_number(
    server_bench: ServerBench, coordinator: RedisCoordinator
) -> None:
    """Were the socket closed under the reader, the next connection would get its number, and its replies the reader."""
    for _ in range(30):
        read, close = awaiting_answers(server_bench)
        blocked = in_thread(read)
        server_bench.server.wait_until_blocked()
        close()
        another = server_bench.connect()
        assert another.call("PING") == b"PONG"
        with pytest.raises(BrokerUnreachable, match="closed by this process"):
            blocked.result(timeout=1)
        another.close()


@pytest.mark.parametrize("reader", [taking, receiving])
def test_a_flush_ends_a_blocked_reader(
    server_bench: ServerBench, coordinator: RedisCoordinator, reader: Reader
) -> None:
    blocked = in_thread(reader(server_bench)[0])
    server_bench.server.wait_until_blocked()

    server_bench.flush()

    with pytest.raises(StreamMissing):
        blocked.result(timeout=5)


def test_a_blocked_reader_gets_what_comes(server_bench: ServerBench, coordinator: RedisCoordinator, make: Make) -> None:
    taken, heard = in_thread(taking(server_bench)[0]), in_thread(listening(server_bench)[0])
    server_bench.until(lambda: server_bench.server.blocked_readers() == 2, "both readers are blocked")

    coordinator.publish([make(1)])
    coordinator.post([Mailing(b"stop", W1)], {}, 1_000)

    assert len(taken.result(timeout=5)) == 1  # type: ignore[arg-type]
    assert len(heard.result(timeout=5)) == 1  # type: ignore[arg-type]


def test_a_server_that_dies_ends_a_blocked_reader(own_server: Starts) -> None:
    server = own_server()
    keys = Keys("main")
    RedisCoordinator(server.connect(), keys).ensure_streams(readers=READERS, assignments=[CPU, OWN])
    worker = RedisWorker(server.connect(), keys, site="lab", worker_id="w1")
    blocked = in_thread(lambda: worker.take(capabilities=["cpu"], limit=1, block_ms=LONG_MS))
    server.wait_until_blocked()

    server.stop()

    with pytest.raises(BrokerUnreachable):
        blocked.result(timeout=5)


def test_closing_at_any_moment_never_leaves_a_reader_behind(
    server_bench: ServerBench, coordinator: RedisCoordinator
) -> None:
    """The close races with connecting, sending and reading."""
    for _ in range(50):
        read, close = taking(server_bench)
        going = threading.Event()

        def run(read: Callable[[], object] = read, going: threading.Event = going) -> object:
            going.set()
            return read()

        blocked = in_thread(run)
        going.wait(5)
        close()
        with pytest.raises(BrokerUnreachable):
            blocked.result(timeout=5)


# --- connections ---------------------------------------------------------------------------------


def test_a_connection_is_made_again_after_the_server_came_back(own_server: Starts) -> None:
    server = own_server()
    connection = server.connect()
    connection.call("PING")
    server.stop()

    with pytest.raises(BrokerUnreachable):
        connection.call("PING")
    own_server(port=server.port)
    assert connection.call("PING") == b"PONG"


def test_nothing_listens(own_server: Starts) -> None:
    connection = RedisConnection(BrokerUrl(f"redis://:secret@127.0.0.1:{free_port()}"))

    with pytest.raises(BrokerUnreachable, match="Connection refused") as caught:
        connection.call("PING")
    assert "secret" not in str(caught.value)


def test_a_frozen_server_is_given_up_and_nothing_is_sent_twice(own_server: Starts) -> None:
    server = own_server()
    keys = Keys("main")
    RedisCoordinator(server.connect(), keys).ensure_streams(readers=READERS)
    worker = RedisWorker(server.connect(timeout_ms=200), keys, site="lab", worker_id="w1")
    worker.marker()
    server.process.send_signal(19)
    try:
        with pytest.raises(BrokerUnreachable, match="in time"):
            worker.report([b"one"])
    finally:
        server.process.send_signal(18)

    assert server.admin("XLEN", keys.inbox("lab")) == 1


def test_a_wrong_password_is_refused_and_never_shown(own_server: Starts) -> None:
    server = own_server("--requirepass", "right")

    for user in (":wr0ng-secret", ""):
        with pytest.raises(BrokerRefused, match="user or password") as caught:
            server.connect(user=user).call("PING")
        assert "wr0ng-secret" not in repr(caught.value)
    assert server.connect(user=":right").call("PING") == b"PONG"


def test_a_user_of_few_rights_works_within_them_and_is_told_of_others(
    server_bench: ServerBench, coordinator: RedisCoordinator
) -> None:
    keys, server = server_bench.keys, server_bench.server
    rights = [f"(+xadd %W~{keys.inbox('lab')})", f"(+set %W~{keys.heartbeat(W1)})"]
    rights += [f"(+get %R~{keys.echo(W1)})", f"(+xreadgroup %R~{keys.assignments(CPU)} %R~{keys.assignments(OWN)})"]
    server.admin("ACL", "LOG", "RESET")
    server.admin("ACL", "SETUSER", "few", "reset", "on", ">pw", *rights)
    worker = RedisWorker(server.connect(user="few:pw"), keys, site="lab", worker_id="w1")

    worker.report([b"one"])
    worker.beat(b"alive", 1_000)
    assert worker.take(capabilities=["cpu"], limit=1, block_ms=0) == []
    with pytest.raises(BrokerRefused, match="does not allow"):
        worker.take(capabilities=["gpu"], limit=1, block_ms=0)
    with pytest.raises(BrokerRefused, match="does not allow"):
        worker.farewell()
    assert len(server.admin_list("ACL", "LOG")) == 2


def test_a_unix_socket_and_a_database_number(server_bench: ServerBench) -> None:
    path, port = server_bench.server.socket_path, server_bench.server.port

    assert RedisConnection(BrokerUrl(f"unix://{path}")).call("PING") == b"PONG"
    assert RedisConnection(BrokerUrl(f"valkey://127.0.0.1:{port}/0")).call("PING") == b"PONG"


@pytest.mark.parametrize(
    ("scheme", "complaint"), [("redis", "not a Redis or Valkey server"), ("rediss", "do not agree on TLS")]
)
def test_something_else_answers(scheme: str, complaint: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1_000)
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        served = in_thread(answer)
        connection = RedisConnection(BrokerUrl(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"))
        with pytest.raises(BrokerRefused, match=complaint):
            connection.call("PING")
        served.result(timeout=5)


def test_a_key_of_another_program_is_named(server_bench: ServerBench) -> None:
    server_bench.server.admin("SET", server_bench.keys.rpc(DEFAULT_PERSON), "mine")

    with pytest.raises(BrokerRefused, match="something else under one of our keys"):
        server_bench.client().ask(b"question")
    with pytest.raises(BrokerRefused, match="something else under one of our keys"):
        server_bench.coordinator().ensure_streams(readers=READERS)


# --- entries -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        ("x", "y"),
        ("h", "{}", "e", "{}"),
        ("h", "not json", "e", "{}"),
        ("e", "{}"),
        ("h", "[" * 4_000, "e", "{}"),
        ("h", "{}", "e", "x" * 70_000),
    ],
)
def test_an_assignment_that_cannot_be_read_is_handed_out_as_none(
    server_bench: ServerBench, coordinator: RedisCoordinator, fields: tuple[str, ...]
) -> None:
    server_bench.server.admin("XADD", server_bench.keys.assignments(CPU), "1-1", *fields)

    (found,) = server_bench.worker().take(capabilities=["cpu"], limit=1, block_ms=0)

    assert (found.entry_id, found.assignment) == (EntryId(1, 1), None)


def test_a_report_without_a_message_is_delivered_empty(
    server_bench: ServerBench, coordinator: RedisCoordinator
) -> None:
    server_bench.server.admin("XADD", server_bench.keys.inbox("lab"), "*", "x", "y")

    assert [d.raw for d in coordinator.receive(readers=READERS, limit=1, block_ms=0)] == [b""]


def test_an_entry_that_vanished_unsettled_does_not_come_back_for_ever(
    server_bench: ServerBench, coordinator: RedisCoordinator
) -> None:
    server, inbox = server_bench.server, server_bench.keys.inbox("lab")
    server_bench.worker().report([b"one"])
    coordinator.receive(readers=READERS, limit=1, block_ms=0)
    server.admin("XTRIM", inbox, "MAXLEN", "0")

    assert coordinator.unsettled(readers=READERS, limit=1) == []
    assert server.admin_list("XPENDING", inbox, GROUP)[0] == 0


def test_entries_that_vanished_unsettled_are_not_taken_for_all_that_there_is(
    server_bench: ServerBench, coordinator: RedisCoordinator
) -> None:
    server_bench.worker().report([b"one", b"two", b"three"])
    coordinator.receive(readers=READERS, limit=3, block_ms=0)
    server_bench.server.admin("XTRIM", server_bench.keys.inbox("lab"), "MAXLEN", "1")

    assert [each.raw for each in coordinator.unsettled(readers=READERS, limit=1)] == [b"three"]


def test_an_entry_read_without_acknowledgement_counts_as_delivered(
    server_bench: ServerBench, coordinator: RedisCoordinator, make: Make
) -> None:
    """A worker may pass NOACK, which no right can forbid: no pending entry is left."""
    coordinator.publish([make(1), make(2)])
    cpu = server_bench.keys.assignments(CPU)
    server_bench.server.admin(
        *("XREADGROUP", "GROUP", GROUP, "sly", "COUNT", 1, "NOACK", "STREAMS", cpu, ">"),
    )

    assert coordinator.withdraw([StreamEntry(CPU, EntryId(1, 1)), StreamEntry(CPU, EntryId(1, 2))]) == [
        WithdrawOutcome.DELIVERED,
        WithdrawOutcome.UNDELIVERED,
    ]


def test_mailboxes_expire(server_bench: ServerBench, coordinator: RedisCoordinator) -> None:
    coordinator.post([Mailing(b"a", W1), Mailing(b"b", C1)], {}, 1_000)
    keys, server = server_bench.keys, server_bench.server

    assert server.admin("TTL", keys.control(W1)) in range(86_390, 86_401)
    assert server.admin("TTL", keys.reply(C1)) in range(3_590, 3_601)


def test_many_large_envelopes_are_published(own_server: Starts, make: Make) -> None:
    """More than a server lets one transaction queue, under the limits that are recommended."""
    pattern = make(1)
    large = pattern.assignment.model_copy(update={"envelope": b"x" * 60_000})
    many = [Publication(EntryId(1, n), large, CPU) for n in range(1, 101)]

    with closing(own_server(*HARDENED).connect()) as connection:
        coordinator = RedisCoordinator(connection, Keys("main"))
        coordinator.ensure_streams(readers=READERS, assignments=[CPU])
        assert set(coordinator.publish(many)) == {"published"}


# --- incarnations --------------------------------------------------------------------------------


def test_a_restart_and_a_loss_are_told_apart(own_server: Starts) -> None:
    server = own_server("--appendonly", "yes")
    coordinator = RedisCoordinator(server.connect(), Keys("main"))
    coordinator.mark("m1")
    before = coordinator.state()
    assert compare(before, coordinator.state()) == Incarnation.SAME
    server.process.terminate()
    server.process.wait()

    again = own_server("--appendonly", "yes", port=server.port)
    with pytest.raises(BrokerUnreachable):
        coordinator.state()
    assert compare(before, coordinator.state()) == Incarnation.RESTARTED_WITH_DATA
    again.admin("FLUSHALL")
    assert compare(before, coordinator.state()) == Incarnation.LOST_DATA


def test_a_server_that_evicts_is_unsafe(own_server: Starts) -> None:
    server = own_server("--maxmemory-policy", "allkeys-lru")

    state = RedisCoordinator(server.connect(), Keys("main")).state()

    with pytest.raises(BrokerUnsafe, match=r"allkeys-lru.*CONFIG SET maxmemory-policy noeviction"):
        require_safe(state)


def test_a_client_closes_even_when_the_server_is_gone(own_server: Starts) -> None:
    server = own_server()
    client = RedisClient(server.connect(), Keys("main"), client_id="c1")
    client.marker()
    server.stop()

    client.close()
