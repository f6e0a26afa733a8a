"""What a client stands on when the settings say so: a broker, the host's clock, a store of files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.broker.keys import Keys
from tenure.broker.principals import person_of
from tenure.broker.redis_client import RedisClient
from tenure.broker.redis_connection import RedisConnection
from tenure.broker.url import BrokerUrl
from tenure.client.session import Wiring
from tenure.clock import SystemClock, SystemEntropy
from tenure.errors import ArtifactStoreUnreachable

if TYPE_CHECKING:
    from tenure.artifacts.base import Store
    from tenure.settings import Settings

_REMEDY = "Start it with `tenure coordinator --artifacts ADDRESS`, or set TENURE_ARTIFACTS"


def wiring_of(settings: Settings) -> Wiring:
    """Connections as the settings say; nothing is connected yet. Raises `InvalidSettings`."""
    broker, keys = BrokerUrl.of(settings), Keys(settings.namespace)
    person = person_of(broker.user, settings.namespace)

    def connect(client_id: str) -> RedisClient:
        return RedisClient(RedisConnection(broker), keys, client_id=client_id, person=person)

    return Wiring(connect, SystemClock(), SystemEntropy(), lambda: store_of(settings), person)


def announced_address(settings: Settings) -> str:
    """Where the coordinator says that files are kept; "" when it says nothing. Raises `BrokerError`."""
    connection = RedisConnection(BrokerUrl.of(settings))
    try:
        return RedisClient(connection, Keys(settings.namespace), client_id="store").store_address()
    finally:
        connection.close()


def store_of(settings: Settings) -> Store:
    """The store that the settings name, else the one that the coordinator has announced, opened.

    Raises:
        ArtifactStoreUnreachable: the fleet has none, or it cannot be reached.
        InvalidSettings: its address or options cannot be used.
        BrokerError: the broker does not say where it is.
    """
    from tenure.artifacts.opening import open_store

    options = settings.artifacts_options()
    address = settings.artifacts or announced_address(settings)
    if not address:
        raise ArtifactStoreUnreachable("the coordinator keeps no files", _REMEDY)
    return open_store(address, options, BrokerUrl.of(settings), settings.namespace)
