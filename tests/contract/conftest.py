"""Every implementation of the broker behind one bench, so that one suite can ask the same of all of them."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Protocol

import pytest

from tenure.broker.base import ClientBroker, CoordinatorBroker, EntryId, Publication, Stream, WorkerBroker
from tenure.broker.keys import DEFAULT_PERSON, Keys
from tenure.broker.memory import MemoryBroker
from tenure.broker.memory_store import MemoryStore
from tenure.broker.redis_client import RedisClient
from tenure.broker.redis_connection import RedisConnection
from tenure.broker.redis_coordinator import RedisCoordinator
from tenure.broker.redis_worker import RedisWorker
from tenure.protocol.assignment import Assignment, Ticket
from tenure.testing import ManualClock
from tests.broker_names import CPU, OWN, READERS
from tests.fixtures_artifacts import (
    STORES,
    MemoryStoreBench,
    S3Server,
    StoreBench,
    broker_bench,
    folder_bench,
    fsspec_bench,
    launch_s3,
    s3_bench,
)
from tests.fixtures_secured import secured_broker
from tests.fixtures_services import require_program
from tests.secured import SecuredBroker, launch_secured
from tests.secured_bench import SecuredBench
from tests.servers import KINDS, Server, launch
from tests.waiting import wait_until

__all__ = ["secured_broker"]


class Bench(Protocol):
    """One namespace of one implementation, and what a test may do to the broker behind it."""

    def coordinator(self) -> CoordinatorBroker: ...
    def worker(self, worker_id: str = "w1", site: str = "lab") -> WorkerBroker: ...
    def client(self, client_id: str = "c1", person: str = DEFAULT_PERSON) -> ClientBroker: ...
    def flush(self) -> None: ...
    def fill(self) -> None: ...
    def make_room(self) -> None: ...
    def until(self, predicate: Callable[[], object], description: str) -> None: ...


class MemoryBench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.broker = MemoryBroker(self.store, Keys("main"))

    def coordinator(self) -> CoordinatorBroker:
        return self.broker.coordinator()

    def worker(self, worker_id: str = "w1", site: str = "lab") -> WorkerBroker:
        return self.broker.worker(site=site, worker_id=worker_id)

    def client(self, client_id: str = "c1", person: str = DEFAULT_PERSON) -> ClientBroker:
        return self.broker.client(client_id=client_id, person=person)

    def flush(self) -> None:
        self.store.flush()

    def fill(self) -> None:
        self.store.full = True

    def make_room(self) -> None:
        self.store.full = False

    def until(self, predicate: Callable[[], object], description: str) -> None:
        for _ in range(1_000):
            if predicate():
                return
            self.clock.advance_ms(10)
        pytest.fail(f"in vain until {description}")


class ServerBench:
    def __init__(self, server: Server, namespace: str) -> None:
        self.server = server
        self.keys = Keys(namespace)
        self.connections: list[RedisConnection] = []

    def connect(self) -> RedisConnection:
        self.connections.append(self.server.connect())
        return self.connections[-1]

    def coordinator(self) -> RedisCoordinator:
        return RedisCoordinator(self.connect(), self.keys)

    def worker(self, worker_id: str = "w1", site: str = "lab") -> RedisWorker:
        return RedisWorker(self.connect(), self.keys, site=site, worker_id=worker_id)

    def client(self, client_id: str = "c1", person: str = DEFAULT_PERSON) -> RedisClient:
        return RedisClient(self.connect(), self.keys, client_id=client_id, person=person)

    def flush(self) -> None:
        self.server.admin("FLUSHALL")

    def fill(self) -> None:
        self.server.admin("CONFIG", "SET", "maxmemory", "1")

    def make_room(self) -> None:
        self.server.admin("CONFIG", "SET", "maxmemory", "0")

    def until(self, predicate: Callable[[], object], description: str) -> None:
        wait_until(predicate, description)

    def close(self) -> None:
        self.make_room()
        for connection in self.connections:
            connection.close()


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Server]]:
    """The server of a kind that all tests share; started when it is first asked for."""
    servers: dict[str, Server] = {}

    def server_of(kind: str) -> Server:
        if kind not in servers:
            servers[kind] = launch(require_program(kind), tmp_path_factory.mktemp(kind))
        return servers[kind]

    yield server_of
    for server in servers.values():
        server.stop()


@pytest.fixture(scope="session")
def namespaces() -> Iterator[int]:
    return count(1)


@pytest.fixture(params=KINDS)
def server_bench(
    request: pytest.FixtureRequest, running: Callable[[str], Server], namespaces: Iterator[int]
) -> Iterator[ServerBench]:
    """A fresh namespace on a real server."""
    bench = ServerBench(running(request.param), f"ns{next(namespaces)}")
    yield bench
    bench.close()


@pytest.fixture(scope="session")
def running_secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], SecuredBroker]]:
    """The server with users of a kind that all tests share; started when it is first asked for."""
    brokers: dict[str, SecuredBroker] = {}

    def broker_of(kind: str) -> SecuredBroker:
        if kind not in brokers:
            brokers[kind] = launch_secured(require_program(kind), tmp_path_factory.mktemp(kind))
        return brokers[kind]

    yield broker_of
    for broker in brokers.values():
        broker.server.stop()


@pytest.fixture(params=["memory", *KINDS, *(f"{kind} with users" for kind in KINDS)])
def bench(
    request: pytest.FixtureRequest,
    running: Callable[[str], Server],
    running_secured: Callable[[str], SecuredBroker],
    namespaces: Iterator[int],
) -> Iterator[Bench]:
    """A fresh namespace of every implementation, and of servers that hold each face to the rights of its part."""
    kind, _, with_users = str(request.param).partition(" ")
    if kind == "memory":
        yield MemoryBench()
        return
    namespace = f"ns{next(namespaces)}"
    bench = SecuredBench(running_secured(kind), namespace) if with_users else ServerBench(running(kind), namespace)
    yield bench
    bench.close()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], S3Server]]:
    """The S3-compatible server that all tests share; started when it is first asked for."""
    servers: list[S3Server] = []

    def running_server() -> S3Server:
        if not servers:
            servers.append(launch_s3(tmp_path_factory.mktemp("s3")))
        return servers[0]

    yield running_server
    for server in servers:
        server.stop()


@pytest.fixture(params=STORES)
def store_bench(
    request: pytest.FixtureRequest,
    running: Callable[[str], Server],
    s3_server: Callable[[], S3Server],
    namespaces: Iterator[int],
    tmp_path: Path,
) -> Iterator[StoreBench]:
    """An empty store of artifacts of every implementation."""
    name = f"store{next(namespaces)}"
    match request.param:
        case "memory":
            bench: StoreBench = MemoryStoreBench()
        case "folder":
            bench = folder_bench(tmp_path)
        case "broker":
            bench = broker_bench(running("valkey"), name)
        case "fsspec":
            bench = fsspec_bench(name)
        case _:
            bench = s3_bench(s3_server(), name)
    yield bench
    bench.store.close()


@pytest.fixture(params=KINDS)
def own_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers that a test may harm, with the options it wants."""
    program = require_program(request.param)
    started: list[Server] = []

    def start(*options: str, port: int = 0) -> Server:
        started.append(launch(program, tmp_path, *options, port=port))
        return started[-1]

    yield start
    for server in started:
        server.stop()


def publication(sequence: int, *, epoch: int = 1, capability: str = "", worker_id: str = "") -> Publication:
    ticket = Ticket(
        task_id="0" * 26,
        attempt=1,
        fence=sequence,
        digest="0" * 64,
        epoch=epoch,
        start="granted",
        ttl_ms=30_000,
    )
    assignment = Assignment(ticket=ticket, envelope=b'{"exact":  "bytes\xc3\xa9"}')
    stream = Stream("lab", worker_id=worker_id) if worker_id else Stream("lab", capability or "cpu")
    return Publication(EntryId(epoch, sequence), assignment, stream)


@pytest.fixture
def make() -> Callable[..., Publication]:
    """Builds a publication of the sequence number that is given."""
    return publication


@pytest.fixture
def opened(bench: Bench) -> CoordinatorBroker:
    """A coordinator that has made the streams of capability cpu, worker w1 and site lab."""
    coordinator = bench.coordinator()
    coordinator.ensure_streams(readers=READERS, assignments=[CPU, OWN])
    return coordinator
