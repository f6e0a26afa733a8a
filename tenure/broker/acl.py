"""What each user of the broker may do: the commands that its part sends, each for the keys that the part touches.

Nothing here talks to a broker. A user's rights are one rule list, as `ACL SETUSER` takes it: first the commands that
name no key, then one parenthesis for each group of commands that touch the same keys. A command must be wholly allowed
by one parenthesis; without them, whoever may SET a heartbeat and XADD to an inbox could SET the inbox.

What no rule can hold back: the options of a command (NOACK, MAXLEN, ids and consumers of one's own choice), and how
much is written. The coordinator therefore believes nothing that a site's streams could not have been made to say.

| user | may |
|---|---|
| a site | take from its own streams of assignments, add to its inbox, write its heartbeats, logs and staging places, \
read orders, echoes and stored contents |
| a person | ask by the person's own stream, read answers, logs and contents; and, but for observers, store \
contents that are not there yet |
| the coordinator | what it needs of every key of its namespace, and nothing about users |
| the provisioner | make and end users, and nothing about keys; whoever may do that can make an administrator |

Selectors came with Redis 7.0 and are in every Valkey.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from tenure.broker.principals import Principal
from tenure.protocol.principal_messages import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

_READ_CONTENT: Final = ("exists", "getrange", "pttl", "strlen")
_STAGE_CONTENT: Final = ("exists", "pexpire", "set", "setrange", "strlen")

_COORDINATOR_ANYWHERE: Final = ("discard", "exec", "info", "multi", "ping", "scan")
_COORDINATOR: Final = (
    *("del", "exists", "expire", "get", "getrange", "memory|usage", "mget", "mset", "pexpire", "pttl", "rename", "set"),
    *("setrange", "strlen", "unlink", "xack", "xadd", "xdel", "xgroup|create", "xinfo|groups", "xinfo|stream", "xlen"),
    *("xpending", "xrange", "xread", "xreadgroup", "xtrim"),
)
_PROVISIONER: Final = (
    *("acl|deluser", "acl|dryrun", "acl|getuser", "acl|save", "acl|setuser", "acl|users", "acl|whoami"),
    *("client|kill", "info", "ping"),
)


@final
@dataclass(frozen=True, slots=True)
class Selector:
    """Commands, and the keys that they may name.

    Attributes:
        commands: names in lower case; a subcommand as `xgroup|create`.
        keys: patterns with what is allowed, such as `%R~tenure:{main}:own:lab:*`.
    """

    commands: tuple[str, ...]
    keys: tuple[str, ...]

    def __str__(self) -> str:
        """The selector as the broker takes it."""
        return f"({' '.join([*(f'+{command}' for command in self.commands), *self.keys])})"


@final
@dataclass(frozen=True, slots=True)
class Rights:
    """All that a user may do.

    Attributes:
        commands: what it may send that names no key.
        selectors: the rest.
    """

    commands: tuple[str, ...]
    selectors: tuple[Selector, ...] = ()

    def rules(self) -> tuple[str, ...]:
        """The rules as `ACL SETUSER` takes them, for a user that was reset before."""
        return ("resetchannels", "-@all", *(f"+{command}" for command in self.commands), *map(str, self.selectors))


@final
@dataclass(frozen=True, slots=True)
class Grant:
    """A user as it is to be: whose it is, what it may do, and the SHA-256 digests of the secrets that let it in."""

    principal: Principal
    rights: Rights
    digests: tuple[str, ...]


def site_grant(namespace: str, site: str, capabilities: Sequence[str], digests: Sequence[str]) -> Grant:
    """The user of a site that was granted these capabilities."""
    return Grant(Principal(namespace, "site", site), site_rights(namespace, site, capabilities), tuple(digests))


def person_grant(namespace: str, person: str, role: Role, digests: Sequence[str]) -> Grant:
    """The user of a person's clients."""
    return Grant(Principal(namespace, "client", person), person_rights(namespace, person, role), tuple(digests))


