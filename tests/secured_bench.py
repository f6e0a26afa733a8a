"""The bench of the broker's contract with users: each face comes with its own credential, and none is ever refused."""

from collections.abc import Callable
from typing import cast

from tenure.broker.keys import DEFAULT_PERSON, Keys
from tenure.broker.redis_client import RedisClient
from tenure.broker.redis_connection import RedisConnection
from tenure.broker.redis_coordinator import RedisCoordinator
from tenure.broker.redis_worker import RedisWorker
from tests.secured import SecuredBroker
from tests.waiting import wait_until

CAPABILITIES = ("cpu", "gpu")


class SecuredBench:
    """One namespace of a server with users; see `Bench` in `tests/contract/conftest.py`."""

    def __init__(self, secured: SecuredBroker, namespace: str) -> None:
        self.secured = SecuredBroker(secured.server, secured.folder, namespace)
        self.secured.open()
        self.keys = Keys(namespace)
        self.connections: list[RedisConnection] = []

    def connect(self, url: str) -> RedisConnection:
        self.connections.append(self.secured.connect(url))
        return self.connections[-1]

    def coordinator(self) -> RedisCoordinator:
        return RedisCoordinator(self.connect(self.secured.coordinator_url), self.keys)

    def worker(self, worker_id: str = "w1", site: str = "lab") -> RedisWorker:
        url = self.secured.site_url(site, CAPABILITIES)
        return RedisWorker(self.connect(url), self.keys, site=site, worker_id=worker_id)

    def client(self, client_id: str = "c1", person: str = DEFAULT_PERSON) -> RedisClient:
        return RedisClient(self.connect(self.secured.person_url(person)), self.keys, client_id=client_id, person=person)

    def flush(self) -> None:
        self.secured.admin("FLUSHALL")

    def fill(self) -> None:
        self.secured.admin("CONFIG", "SET", "maxmemory", "1")

    def make_room(self) -> None:
        self.secured.admin("CONFIG", "SET", "maxmemory", "0")

    def until(self, predicate: Callable[[], object], description: str) -> None:
        wait_until(predicate, description)

    @staticmethod
    def refusals_of(secured: SecuredBroker) -> list[dict[str, object]]:
        """What the server has refused users of that namespace."""
        listed = cast("list[list[bytes]]", secured.admin("ACL", "LOG", 100))
        found = [dict(zip((name.decode() for name in each[::2]), each[1::2], strict=True)) for each in listed]
        ours = f"tenure.{secured.namespace}.".encode()
        return [dict(each) for each in found if each["username"].startswith(ours)]

    def close(self) -> None:
        self.make_room()
        for connection in self.connections:
            connection.close()
        assert not self.refusals_of(self.secured), "a face has sent what its user may not"
