"""Issuing, granting, rotating, revoking, syncing: the coordinator first, then every node of the broker, then the file.

The order is what makes each step safe to break off. What the coordinator has on record without a user at the broker
lets nobody in, and `sync` or `rotate` mends it. What is revoked is refused by the coordinator at once, whether or not
the broker could be reached. Two operators may be at it at the same time: after users were made the record is read
again, so that nobody makes again what somebody else has ended meanwhile.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, final

from tenure.cli.credentials import provisioner_url
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
_TOLD: Final = ("holder", "name", "kind", "role", "capabilities", "devices", "most_leases")
_ROUNDS: Final = 10
"""How often the record may change while users are made by it."""


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
        _put_one(desk, noun, nodes, row)
        nodes.disconnect(_principal(desk, noun, name))
    text = f"Only the newest credential of {noun.holder} {name} is good now."
    desk.output.answer({"holder": noun.holder, "name": name, "state": row["state"]}, text)


def change(desk: Desk, noun: Noun, name: str, provisioners: Sequence[Path], ask: Ask) -> Row:
    """Have a holder be granted something else from now on; its connections stay. Answers what is on record now."""
    with _nodes(desk, provisioners) as (_, nodes):
        row = _asked(desk, ask)
        try:
            _put_one(desk, noun, nodes, row)
        except BrokerError as error:
            remedy = f"Run `tenure {noun.group} sync {name}` when the broker answers"
            raise type(error)(f"That is on record of {noun.holder} {name}, but {error.message}", remedy) from error
    return {key: row[key] for key in _TOLD if key in row}


def revoke(desk: Desk, noun: Noun, name: str, provisioners: Sequence[Path], reason: str) -> None:
    """Throw a holder out. Asked twice: the second time the coordinator clears what came in between."""
    from tenure.protocol.principal_messages import Revoke

    ask = Revoke(holder=noun.holder, name=name, reason=reason)
    with desk.session.open_nodes([provisioner_url(path, desk.settings.namespace) for path in provisioners]) as nodes:
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
        wanted = {row["name"]: row for row in on_record(desk, noun)}
        gone = sorted(there - wanted.keys() - unrecorded())
        if unknown := sorted(set(names) - wanted.keys() - set(gone)):
            raise UnknownPrincipal(f"there is no {noun.holder} {unknown[0]}", f"See `tenure {noun.group} list`")
        chosen = set(names) or wanted.keys() | set(gone)
        made, ended = sorted(chosen & wanted.keys()), sorted(chosen & set(gone))
        revoked = _put(desk, noun, nodes, [wanted[name] for name in made])
        nodes.drop(*(_principal(desk, noun, name) for name in ended))
        made, ended = [name for name in made if name not in revoked], [*ended, *revoked]
    rows = [{"name": name, "step": step} for names, step in ((made, "made"), (ended, "ended")) for name in names]
    if desk.output.as_json:
        desk.output.json(rows)
        return
    for row in rows:
        desk.output.say(f"The user of {noun.holder} {row['name']} was {row['step']}.")
    if not rows:
        desk.output.say(f"There are no {noun.group} with credentials.")


def on_record(desk: Desk, noun: Noun, name: str | None = None) -> list[Row]:
    """The holders that the broker should let in, or one of them, each with the digests of its secrets.

    They are read in as many pages as it takes: what is missing must not be taken for revoked.

    Raises:
        UsageError: one alone does not fit into an answer.
    """
    from tenure.protocol.client_messages import Query

    where = (("holder", noun.holder), *([("name", name)] if name is not None else []))
    found: dict[str, Row] = {}
    after: tuple[tuple[str, str], ...] = ()
    while True:
        reply = desk.ask(Query(what="credentials", where=(*where, *after), limit=_MOST))
        is_cut = bool(reply.warnings) or len(reply.rows) == _MOST
        # The last one of a page may have more secrets on the next: it is read again from there.
        split = reply.rows[-1]["name"] if is_cut and reply.rows else None
        whole = [row for row in reply.rows if row["name"] != split]
        for row in whole:
            found.setdefault(row["name"], {**row, "secret_digests": []})["secret_digests"].append(row["secret_digest"])
        if not is_cut:
            return list(found.values())
        if not whole:
            raise UsageError(f"the credentials of {split} do not fit into one answer", "Ask whoever runs the fleet")
        after = (("after", whole[-1]["name"]),)


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
            _put_one(desk, noun, nodes, row)
        except BrokerError as error:
            remedy = f"It is on record, but lets nobody in: `tenure {noun.group} rotate {name}` when the broker answers"
            raise type(error)(error.message, remedy) from error
    form.give(desk, url, {key: row[key] for key in _TOLD if row.get(key)})


def _put_one(desk: Desk, noun: Noun, nodes: Nodes, row: Row) -> None:
    if _put(desk, noun, nodes, [row]):
        raise UnknownPrincipal(
            f"the {noun.holder} {row['name']} was revoked meanwhile", f"See `tenure {noun.group} show {row['name']}`"
        )


def _put(desk: Desk, noun: Noun, nodes: Nodes, rows: Sequence[Row]) -> list[str]:
    """Make users as the record has them, until it says that they are; those that it has no more are ended.

    Answers who was ended: somebody else has revoked them since the record was read.
    """
    wanted = {str(row["name"]): _grant(desk, row) for row in rows}
    keeps, gone = True, set[str]()
    for _ in range(_ROUNDS):
        if not wanted:
            break
        keeps = nodes.put(*wanted.values())
        (name, *others) = wanted
        now = {str(row["name"]): _grant(desk, row) for row in on_record(desk, noun, None if others else name)}
        if revoked := wanted.keys() - now.keys():
            nodes.drop(*(_principal(desk, noun, each) for each in sorted(revoked)))
            gone |= revoked
        wanted = {name: now[name] for name, grant in wanted.items() if name in now and _differ(grant, now[name])}
    if not keeps:
        desk.remark("The broker has no file of its users: after a restart of it, run `sites sync` and `clients sync`.")
    return sorted(gone)


def _differ(one: Grant, other: Grant) -> bool:
    return (one.rights, set(one.digests)) != (other.rights, set(other.digests))


@contextmanager
def _nodes(desk: Desk, paths: Sequence[Path]) -> Generator[tuple[list[BrokerUrl], Nodes]]:
    """Every node of the broker, by a user that may make users, and seen to answer before anything is on record."""
    urls = [provisioner_url(path, desk.settings.namespace) for path in paths]
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
