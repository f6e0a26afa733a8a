"""Whether a broker's users are what is on record: who is missing, who should not be there, whose rights differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tenure.broker.acl import Grant
    from tenure.broker.provisioning import Provisioner, User

_DEFAULT: Final = "default"


@final
@dataclass(frozen=True, slots=True)
class Deviation:
    """One thing about the broker's users that is not as it should be.

    Attributes:
        user: the broker's user that it is about; "" when it is about the server.
        text: what is wrong, as the end of a sentence that begins with the user.
        remedy: what to do about it.
        is_risk: whether it lets somebody do more than was granted, rather than less.
    """

    user: str
    text: str
    remedy: str
    is_risk: bool


def deviations(provisioner: Provisioner, namespace: str, grants: Sequence[Grant]) -> list[Deviation]:
    """All that differs between what is granted and what the servers have, the risks first.

    Args:
        provisioner: reaches every server.
        namespace: whose users are looked at.
        grants: everything that is on record. Of a grant without digests (the coordinator's and the provisioner's, whose
            secrets nobody else knows) only the rights are compared.

    Raises:
        BrokerError: a server cannot be asked.
    """
    found = [*_default(provisioner), *_strangers(provisioner, namespace, grants)]
    for grant in grants:
        found.extend(_compared(provisioner, grant))
    found.extend(_of_servers(provisioner))
    return sorted(found, key=lambda each: not each.is_risk)


def _default(provisioner: Provisioner) -> Iterator[Deviation]:
    if any(user is not None and user.is_on and user.needs_no_secret for user in provisioner.found(_DEFAULT)):
        text = "lets everybody in without a password"
        yield Deviation(_DEFAULT, text, "`tenure broker secure` turns it off", is_risk=True)


def _strangers(provisioner: Provisioner, namespace: str, grants: Sequence[Grant]) -> Iterator[Deviation]:
    known = {grant.principal.user for grant in grants}
    for user in sorted(each.user for each in provisioner.users(namespace)):
        if user not in known:
            yield Deviation(user, "is let in, but is not on record", f"On the broker: ACL DELUSER {user}", is_risk=True)


def _compared(provisioner: Provisioner, grant: Grant) -> Iterator[Deviation]:
    user = grant.principal.user
    remedy = _remedy(grant)
    pairs = zip(provisioner.addresses, provisioner.found(user), provisioner.as_granted(grant), strict=True)
    for address, found, granted in pairs:
        if found is None:
            yield Deviation(user, f"is missing at {address}", remedy, is_risk=False)
            continue
        for text, is_risk in _differences(found, granted, with_secrets=bool(grant.digests)):
            yield Deviation(user, f"{text} at {address}", remedy, is_risk=is_risk)


def _differences(found: User, granted: User, *, with_secrets: bool) -> Iterator[tuple[str, bool]]:
    if not found.is_on:
        yield "is turned off", False
    if found.needs_no_secret:
        yield "needs no secret", True
    if found.rights != granted.rights or found.has_more:
        yield "has other rights than were granted", True
    if with_secrets and found.digests - granted.digests:
        yield "is let in by a secret that is not on record", True
    if with_secrets and granted.digests - found.digests:
        yield "is not let in by every secret that is on record", False


def _remedy(grant: Grant) -> str:
    return {
        "site": "`tenure sites sync` makes it again",
        "client": "`tenure clients sync` makes it again",
    }.get(grant.principal.part, "`tenure broker secure` makes it again")


def _of_servers(provisioner: Provisioner) -> Iterator[Deviation]:
    if not provisioner.save():
        text = "the broker forgets its users when it restarts"
        yield Deviation("", text, "Give it an aclfile, or `tenure sites sync` after every restart", is_risk=False)
    if (replicas := provisioner.replicas()) > len(provisioner.addresses) - 1:
        text = f"the broker feeds {replicas} replicas, which have users of their own"
        yield Deviation("", text, "Name every server in the provisioner's file", is_risk=True)
