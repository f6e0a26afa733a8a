"""What `tenure doctor` looks at with a provisioner's credential: whether the broker's users are as they should be.

What is on record with the coordinator is what should be. A user that may do more, a secret that is not on record, a
user of somebody who was revoked: each is a way in that nobody has allowed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from tenure.broker.keys import DEFAULT_PERSON
from tenure.broker.principals import Principal
from tenure.cli import checks
from tenure.cli.credentials import provisioner_url
from tenure.cli.principal_steps import CLIENTS, SITES, grant_of, on_record, unrecorded
from tenure.errors import TenureError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tenure.broker.acl import Grant
    from tenure.cli.checks import Finding
    from tenure.cli.credentials import Nodes
    from tenure.cli.desk import Desk

_ABOUT: Final = "credentials"


@final
@dataclass(frozen=True, slots=True)
class _Wanted:
    """A user as it should be, and what mends it."""

    grant: Grant
    remedy: str


def users(desk: Desk, paths: Sequence[Path]) -> Iterator[Finding]:
    """Compare the broker's users with what is on record; nothing without a provisioner's credential."""
    if not paths:
        return
    try:
        with desk.session.open_nodes([provisioner_url(path, desk.settings.namespace) for path in paths]) as nodes:
            yield from _compared(desk, nodes)
    except TenureError as error:
        yield checks.bad(_ABOUT, f"the broker's users cannot be looked at: {error.message}", error.remedy)


def _compared(desk: Desk, nodes: Nodes) -> Iterator[Finding]:
    namespace = desk.settings.namespace
    there = nodes.users(namespace)
    recorded = _recorded(desk)
    found = [*_default(nodes), *_strangers(there, recorded)]
    for wanted in (*recorded.values(), *_parts(namespace, nodes)):
        found += _one(nodes, wanted)
    unseen = nodes.replicas() + 1 - len(nodes.addresses)
    if unseen > 0:
        text = f"{unseen} replicas of the broker have users of their own, at which this did not look"
        found.append(checks.warn(_ABOUT, text, "Give a --provisioner-url-file for each, here and to every command"))
    yield from found
    if not [finding for finding in found if finding.level == "bad"]:
        yield checks.ok(_ABOUT, f"the broker's {len(there)} users may do what is on record, and nothing else")


def _recorded(desk: Desk) -> Mapping[Principal, _Wanted]:
    grants = {
        noun: [grant_of(desk.settings.namespace, row) for row in on_record(desk, noun)] for noun in (SITES, CLIENTS)
    }
    return {
        grant.principal: _Wanted(grant, f"tenure {noun.group} sync {grant.principal.name}")
        for noun, some in grants.items()
        for grant in some
    }


def _parts(namespace: str, nodes: Nodes) -> Iterator[_Wanted]:
    """The users that are on no record: their rights are looked at, and the secrets that they have are taken as good."""
    from tenure.broker.acl import coordinator_grant, person_grant, provisioner_grant
    from tenure.protocol.principal_messages import Role

    def secrets(principal: Principal) -> tuple[str, ...]:
        return tuple(sorted({digest for user in nodes.found(principal.user) if user for digest in user.digests}))

    remedy = "tenure broker secure"
    operator = Principal(namespace, "client", DEFAULT_PERSON)
    yield _Wanted(coordinator_grant(namespace, secrets(Principal(namespace, "coordinator"))), remedy)
    yield _Wanted(provisioner_grant(namespace, secrets(Principal(namespace, "provisioner"))), remedy)
    yield _Wanted(person_grant(namespace, DEFAULT_PERSON, Role.OPERATOR, secrets(operator)), remedy)


def _default(nodes: Nodes) -> Iterator[Finding]:
    for address, user in zip(nodes.addresses, nodes.found("default"), strict=True):
        if user is None or not user.is_on:
            continue
        if user.needs_no_secret:
            yield checks.bad(_ABOUT, f"anybody may come to {address} as the user default", "tenure broker secure")
        else:
            text = f"the user default of {address} may come with a password and do everything"
            yield checks.warn(_ABOUT, text, "tenure broker secure --close-default")


def _strangers(there: frozenset[Principal], recorded: Mapping[Principal, _Wanted]) -> Iterator[Finding]:
    """Users of sites and people that are on no record, as of somebody who was revoked."""
    for principal in sorted(there - recorded.keys(), key=lambda each: each.user):
        if principal.part in {"site", "client"} and principal.name not in unrecorded():
            group = "sites" if principal.part == "site" else "clients"
            text = f"the broker lets in {principal.user}, who is not on record or was revoked"
            yield checks.bad(_ABOUT, text, f"tenure {group} sync {principal.name}")


def _one(nodes: Nodes, wanted: _Wanted) -> Iterator[Finding]:
    name, remedy = wanted.grant.principal.user, wanted.remedy
    there = nodes.found(name)
    if not any(there) and wanted.remedy == "tenure broker secure":
        return  # this fleet has none, and needs none
    expected = nodes.as_granted(wanted.grant)
    for address, user, good in zip(nodes.addresses, there, expected, strict=True):
        if user is None or not user.is_on:
            yield checks.bad(_ABOUT, f"{address} does not let in {name}", remedy)
            continue
        if user.needs_no_secret or user.digests - good.digests:
            yield checks.bad(_ABOUT, f"{address} lets in {name} with a secret that is not on record", remedy)
        if good.digests - user.digests:
            yield checks.bad(_ABOUT, f"{address} does not know every secret of {name}", remedy)
        if (user.rights, user.has_more) != (good.rights, good.has_more):
            yield checks.bad(_ABOUT, f"{name} may do something else at {address} than it should", remedy)
