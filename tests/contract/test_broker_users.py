"""Making, ending and checking the broker's users on real servers, and what that does to those who are connected."""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tenure.broker.acl import coordinator_grant, site_grant
from tenure.broker.base import EntryId, LogKey, Readers, Stream
from tenure.broker.credentials import address_for, digest_of, new_secret, write_credential
from tenure.broker.keys import Keys
from tenure.broker.principals import Principal
from tenure.broker.provisioning import Provisioner, User
from tenure.broker.redis_client import RedisClient
from tenure.broker.redis_connection import RedisConnection
from tenure.broker.redis_coordinator import RedisCoordinator
from tenure.broker.redis_worker import RedisWorker
from tenure.broker.securing import SecurePlan, secure
from tenure.broker.url import BrokerUrl
from tenure.clock import SystemClock, SystemEntropy
from tenure.errors import BrokerRefused, BrokerUnreachable
from tests.fault.figures import WAKINGS
from tests.fixtures_services import require_program
from tests.lateness import Lateness
from tests.secured import SecuredBroker, is_waited_for, launch_secured
from tests.servers import KINDS, Server, launch
from tests.waiting import in_thread, wait_until

LONG_MS = 30_000
AT_ONCE_MS = 1_000
LAB = Principal("main", "site", "lab")
ANNA = Principal("main", "client", "anna")
START = EntryId(0, 0)


@pytest.fixture
def coordinator(secured_broker: SecuredBroker) -> Iterator[RedisCoordinator]:
    """A coordinator that has made the streams of the site `lab` and of the person `anna`."""
    with closing(secured_broker.connect(secured_broker.coordinator_url)) as connection:
        coordinator = RedisCoordinator(connection, Keys("main"))
        streams = [Stream("lab", "cpu"), Stream("lab", worker_id="lab.w1")]
        coordinator.ensure_streams(readers=Readers(("lab",), ("anna",)), assignments=streams)
        yield coordinator


@pytest.fixture
def provisioner(secured_broker: SecuredBroker) -> Iterator[Provisioner]:
    with closing(secured_broker.provisioner()) as provisioner:
        yield provisioner


def worker(secured: SecuredBroker) -> RedisWorker:
    connection = secured.connect(secured.site_url("lab"))
    return RedisWorker(connection, Keys("main"), site="lab", worker_id="lab.w1")


def client(secured: SecuredBroker) -> RedisClient:
    return RedisClient(secured.connect(secured.person_url("anna")), Keys("main"), person="anna", client_id="c1")


def clients_of(secured: SecuredBroker, principal: Principal) -> int:
    listed = secured.admin("CLIENT", "LIST")
    assert isinstance(listed, bytes)
    return listed.decode().count(f" user={principal.user} ")


@contextmanager
def at_once() -> Generator[None]:
    """What is in here takes next to no time, apart from what a busy machine takes by waking everyone late."""
    clock = SystemClock()
    with Lateness() as lateness:
        began_ms = clock.elapsed_ms()
        yield
        took_ms = clock.elapsed_ms() - began_ms
    assert took_ms < AT_ONCE_MS + WAKINGS * lateness.delay_ms(), f"{took_ms} ms, {lateness.delay_ms()} ms late"


# --- revocation ----------------------------------------------------------------------------------


def taking(secured: SecuredBroker) -> Callable[[], object]:
    face = worker(secured)
    return lambda: face.take(capabilities=["cpu"], limit=1, block_ms=LONG_MS)


def listening(secured: SecuredBroker) -> Callable[[], object]:
    face = worker(secured)
    return lambda: face.orders(after=START, block_ms=LONG_MS)


def awaiting_answers(secured: SecuredBroker) -> Callable[[], object]:
    face = client(secured)
    return lambda: face.answers(after=START, block_ms=LONG_MS)


def following(secured: SecuredBroker) -> Callable[[], object]:
    face = client(secured)
    return lambda: face.printed(LogKey("lab", "0" * 26, 1), after=START, block_ms=LONG_MS)


@pytest.mark.parametrize(
    ("principal", "reader"), [(LAB, taking), (LAB, listening), (ANNA, awaiting_answers), (ANNA, following)]
)
def test_a_revocation_ends_a_read_that_waits(
    secured_broker: SecuredBroker,
    coordinator: RedisCoordinator,
    principal: Principal,
    reader: Callable[[SecuredBroker], Callable[[], object]],
) -> None:
    read = reader(secured_broker)
    blocked = in_thread(read)
    wait_until(lambda: is_waited_for(secured_broker), "the reader waits at the server")
    with at_once():
        secured_broker.revoke(principal)
        with pytest.raises(BrokerUnreachable):
            blocked.result(timeout=LONG_MS / 2_000)
    with pytest.raises(BrokerRefused, match="refuses this user or password"):
        read()


