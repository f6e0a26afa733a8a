"""A broker behind TLS that asks for certificates, with Debian's Redis only: the Valkey of the tests knows no TLS."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tenure.broker.base import EntryId, Readers
from tenure.broker.credentials import address_for
from tenure.broker.keys import Keys
from tenure.broker.principals import Principal
from tenure.broker.redis_connection import RedisConnection
from tenure.broker.redis_coordinator import RedisCoordinator
from tenure.broker.redis_worker import RedisWorker
from tenure.broker.url import BrokerUrl
from tenure.errors import BrokerError, BrokerRefused, BrokerUnreachable
from tests.certificates import Certificates, make_certificates
from tests.fixtures_services import require_program
from tests.secured import SecuredBroker, is_waited_for, launch_secured
from tests.servers import free_port
from tests.waiting import in_thread, wait_until

LAB = Principal("main", "site", "lab")
LONG_MS = 30_000


@dataclass
class Encrypted:
    secured: SecuredBroker
    port: int
    certificates: Certificates

    def url(self, principal: Principal = LAB, *, options: str | None = None, host: str = "127.0.0.1") -> str:
        options = self.certificates.client_options() if options is None else options
        return address_for(
            BrokerUrl(f"rediss://{host}:{self.port}/0?{options}"), principal, self.secured.secrets[principal]
        )

    def connect(self, url: str) -> RedisConnection:
        return RedisConnection(BrokerUrl(url))


@pytest.fixture
def encrypted(tmp_path: Path) -> Iterator[Encrypted]:
    """A server that listens for TLS, with the site `lab`; the port without TLS is for the test's own administrator."""
    certificates = make_certificates(tmp_path / "certificates")
    port = free_port()
    options = ("--tls-port", str(port), *certificates.server_options())
    secured = launch_secured(require_program("redis7"), tmp_path, *options)
    try:
        secured.site_url("lab")
        yield Encrypted(secured, port, certificates)
    finally:
        secured.server.stop()


def test_a_site_works_with_a_certificate_and_its_credential(encrypted: Encrypted) -> None:
    with (
        closing(encrypted.connect(encrypted.url(Principal("main", "coordinator")))) as theirs,
        closing(encrypted.connect(encrypted.url())) as ours,
    ):
        coordinator = RedisCoordinator(theirs, Keys("main"))
        coordinator.ensure_streams(readers=Readers(("lab",)))
        site = RedisWorker(ours, Keys("main"), site="lab", worker_id="lab.w1")

        site.report([b"over TLS"])

        found = coordinator.receive(readers=Readers(("lab",)), limit=1, block_ms=0)
        assert [each.raw for each in found] == [b"over TLS"]


def test_without_a_certificate_nobody_is_let_in_whatever_the_credential(encrypted: Encrypted) -> None:
    connection = encrypted.connect(encrypted.url(options=encrypted.certificates.client_options(client="")))

    # The server says why and closes at once, so the reason may be lost on the way.
    with closing(connection), pytest.raises(BrokerError):
        connection.call("PING")


def test_a_certificate_of_another_authority_lets_nobody_in(encrypted: Encrypted) -> None:
    connection = encrypted.connect(encrypted.url(options=encrypted.certificates.client_options(client="other")))

    # The server says why and closes at once, so the reason may be lost on the way.
    with closing(connection), pytest.raises(BrokerError):
        connection.call("PING")


def test_a_certificate_without_a_credential_is_not_enough(encrypted: Encrypted) -> None:
    url = f"rediss://127.0.0.1:{encrypted.port}/0?{encrypted.certificates.client_options()}"

    with closing(encrypted.connect(url)) as connection, pytest.raises(BrokerRefused, match="user or password"):
        connection.call("PING")


@pytest.mark.parametrize(
    ("authority", "host"), [("other", "127.0.0.1"), ("ca", "localhost")], ids=["authority", "host name"]
)
def test_a_secret_is_told_to_nobody_who_is_not_the_broker(encrypted: Encrypted, authority: str, host: str) -> None:
    url = encrypted.url(options=encrypted.certificates.client_options(authority), host=host)

    with closing(encrypted.connect(url)) as connection, pytest.raises(BrokerRefused, match="do not agree on TLS"):
        connection.call("PING")


def test_a_secret_is_not_sent_in_clear_to_a_port_for_tls(encrypted: Encrypted) -> None:
    url = encrypted.url().replace("rediss://", "redis://").partition("?")[0]

    with closing(encrypted.connect(url)) as connection, pytest.raises(BrokerError) as caught:
        connection.call("PING")

    assert encrypted.secured.secrets[LAB] not in str(caught.value)


def test_a_revocation_ends_an_encrypted_read_that_waits(encrypted: Encrypted) -> None:
    with closing(encrypted.connect(encrypted.url())) as connection:
        site = RedisWorker(connection, Keys("main"), site="lab", worker_id="lab.w1")
        blocked = in_thread(lambda: site.orders(after=EntryId(0, 0), block_ms=LONG_MS))
        wait_until(lambda: is_waited_for(encrypted.secured), "the reader waits at the server")

        encrypted.secured.revoke(LAB)

        with pytest.raises(BrokerUnreachable):
            blocked.result(timeout=LONG_MS / 2_000)
        with pytest.raises(BrokerRefused):
            site.marker()
