"""Making and ending the broker's users, by a credential that can do nothing else.

Rights are kept by each server for itself: neither a replica nor another node of a cluster learns of them. A provisioner
therefore has a connection to every node, does each step on all of them, also when one fails, and then says what failed.
Every step may be repeated. A server forgets its users when it restarts, unless it has an `aclfile`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar, cast, final

from tenure.broker.acl import Rights, Selector, setuser
from tenure.broker.principals import principal_of
from tenure.errors import BrokerError, BrokerRefused, BrokerUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tenure.broker.acl import Grant
    from tenure.broker.principals import Principal
    from tenure.broker.redis_connection import RedisConnection, Reply

_NO_FILE: Final = "not configured to use an ACL file"
_TOO_OLD: Final = "Error in ACL SETUSER modifier"
_DEFAULT: Final = "default"
_COMPARED: Final = ".compared"
_T = TypeVar("_T")


@final
@dataclass(frozen=True, slots=True)
class User:
    """A user as the broker has it."""

    is_on: bool
    needs_no_secret: bool
    digests: frozenset[str]
    rights: Rights
    has_more: bool
    """Whether it may do more than rights of ours can say: keys or channels outside every selector."""


@final
class Provisioner:
    """What makes and ends users.

    Args:
        nodes: one connection to each server of the broker, by a user with the right to do this. One thread uses them.
    """

    def __init__(self, nodes: Sequence[RedisConnection]) -> None:
        self._nodes = tuple(nodes)

    def put(self, *grants: Grant) -> bool:
        """Make each user what its grant says, whatever it was; connections that are open stay, with the new rights.

        Returns:
            Whether the users outlive a restart of every server, as of `save`.

        Raises:
            BrokerRefused: this credential may not do that, or the server is older than Redis 7.0.
            BrokerError: a server cannot be reached; the others have been told.
        """
        self._everywhere(lambda node: _put(node, grants))
        return self.save()

    def drop(self, *principals: Principal) -> bool:
        """End users, and close their connections at once, also those that wait for an entry.

        Result and errors are those of `put`. A user that is not there is no error: what was asked for holds.
        """
        if principals:
            names = [each.user for each in principals]
            self._everywhere(lambda node: node.call("ACL", "DELUSER", *names))
        return self.save()

    def disconnect(self, principal: Principal) -> int:
        """Close every connection of a user, which may come again with a secret that is still good; how many there were.

        A secret that was taken away lets nobody in, but whoever is in by it stays until this.
        """
        return sum(self._everywhere(lambda node: _kill(node, principal.user)))

    def save(self) -> bool:
        """Have every server keep its users in its file; whether each has one. Raises `BrokerError`."""
        return all(self._everywhere(_save))

    def users(self, namespace: str) -> frozenset[Principal]:
        """The users of this namespace that any server has. Raises `BrokerError`."""
        names = (name for found in self._everywhere(_names) for name in found)
        return frozenset(each for name in names if (each := principal_of(name, namespace)) is not None)

    def as_granted(self, grant: Grant) -> list[User]:
        """What each server would make of a grant, to compare with: servers spell the same rights in ways of their own.

        A user that nobody can be is made for that, and ended again. Raises `BrokerError`.
        """
        return self._everywhere(lambda node: _as_granted(node, grant))

    def found(self, user: str) -> list[User | None]:
        """The user of this name at each server, in their order; None where there is none. Raises `BrokerError`."""
        return self._everywhere(lambda node: _user(node, user))

    def close_default(self, *, also_with_password: bool = False) -> bool:
        """Turn the user `default` off and close its other connections; whether it is off now at every server.

        One that needs no password lets everybody do everything. One that needs one is an administrator, and stays
        unless that is asked for, too.
        """
        outcomes = self._everywhere(lambda node: _close_default(node, also=also_with_password))
        self.save()
        return all(outcomes)

    def replicas(self) -> int:
        """How many replicas the servers feed: each has users of its own and wants to be among the nodes."""
        return sum(self._everywhere(_replicas))

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where the servers are, fit for messages."""
        return tuple(node.address for node in self._nodes)

    def close(self) -> None:
        """Close the connections."""
        for node in self._nodes:
            node.close()

    def _everywhere(self, act: Callable[[RedisConnection], _T]) -> list[_T]:
        outcomes: list[_T] = []
        problems: list[BrokerError] = []
        for node in self._nodes:
            try:
                outcomes.append(act(node))
            except BrokerError as error:
                problems.append(error)
        if problems:
            raise problems[0]
        return outcomes