def test_a_revocation_closes_connections_that_are_open_and_idle(
    secured_broker: SecuredBroker, coordinator: RedisCoordinator
) -> None:
    site, other = (
        worker(secured_broker),
        RedisWorker(
            secured_broker.connect(secured_broker.site_url("other")), Keys("main"), site="other", worker_id="other.w1"
        ),
    )
    site.report([b"one"])
    other.marker()

    with at_once():
        secured_broker.revoke(LAB)
        wait_until(lambda: not clients_of(secured_broker, LAB), "no connection of the site is open")
    with pytest.raises(BrokerUnreachable):
        site.report([b"two"])
    with pytest.raises(BrokerRefused):
        site.report([b"three"])
    other.marker()
    found = coordinator.receive(readers=Readers(("lab",)), limit=10, block_ms=0)
    assert [each.raw for each in found] == [b"one"]


def test_a_user_may_be_ended_twice(secured_broker: SecuredBroker, provisioner: Provisioner) -> None:
    secured_broker.site_url("lab")

    assert provisioner.drop(LAB)
    assert provisioner.drop(LAB)
    assert LAB not in provisioner.users("main")


# --- rotation ------------------------------------------------------------------------------------


def test_a_credential_is_exchanged_while_its_holder_works(
    secured_broker: SecuredBroker, coordinator: RedisCoordinator, provisioner: Provisioner, tmp_path: Path
) -> None:
    here = BrokerUrl(f"redis://127.0.0.1:{secured_broker.server.port}/0")
    old, new = new_secret(SystemEntropy()), new_secret(SystemEntropy())
    provisioner.put(site_grant("main", "lab", ["cpu"], [digest_of(old)]))
    file = write_credential(tmp_path / "lab.url", address_for(here, LAB, old))
    connection = RedisConnection(BrokerUrl(file.read_text().strip(), file))
    site = RedisWorker(connection, Keys("main"), site="lab", worker_id="lab.w1")
    site.report([b"one"])

    provisioner.put(site_grant("main", "lab", ["cpu"], [digest_of(old), digest_of(new)]))
    site.report([b"two"])
    write_credential(file, address_for(here, LAB, new))
    provisioner.put(site_grant("main", "lab", ["cpu"], [digest_of(new)]))
    site.report([b"by a connection that nobody has closed"])
    assert provisioner.disconnect(LAB) == 1
    with pytest.raises(BrokerUnreachable):
        site.report([b"lost"])
    site.report([b"three"])

    with closing(secured_broker.connect(address_for(here, LAB, old))) as stolen, pytest.raises(BrokerRefused):
        stolen.call("PING")
    assert len(coordinator.receive(readers=Readers(("lab",)), limit=10, block_ms=0)) == 4


def test_new_rights_hold_for_connections_that_are_open(
    secured_broker: SecuredBroker, coordinator: RedisCoordinator, provisioner: Provisioner
) -> None:
    site = worker(secured_broker)
    coordinator.ensure_streams(readers=Readers(), assignments=[Stream("lab", "gpu")])
    with pytest.raises(BrokerRefused):
        site.take(capabilities=["gpu"], limit=1, block_ms=0)

    secured_broker.site_url("lab", ["gpu"])

    assert site.take(capabilities=["gpu"], limit=1, block_ms=0) == []
    with pytest.raises(BrokerRefused):
        site.take(capabilities=["cpu"], limit=1, block_ms=0)


# --- who may do this, and for how long it holds --------------------------------------------------


def test_the_coordinator_can_make_nobody(secured_broker: SecuredBroker) -> None:
    with closing(Provisioner([secured_broker.connect(secured_broker.coordinator_url)])) as provisioner:
        with pytest.raises(BrokerRefused):
            provisioner.put(site_grant("main", "lab", ["cpu"], [digest_of("x")]))
        with pytest.raises(BrokerRefused):
            provisioner.drop(LAB)


def test_every_server_is_told_even_when_one_is_away(secured_broker: SecuredBroker) -> None:
    away = RedisConnection(BrokerUrl("redis://127.0.0.1:1"))
    there = secured_broker.connect(secured_broker.provisioner_url)
    with closing(Provisioner([away, there])) as provisioner, pytest.raises(BrokerUnreachable):
        provisioner.put(site_grant("main", "lab", ["cpu"], [digest_of("x")]))

    assert secured_broker.admin("ACL", "GETUSER", LAB.user) is not None


@pytest.mark.parametrize("server_kind", KINDS)
def test_users_outlive_a_restart_of_a_server_with_a_file_for_them(server_kind: str, tmp_path: Path) -> None:
    program = require_program(server_kind)
    secured = launch_secured(program, tmp_path)
    try:
        url = secured.site_url("lab")
        port = secured.server.port
        secured.server.stop()
        secured.server = launch_secured(program, tmp_path, port=port).server

        with closing(secured.connect(url)) as site:
            assert site.call("PING") == b"PONG"
    finally:
        secured.server.stop()


