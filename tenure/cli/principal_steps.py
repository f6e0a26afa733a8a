"""Issuing, rotating, revoking and syncing: the coordinator first, then every node of the broker, then the file.

The order is what makes each step safe to break off. What the coordinator has on record without a user at the broker
lets nobody in, and `sync` or `rotate` mends it. What is revoked is refused by the coordinator at once, whether or not
the broker could be reached.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, final

from tenure.cli.credentials import private_url
from tenure.cli.output import counted
from tenure.errors import BrokerError, UnknownPrincipal, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from pathlib import Path

    from tenure.broker.acl import Grant
    from tenure.broker.principals import Principal
    from tenure.broker.url import BrokerUrl
    from tenure.cli.credentials import CredentialForm, Nodes
    from tenure.cli.desk import Desk
    from tenure.protocol.client_messages import Ask
    from tenure.protocol.principal_messages import Holder

Row = dict[str, Any]

_MOST: Final = 10_000
_TOLD: Final = ("holder", "name", "kind", "role", "capabilities", "most_leases")


@final
@dataclass(frozen=True, slots=True)
class Noun:
    """Whom the steps are about, in the words of messages, commands and users."""

    holder: Holder
    group: Literal["sites", "clients"]
    part: Literal["site", "client"]


SITES: Final = Noun("site", "sites", "site")
CLIENTS: Final = Noun("person", "clients", "client")


def issue(desk: Desk, noun: Noun, name: str, form: CredentialForm, make_ask: Callable[[str], Ask]) -> None:
    """Make a holder known with a first credential; `make_ask` is given the secret's digest."""
    _hand_over(desk, noun, name, form, make_ask)


def rotate(desk: Desk, noun: Noun, name: str, form: CredentialForm) -> None:
    """Give a holder another credential; the one that it has stays good until `finish`."""
    from tenure.protocol.principal_messages import AddCredential

    def add(digest: str) -> Ask:
        return AddCredential(holder=noun.holder, name=name, secret_digest=digest)

    _hand_over(desk, noun, name, form, add, replace=True)


def finish(desk: Desk, noun: Noun, name: str, form: CredentialForm) -> None:
    """End every credential of a holder but the newest, and cut the connections that came with an old one."""
    from tenure.protocol.principal_messages import RetireCredentials

    if form.out is not None or form.address is not None:
        raise UsageError(
            "--finish makes no credential, and takes neither --out nor --address",
            "Leave them out; to make one, leave --finish out",
        )
    with _nodes(desk, form.provisioners) as (_, nodes):
        row = _asked(desk, RetireCredentials(holder=noun.holder, name=name))
        _put(desk, nodes, [_grant(desk, row)])
        nodes.disconnect(_principal(desk, noun, name))
    text = f"Only the newest credential of {noun.holder} {name} is good now."
    desk.output.answer({"holder": noun.holder, "name": name, "state": row["state"]}, text)


def revoke(desk: Desk, noun: Noun, name: str, provisioners: Sequence[Path], reason: str) -> None:
    """Throw a holder out. Asked twice: the second time the coordinator clears what came in between."""
    from tenure.protocol.principal_messages import Revoke

    ask = Revoke(holder=noun.holder, name=name, reason=reason)
    with desk.session.open_nodes([private_url(path) for path in provisioners]) as nodes:
        row = _asked(desk, ask)
        try:
            nodes.drop(_principal(desk, noun, name))
        except BrokerError as error:
            raise type(error)(
                f"{noun.holder} {name} is revoked and nothing of it is taken any more, but {error.message}",
                "Run the same command again, so that the broker, too, lets it in no more",
            ) from error
    if noun.holder == "site":
        _asked(desk, ask)
    number = row.get("released", 0)
    verb = "was" if number == 1 else "were"
    released = f" {counted(number, 'lease')} {verb} released." if number else ""
    told = {"holder": noun.holder, "name": name, "state": row["state"], "released": number}
    desk.output.answer(told, f"{noun.holder.capitalize()} {name} is revoked.{released}")