def coordinator_grant(namespace: str, digests: Sequence[str]) -> Grant:
    """The coordinator's user."""
    return Grant(Principal(namespace, "coordinator"), coordinator_rights(namespace), tuple(digests))


def provisioner_grant(namespace: str, digests: Sequence[str]) -> Grant:
    """The user that makes and ends users."""
    return Grant(Principal(namespace, "provisioner"), provisioner_rights(), tuple(digests))


def site_rights(namespace: str, site: str, capabilities: Sequence[str]) -> Rights:
    """What workers of a site, the executors that they launch, and their porters may do."""
    key = _Patterns(namespace)
    offered = [key.read(f"cap:{site}:{each}") for each in dict.fromkeys(capabilities)]
    return Rights(
        ("ping",),
        (
            # One command reads all of a worker's streams, so all of them stand in one selector.
            Selector(("xrange", "xreadgroup"), (*offered, key.read(f"own:{site}:*"))),
            Selector(("xread",), (key.read(f"ctl:{site}:*"),)),
            Selector(("xadd",), (key.write(f"inbox:{site}"),)),
            Selector(("del", "set"), (key.write(f"hb:{site}:*"),)),
            Selector(("get",), (key.read(f"echo:{site}:*"), key.read("store"), key.read("incarnation"))),
            Selector(("expire", "xadd", "xtrim"), (key.write(f"log:{site}:*"),)),
            Selector(_READ_CONTENT, (key.read("obj:*"),)),
            Selector(_STAGE_CONTENT, (key.write(f"stg:{site}:*"),)),
        ),
    )


def person_rights(namespace: str, person: str, role: Role) -> Rights:
    """What a person's clients may do. What the role may *ask*, the coordinator decides."""
    key = _Patterns(namespace)
    selectors = [
        Selector(("xadd",), (key.write(f"rpc:{person}"),)),
        Selector(("xread",), (key.read(f"reply:{person}:*"), key.read("log:*"))),
        Selector(("del", "xtrim"), (key.write(f"reply:{person}:*"),)),
        Selector(("get",), (key.read("store"), key.read("incarnation"))),
        Selector(_READ_CONTENT, (key.read("obj:*"), key.read("stg:*"))),
    ]
    if role is not Role.OBSERVER:
        # `@` starts no site's name, so that a person and a site may be called the same.
        own = f"stg:@{person}:*"
        selectors += [
            Selector((*_STAGE_CONTENT, "unlink"), (key.write(own),)),
            # What is there already can neither be replaced nor ended by these, only kept for longer.
            Selector(("renamenx",), (key.both(own), key.write("obj:*"))),
            Selector(("persist",), (key.write("obj:*"),)),
        ]
    return Rights(("ping",), tuple(selectors))


def coordinator_rights(namespace: str) -> Rights:
    """What the coordinator and its porter may do."""
    return Rights(_COORDINATOR_ANYWHERE, (Selector(_COORDINATOR, (_Patterns(namespace).both("*"),)),))


def provisioner_rights() -> Rights:
    """What the commands that make and end users may do."""
    return Rights(_PROVISIONER)


def setuser(grant: Grant) -> tuple[str, ...]:
    """The one command that makes the user what the grant says, whatever it was before."""
    secrets = (f"#{digest}" for digest in grant.digests)
    return ("ACL", "SETUSER", grant.principal.user, "reset", "on", *secrets, *grant.rights.rules())


@final
@dataclass(frozen=True, slots=True)
class _Patterns:
    """Patterns of a namespace's keys. A namespace and all names in keys are free of the signs that patterns know."""

    namespace: str

    def read(self, rest: str) -> str:
        return f"%R~{self._key(rest)}"

    def write(self, rest: str) -> str:
        return f"%W~{self._key(rest)}"

    def both(self, rest: str) -> str:
        return f"~{self._key(rest)}"

    def _key(self, rest: str) -> str:
        return f"tenure:{{{self.namespace}}}:{rest}"
