"""A coordinator whose user was made by a release that asked for less: it goes on, and says what to do."""

import logging
from collections.abc import Callable
from contextlib import closing

import pytest

from tenure.broker import redis_sites
from tenure.broker.acl import coordinator_grant, setuser
from tenure.broker.base import Backlog, Readers
from tenure.broker.credentials import digest_of
from tenure.broker.keys import Keys
from tenure.broker.principals import Principal
from tenure.broker.redis_coordinator import RedisCoordinator
from tenure.errors import BrokerRefused
from tests.secured import SecuredBroker
from tests.servers import Server

LAB = Readers(sites=("lab", "yard"))


def grant(secured: SecuredBroker, *, without: str = "") -> None:
    """Make the coordinator's user, or what it was before its rights had this."""
    secret = secured.secrets[Principal(secured.namespace, "coordinator")]
    command = setuser(coordinator_grant(secured.namespace, [digest_of(secret)]))
    assert without in " ".join(command)
    secured.admin(*(word.replace(f"+{without} ", "") for word in command))


def test_inboxes_are_counted_where_they_may_not_be_weighed_and_that_is_said_once(
    secured_broker: SecuredBroker, caplog: pytest.LogCaptureFixture
) -> None:
    keys = Keys(secured_broker.namespace)
    secured_broker.admin("XADD", keys.inbox("lab"), "*", "m", b"x" * 1_000)
    grant(secured_broker, without="memory|usage")
    with closing(secured_broker.connect(secured_broker.coordinator_url)) as connection:
        sites = RedisCoordinator(connection, keys).sites
        with caplog.at_level(logging.WARNING, redis_sites.LOG.name):
            found = [sites.waiting(LAB) for _ in range(2)]
        assert found == [{"lab": Backlog(1, 0), "yard": Backlog()}] * 2
        assert [record.getMessage().count("tenure broker secure") for record in caplog.records] == [1]

        grant(secured_broker)
        assert sites.waiting(LAB)["lab"].size > 1_000


def test_a_coordinator_that_may_not_even_count_is_refused(secured_broker: SecuredBroker) -> None:
    grant(secured_broker, without="xlen")
    with closing(secured_broker.connect(secured_broker.coordinator_url)) as connection:
        sites = RedisCoordinator(connection, Keys(secured_broker.namespace)).sites
        with pytest.raises(BrokerRefused):
            sites.waiting(LAB)


def test_a_server_without_that_command_is_taken_as_it_is(own_server: Callable[..., Server]) -> None:
    """Some hosted servers let nobody use it."""
    server = own_server("--rename-command", "MEMORY", "")
    keys = Keys("main")
    server.admin("XADD", keys.inbox("lab"), "*", "m", b"x")
    with closing(server.connect()) as connection:
        assert RedisCoordinator(connection, keys).sites.waiting(LAB) == {"lab": Backlog(1, 0), "yard": Backlog()}