def sync(desk: Desk, noun: Noun, provisioners: Sequence[Path], names: Sequence[str]) -> None:
    """Make the broker's users again from what the coordinator has on record, and end those that are not on it."""
    with _nodes(desk, provisioners) as (_, nodes):
        # Before the record is read: whoever is issued in between is on record, and is not taken for somebody gone.
        there = {each.name for each in nodes.users(desk.settings.namespace) if each.part == noun.part}
        wanted = {row["name"]: _grant(desk, row) for row in on_record(desk, noun)}
        gone = sorted(there - wanted.keys() - unrecorded())
        if unknown := sorted(set(names) - wanted.keys() - set(gone)):
            raise UnknownPrincipal(f"there is no {noun.holder} {unknown[0]}", f"See `tenure {noun.group} list`")
        chosen = set(names) or wanted.keys() | set(gone)
        made, ended = sorted(chosen & wanted.keys()), sorted(chosen & set(gone))
        _put(desk, nodes, [wanted[name] for name in made])
        nodes.drop(*(_principal(desk, noun, name) for name in ended))
    rows = [{"name": name, "step": step} for names, step in ((made, "made"), (ended, "ended")) for name in names]
    if desk.output.as_json:
        desk.output.json(rows)
        return
    for row in rows:
        desk.output.say(f"The user of {noun.holder} {row['name']} was {row['step']}.")
    if not rows:
        desk.output.say(f"There are no {noun.group} with credentials.")


def on_record(desk: Desk, noun: Noun) -> list[Row]:
    """The holders that the broker should let in, each with the digests of its secrets.

    Raises:
        UsageError: they do not fit into one answer; what is missing from it must not be taken for revoked.
    """
    from tenure.protocol.client_messages import Query

    reply = desk.ask(Query(what="credentials", where=(("holder", noun.holder),), limit=_MOST))
    if reply.warnings or len(reply.rows) == _MOST:
        raise UsageError(f"there are too many {noun.group} for one answer", "Use another namespace for some of them")
    found: dict[str, Row] = {}
    for row in reply.rows:
        found.setdefault(row["name"], {**row, "secret_digests": []})["secret_digests"].append(row["secret_digest"])
    return list(found.values())


def unrecorded() -> frozenset[str]:
    """Users of these names are made by `tenure broker secure` and by hand, and are on no record."""
    from tenure.broker.keys import DEFAULT_PERSON, DEFAULT_SITE

    return frozenset({DEFAULT_SITE, DEFAULT_PERSON})


def grant_of(namespace: str, row: Mapping[str, Any]) -> Grant:
    """The broker's user as the record wants it."""
    from tenure.broker.acl import person_grant, site_grant
    from tenure.protocol.principal_messages import Role

    name, digests = str(row["name"]), tuple(row["secret_digests"])
    if row["holder"] == "site":
        return site_grant(namespace, name, tuple(row["capabilities"]), digests)
    return person_grant(namespace, name, Role(row["role"]), digests)


def _hand_over(
    desk: Desk,
    noun: Noun,
    name: str,
    form: CredentialForm,
    make_ask: Callable[[str], Ask],
    *,
    replace: bool = False,
) -> None:
    from tenure.broker.credentials import digest_of, new_secret

    form.check(replace=replace)
    secret = new_secret(desk.session.entropy)
    with _nodes(desk, form.provisioners) as (urls, nodes):
        url = form.url_for(urls[0], _principal(desk, noun, name).user, secret)
        row = _asked(desk, make_ask(digest_of(secret)))
        try:
            _put(desk, nodes, [_grant(desk, row)])
        except BrokerError as error:
            remedy = f"It is on record, but lets nobody in: `tenure {noun.group} rotate {name}` when the broker answers"
            raise type(error)(error.message, remedy) from error
    form.give(desk, url, {key: row[key] for key in _TOLD if row.get(key)})


def _put(desk: Desk, nodes: Nodes, grants: Sequence[Grant]) -> None:
    if not nodes.put(*grants) and grants:
        desk.remark("The broker has no file of its users: after a restart of it, run `sites sync` and `clients sync`.")


@contextmanager
def _nodes(desk: Desk, paths: Sequence[Path]) -> Generator[tuple[list[BrokerUrl], Nodes]]:
    """Every node of the broker, by a user that may make users, and seen to answer before anything is on record."""
    urls = [private_url(path) for path in paths]
    with desk.session.open_nodes(urls) as nodes:
        nodes.users(desk.settings.namespace)
        yield urls, nodes


def _asked(desk: Desk, ask: Ask) -> Row:
    return dict(desk.ask(ask).rows[0])


def _grant(desk: Desk, row: Mapping[str, Any]) -> Grant:
    return grant_of(desk.settings.namespace, row)


def _principal(desk: Desk, noun: Noun, name: str) -> Principal:
    from tenure.broker.principals import Principal

    return Principal(desk.settings.namespace, noun.part, name)