def _put(node: RedisConnection, grants: Sequence[Grant]) -> int:
    try:
        return len([node.call(*setuser(grant)) for grant in grants])
    except BrokerRefused as error:
        if _TOO_OLD in error.message:
            message = f"The broker at {node.address} cannot hold a user to keys and commands as finely as is needed"
            raise BrokerRefused(message, "Use Redis 7.0 or newer, or Valkey") from error
        raise


def _kill(node: RedisConnection, user: str) -> int:
    return cast("int", node.call("CLIENT", "KILL", "USER", user, "SKIPME", "yes"))


def _save(node: RedisConnection) -> bool:
    try:
        node.call("ACL", "SAVE")
    except BrokerRefused as error:
        if _NO_FILE in error.message:
            return False
        raise
    return True


def _names(node: RedisConnection) -> list[str]:
    return [name.decode(errors="replace") for name in cast("list[bytes]", node.call("ACL", "USERS"))]


def _user(node: RedisConnection, user: str) -> User | None:
    found = node.call("ACL", "GETUSER", user)
    if found is None:
        return None
    parts = _pairs(found)
    flags = cast("list[bytes]", parts["flags"])
    return User(
        is_on=b"on" in flags,
        needs_no_secret=b"nopass" in flags,
        digests=frozenset(each.decode() for each in cast("list[bytes]", parts["passwords"])),
        rights=Rights(
            tuple(_commands(parts)),
            tuple(
                Selector(tuple(_commands(each)), tuple(sorted(_words(each["keys"]))))
                for each in map(_pairs, cast("list[Reply]", parts["selectors"]))
            ),
        ),
        has_more=bool(_words(parts["keys"]) or _words(parts["channels"])),
    )


def _as_granted(node: RedisConnection, grant: Grant) -> User:
    name = f"{grant.principal.user}{_COMPARED}"
    try:
        node.call("ACL", "SETUSER", name, "reset", *grant.rights.rules())
        made = _user(node, name)
    finally:
        node.call("ACL", "DELUSER", name)
    if made is None:
        raise BrokerUnreachable(f"Somebody else ends users at the broker at {node.address}", "Try again")
    return replace(made, is_on=True, digests=frozenset(grant.digests))


def _pairs(reply: Reply) -> dict[str, Reply]:
    flat = cast("list[Reply]", reply)
    return {cast("bytes", name).decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def _commands(parts: dict[str, Reply]) -> list[str]:
    # Servers put them into an order of their own; what was taken away from nothing says nothing.
    return sorted(word.removeprefix("+") for word in _words(parts["commands"]) if word != "-@all")


def _words(reply: Reply) -> list[str]:
    return cast("bytes", reply).decode(errors="replace").split()


def _close_default(node: RedisConnection, *, also: bool) -> bool:
    found = _user(node, _DEFAULT)
    if found is None or not found.is_on:
        return True
    if not (found.needs_no_secret or also):
        return False
    node.call("ACL", "SETUSER", _DEFAULT, "off")
    _kill(node, _DEFAULT)
    return True


def _replicas(node: RedisConnection) -> int:
    info = cast("bytes", node.call("INFO", "replication")).decode(errors="replace")
    found = {name: value for name, _, value in (line.partition(":") for line in info.splitlines())}
    return int(found.get("connected_slaves", "0"))
