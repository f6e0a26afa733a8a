"""`tenure broker secure`: make a broker ask everyone who they are.

It makes three users, writes the address of each into a file, and turns off the user `default` as whom anybody may
come: the coordinator's user, the provisioner's, who makes users for sites and people, and the first operator's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

import click

from tenure.cli.arguments import LocalPath
from tenure.cli.desk import collect, with_desk

if TYPE_CHECKING:
    from tenure.broker.securing import Secured
    from tenure.cli.desk import Desk


@final
@dataclass(frozen=True, slots=True)
class SecureForm:
    """The options of `tenure broker secure`."""

    folder: Path
    nodes: tuple[Path, ...]
    address: str | None
    close_default: bool
    rotate: tuple[str, ...]


@click.command("secure")
@click.option(
    "--out",
    "folder",
    required=True,
    type=LocalPath(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where coordinator.url, provisioner.url and operator.url are written, readable by their owner only.",
)
@click.option(
    "--node-url-file",
    "nodes",
    multiple=True,
    type=LocalPath(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Another server of this broker, such as a replica: each has users of its own. May be repeated.",
)
@click.option("--address", metavar="URL", help="How others reach the broker, when that is not as from here.")
@click.option(
    "--close-default", is_flag=True, help="Turn off the user `default` also when it needs a password to come in."
)
@click.option(
    "--rotate",
    type=click.Choice(("coordinator", "provisioner", "operator")),
    multiple=True,
    help="Write a new secret into that file. The old one stays good until this command is run without it.",
)
@with_desk
def secure(desk: Desk, /, **options: object) -> None:
    """Make the broker at the given address let in nobody without a credential.

    The address is an administrator's. Parts of a fleet that run without credentials are cut off by this: start them
    again with the files that it writes. Done again, it keeps the secrets of the files that are there, and ends others.
    """
    from tenure.broker import securing
    from tenure.broker.url import BrokerUrl
    from tenure.cli.credentials import open_provisioner, private_url

    form = collect(SecureForm, options)
    own = BrokerUrl(desk.settings.resolve_broker_url())
    plan = securing.SecurePlan(
        namespace=desk.settings.namespace,
        address=own if form.address is None else BrokerUrl(form.address),
        folder=form.folder.absolute(),
        close_default=form.close_default,
        rotate=frozenset(form.rotate),
    )
    with open_provisioner([own, *map(private_url, form.nodes)]) as administrator:
        done = securing.secure(administrator, plan, desk.session.entropy)
    _tell(desk, done)


def _tell(desk: Desk, done: Secured) -> None:
    files = {"coordinator": done.coordinator, "provisioner": done.provisioner, "operator": done.operator}
    desk.output.answer(
        {f"{name}_url_file": str(path) for name, path in files.items()}
        | {"default_is_off": done.default_is_off, "is_kept": done.is_kept}
        | {"ended": list(done.ended), "still_good": list(done.still_good)},
        "\n".join(f"{name.ljust(11)}  {path}" for name, path in files.items()),
    )
    for name in done.still_good:
        desk.remark(f"The old secret of {name}.url is good, too, until `tenure broker secure` is run without --rotate.")
    for name in done.ended:
        desk.remark(f"Only the secret in {files[name]} is good now, and whoever came by another is cut off.")
    if not done.default_is_off:
        desk.remark("The broker's user `default` needs a password, so it stays. --close-default turns it off.")
    if not done.is_kept:
        desk.remark("The broker has no `aclfile`: when it restarts its users are gone, and anybody may come in again.")