@pytest.fixture(params=KINDS)
def open_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A server that lets everybody in and has no file for its users."""
    server = launch(require_program(request.param), tmp_path)
    yield server
    server.stop()


def test_a_server_without_a_file_for_users_says_that_it_forgets_them(open_server: Server) -> None:
    with closing(Provisioner([open_server.connect()])) as administrator:
        assert not administrator.put(site_grant("main", "lab", ["cpu"], [digest_of("x")]))
        assert [each.user for each in administrator.users("main")] == [LAB.user]
        assert administrator.users("side") == frozenset()


# --- securing ------------------------------------------------------------------------------------


def test_an_open_server_is_secured_and_secured_again(open_server: Server, tmp_path: Path) -> None:
    plan = SecurePlan("main", BrokerUrl(open_server.url), tmp_path / "credentials")
    stranger = open_server.connect()
    stranger.call("PING")
    with closing(Provisioner([open_server.connect()])) as administrator:
        done = secure(administrator, plan, SystemEntropy())

    assert (done.default_is_off, done.is_kept) == (True, False)
    with pytest.raises(BrokerUnreachable):
        stranger.call("PING")  # it was open, and was closed
    with pytest.raises(BrokerRefused):
        stranger.call("PING")
    files = (done.coordinator, done.provisioner, done.operator)
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    texts = [file.read_text() for file in files]
    with closing(Provisioner([RedisConnection(BrokerUrl(texts[1].strip()))])) as provisioner:
        again = secure(provisioner, plan, SystemEntropy())
        assert again == done
        assert [file.read_text() for file in files] == texts
        operator = Principal("main", "client", "default")
        assert provisioner.users("main") == {
            Principal("main", "coordinator"),
            Principal("main", "provisioner"),
            operator,
        }
    for text in (texts[0], texts[2]):
        with closing(RedisConnection(BrokerUrl(text.strip()))) as connection:
            assert connection.call("PING") == b"PONG"


def test_a_default_user_with_a_password_stays_unless_it_is_asked_for(open_server: Server) -> None:
    open_server.admin("CONFIG", "SET", "requirepass", "theirs")
    by = f":{'theirs'}"
    with closing(Provisioner([open_server.connect(user=by)])) as administrator:
        assert not administrator.close_default()
        with closing(open_server.connect(user=by)) as other:
            assert other.call("PING") == b"PONG"
        assert administrator.close_default(also_with_password=True)
    with closing(open_server.connect(user=by)) as other, pytest.raises(BrokerRefused):
        other.call("PING")


# --- checking ------------------------------------------------------------------------------------


def differences(secured: SecuredBroker, provisioner: Provisioner) -> set[str]:
    """In what the coordinator and the site `lab` are not what they were granted."""
    coordinator = [digest_of(secured.secrets[Principal("main", "coordinator")])]
    found: set[str] = set()
    for grant in (
        coordinator_grant("main", coordinator),
        site_grant("main", "lab", ["cpu", "gpu"], [digest_of(secured.secrets[LAB])]),
    ):
        (user,), (good,) = provisioner.found(grant.principal.user), provisioner.as_granted(grant)
        if user is None:
            found.add("missing")
        else:
            found |= {name for name in User.__slots__ if getattr(user, name) != getattr(good, name)}
    return found


@pytest.mark.parametrize(
    ("harm", "expected"),
    [
        ("{lab} -ping", {"rights"}),
        ("{lab} ~*", {"has_more"}),
        ("{lab} allchannels", {"has_more"}),
        ("{lab} (+get ~*)", {"rights"}),
        ("{lab} (+@all ~*)", {"rights"}),
        ("{coordinator} +acl", {"rights"}),
        ("{coordinator} +acl|setuser", {"rights"}),
        ("{coordinator} clearselectors", {"rights"}),
        ("{lab} >another", {"digests"}),
        ("{lab} resetpass", {"digests"}),
        ("{lab} nopass", {"digests", "needs_no_secret"}),
        ("{lab} off", {"is_on"}),
    ],
)
def test_whatever_differs_from_the_grant_is_seen(
    secured_broker: SecuredBroker, provisioner: Provisioner, harm: str, expected: set[str]
) -> None:
    """Servers spell the same rights in ways of their own, so a grant is compared with what the server makes of it."""
    names = {"lab": LAB.user, "coordinator": Principal("main", "coordinator").user}
    secured_broker.site_url("lab", ["gpu", "cpu"])
    secured_broker.site_url("lab", ["cpu", "gpu"])
    assert differences(secured_broker, provisioner) == set()
    before = secured_broker.admin("ACL", "USERS")

    secured_broker.admin("ACL", "SETUSER", names[harm[1 : harm.index("}")]], *rules_of(harm))

    assert differences(secured_broker, provisioner) == expected
    assert secured_broker.admin("ACL", "USERS") == before, "what was made to compare with is gone"


def rules_of(harm: str) -> list[str]:
    """The rules; what stands in parentheses is one."""
    _, _, rules = harm.partition(" ")
    return [rules] if rules.startswith("(") else rules.split()


def test_a_user_that_is_gone_is_none(provisioner: Provisioner) -> None:
    assert provisioner.found(LAB.user) == [None]


def test_replicas_are_counted(secured_broker: SecuredBroker, provisioner: Provisioner) -> None:
    assert provisioner.replicas() == 0
