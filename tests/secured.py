"""A server that lets nobody in without a credential: no default user, and one user for each part of a fleet.

The fixture `secured_broker` of `tests/fixtures_secured.py` starts one; `launch_secured` takes options of one's own.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from tenure.broker.acl import Grant, coordinator_grant, person_grant, provisioner_grant, site_grant
from tenure.broker.credentials import address_for, digest_of, new_secret
from tenure.broker.principals import Principal
from tenure.broker.provisioning import Provisioner
from tenure.broker.redis_connection import RedisConnection, Reply
from tenure.broker.url import BrokerUrl
from tenure.clock import SystemEntropy
from tenure.protocol.principal_messages import Role
from tests.servers import Server, launch

ADMIN = "admin"
PASSWORD = "the-tests-own"
CAPABILITIES = ("cpu",)
_TIMEOUT_MS = 30_000


@dataclass
class SecuredBroker:
    """A running server with users for one namespace, and the addresses of those that were made.

    A server keeps its users in `folder/users.acl`, so it may be stopped and started again on the same port.
    """

    server: Server
    folder: Path
    namespace: str = "main"
    secrets: dict[Principal, str] = field(default_factory=dict[Principal, str])

    @property
    def admin_url(self) -> str:
        """The address by which a test itself may do everything."""
        return f"redis://{ADMIN}:{PASSWORD}@127.0.0.1:{self.server.port}/0"

    @property
    def coordinator_url(self) -> str:
        """The address for the coordinator."""
        return self.url_of(Principal(self.namespace, "coordinator"))

    @property
    def provisioner_url(self) -> str:
        """The address for what makes and ends users."""
        return self.url_of(Principal(self.namespace, "provisioner"))

    def site_url(self, site: str, capabilities: Sequence[str] = CAPABILITIES) -> str:
        """The address for a site, whose user is made, or given these capabilities, by this."""
        secret = self._secret(Principal(self.namespace, "site", site))
        return self.grant(site_grant(self.namespace, site, capabilities, [digest_of(secret)]))

    def person_url(self, person: str, role: Role = Role.OPERATOR) -> str:
        """The address for a person, whose user is made, or given this role, by this."""
        secret = self._secret(Principal(self.namespace, "client", person))
        return self.grant(person_grant(self.namespace, person, role, [digest_of(secret)]))

    def open(self) -> None:
        """Make the users of the coordinator and of the provisioner."""
        parts = Principal(self.namespace, "coordinator"), Principal(self.namespace, "provisioner")
        coordinator, provisioner = ([digest_of(self._secret(part))] for part in parts)
        with closing(Provisioner([self.connect(self.admin_url)])) as admin:
            admin.put(coordinator_grant(self.namespace, coordinator), provisioner_grant(self.namespace, provisioner))

    def grant(self, grant: Grant) -> str:
        """Make a user; its address, when its secret was drawn here."""
        with closing(self.provisioner()) as provisioner:
            provisioner.put(grant)
        return self.url_of(grant.principal)

    def revoke(self, principal: Principal) -> None:
        """End a user at the broker, which is only the second step of a revocation."""
        with closing(self.provisioner()) as provisioner:
            provisioner.drop(principal)

    def url_of(self, principal: Principal) -> str:
        """The address of a user that was made before."""
        return address_for(BrokerUrl(f"redis://127.0.0.1:{self.server.port}/0"), principal, self.secrets[principal])

    def provisioner(self) -> Provisioner:
        """What makes and ends users, over a connection that the caller closes."""
        return Provisioner([self.connect(self.provisioner_url)])

    def connect(self, url: str) -> RedisConnection:
        """A new connection."""
        return RedisConnection(BrokerUrl(url), timeout_ms=_TIMEOUT_MS)

    def admin(self, *command: str | bytes | int) -> Reply:
        """The reply to one command of an administrator."""
        with closing(self.connect(self.admin_url)) as connection:
            return connection.call(*command)

    def _secret(self, principal: Principal) -> str:
        return self.secrets.setdefault(principal, new_secret(SystemEntropy()))


def launch_secured(program: str, folder: Path, *options: str, namespace: str = "main", port: int = 0) -> SecuredBroker:
    """Start a server of that program with the users that `folder` has; with a coordinator and a provisioner, if none.

    Its user `default` is off: a connection without a credential may do nothing.
    """
    users = folder / "users.acl"
    is_new = not users.exists()
    if is_new:
        users.write_text(f"user default off\nuser {ADMIN} on #{digest_of(PASSWORD)} ~* &* +@all\n")
    secured = SecuredBroker(launch(program, folder, "--aclfile", str(users), *options, port=port), folder, namespace)
    if is_new:
        secured.open()
    return secured


def is_waited_for(secured: SecuredBroker) -> bool:
    """Whether one reader waits at the server."""
    info = secured.admin("INFO", "clients")
    assert isinstance(info, bytes)
    return b"blocked_clients:1\r" in info
