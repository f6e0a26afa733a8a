"""New credentials: drawn here, known elsewhere only by their digest, and handed over once, in a file or in print.

What is handed over is a whole address of the broker with a user's name and secret in it, because that is what
`--broker-url-file` takes. A secret goes on no command line and into no message.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, final

import click

from tenure.cli.arguments import LocalPath
from tenure.errors import InvalidSettings, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from tenure.broker.acl import Grant
    from tenure.broker.principals import Principal
    from tenure.broker.provisioning import Provisioner, User
    from tenure.broker.url import BrokerUrl
    from tenure.cli.desk import Desk

_C = TypeVar("_C", bound="Callable[..., Any]")


class Nodes(Protocol):
    """What commands need of a provisioner. See `tenure.broker.provisioning.Provisioner`."""

    def put(self, *grants: Grant) -> bool:
        """Make users; whether they outlive a restart."""
        ...

    def drop(self, *principals: Principal) -> bool:
        """End users and their connections."""
        ...

    def disconnect(self, principal: Principal) -> int:
        """Close a user's connections."""
        ...

    def users(self, namespace: str) -> frozenset[Principal]:
        """The namespace's users that any server has."""
        ...

    def found(self, user: str) -> list[User | None]:
        """A user at each server."""
        ...

    def as_granted(self, grant: Grant) -> list[User]:
        """What each server would make of a grant."""
        ...

    def replicas(self) -> int:
        """How many replicas the servers feed."""
        ...

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where the servers are."""
        ...


@final
@dataclass(frozen=True, slots=True)
class CredentialForm:
    """Where users are made, and where a new credential goes.

    Attributes:
        provisioners: files with the addresses of the broker's nodes, each by a user that may make users.
        out: the file to write; None shows the address once.
        address: how the broker is reached from there, without a user; None as from here.
    """

    provisioners: tuple[Path, ...]
    out: Path | None
    address: str | None

    def check(self, *, replace: bool = False) -> None:
        """See that the address can be written, before there is one: a secret that cannot be kept is lost.

        Raises:
            UsageError: there is such a file already, and it is not to be replaced.
            InvalidSettings: its folder cannot be written.
        """
        if self.out is None:
            return
        if self.out.exists() and not replace:
            raise UsageError(f"{self.out} exists already", "Choose another file with --out, or remove that one")
        if not os.access(self.out.absolute().parent, os.W_OK | os.X_OK):
            raise InvalidSettings(f"no file can be made in {self.out.absolute().parent}", "Choose another with --out")

    def url_for(self, own: BrokerUrl, user: str, secret: str) -> str:
        """The broker's address for a new user. Raises `UsageError`."""
        from tenure.broker.url import BrokerUrl

        if self.address is None:
            return own.for_user(user, secret)
        there = BrokerUrl(self.address)
        if {"username", "password"} & there.parts().keys():
            raise UsageError("--address says how the broker is reached, not by whom", "Leave name and password out")
        # Somebody has written it for that host, the files of its key included.
        return there.for_user(user, secret, with_key=True)

    def give(self, desk: Desk, url: str, what: dict[str, Any]) -> None:
        """Write the address, or show it: nobody can show it again."""
        from tenure.broker.credentials import write_credential

        name = f"{what['holder']} {what['name']}"
        if self.out is None:
            desk.output.answer(what | {"url": url}, url)
            desk.remark(f"This is the address for {name}. It holds the secret, and is shown only now.")
            return
        path = write_credential(self.out, url)
        told = what | {"url_file": str(path)}
        desk.output.answer(told, f"The address for {name} is in {path}. Give it to --broker-url-file there.")


def private_url(path: Path) -> BrokerUrl:
    """The address in a file that only its owner can read. Raises `InvalidSettings`."""
    from tenure.broker.url import BrokerUrl
    from tenure.settings import broker_url

    url = BrokerUrl(broker_url(broker_url_file=path.absolute()))
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidSettings(f"{path} is open to others than its owner", f"chmod 600 {path}")
    return url


def provisioner_url(path: Path, namespace: str) -> BrokerUrl:
    """The same, of a user that may make users. Raises `InvalidSettings` when it is seen to be somebody else's."""
    from tenure.broker.principals import principal_of

    url = private_url(path)
    principal = principal_of(url.user, namespace)
    if principal is not None and principal.part != "provisioner":
        raise InvalidSettings(
            f"{path} holds the credential of {principal.whose}, and the provisioner's is needed to make users",
            "Give the provisioner.url that `tenure broker secure` wrote",
        )
    return url


@contextmanager
def open_provisioner(urls: Sequence[BrokerUrl]) -> Generator[Provisioner]:
    """A provisioner with a connection to each node of the broker."""
    from tenure.broker.provisioning import Provisioner
    from tenure.broker.redis_connection import RedisConnection

    provisioner = Provisioner([RedisConnection(url) for url in urls])
    try:
        yield provisioner
    finally:
        provisioner.close()


_provisioner: Final = click.option(
    "--provisioner-url-file",
    "provisioners",
    multiple=True,
    required=True,
    type=LocalPath(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Holds the broker's address by a user that may make users; once for each node of the broker.",
)


def provisioner_option(function: _C) -> _C:
    """Give a command the option that says who makes users at the broker."""
    return _provisioner(function)


def credential_options(function: _C) -> _C:
    """Give a command the options that say where users are made and where a new credential goes."""
    address = click.option(
        "--address", metavar="URL", help="How the broker is reached from there, when that is not as from here."
    )
    out = click.option(
        "--out",
        type=LocalPath(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Write the address there, readable by its owner only; without it, it is shown once.",
    )
    return out(address(provisioner_option(function)))
