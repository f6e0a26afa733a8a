"""`tenure clients`: the people who ask, each with a credential and a role."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tenure.cli import principal_steps
from tenure.cli.credentials import CredentialForm, credential_options, provisioner_option
from tenure.cli.desk import collect, with_desk
from tenure.cli.output import Column, moment
from tenure.cli.principal_steps import CLIENTS
from tenure.cli.records import Listing, limit_option, print_list, print_one

if TYPE_CHECKING:
    from tenure.cli.desk import Desk
    from tenure.protocol.client_messages import Ask

LISTING: Final = Listing(
    what="clients",
    identity="person",
    columns=(
        Column("PERSON", "person"),
        Column("ROLE", "role"),
        Column("STATE", "state"),
        Column("CREDENTIALS", "credentials", right=True),
        Column("ISSUED BY", "issued_by", spare=2),
        Column("ISSUED", "issued_at_ms", moment, spare=1),
    ),
    empty="Nobody was issued a credential.",
)
ROLES: Final = ("operator", "submitter", "observer")
STATES: Final = ("ACTIVE", "REVOKED")


@click.group()
def clients() -> None:
    """Let people ask, in the role of each, and throw them out."""


@clients.command("issue")
@click.argument("person")
@click.option(
    "--role",
    type=click.Choice(ROLES),
    default="submitter",
    show_default=True,
    help="An observer reads, a submitter also submits and cancels what is its own, an operator may do everything.",
)
@credential_options
@with_desk
def issue(desk: Desk, /, person: str, role: str, **options: object) -> None:
    """Give a person a credential and a role."""
    from tenure.protocol.principal_messages import IssuePerson, Role

    def ask(digest: str) -> Ask:
        return IssuePerson(person=person, role=Role(role), secret_digest=digest)

    principal_steps.issue(desk, CLIENTS, person, collect(CredentialForm, options), ask)


@clients.command("list")
@click.option("--state", type=click.Choice(STATES, case_sensitive=False), help="Only people in this state.")
@click.option("--role", type=click.Choice(ROLES), help="Only people in this role.")
@limit_option
@with_desk
def list_clients(desk: Desk, state: str | None, role: str | None, limit: int) -> None:
    """List the people who were given credentials."""
    print_list(desk, LISTING, {"state": state, "role": role}, limit)


@clients.command("show")
@click.argument("person")
@with_desk
def show_client(desk: Desk, person: str) -> None:
    """Show all that is known about a person."""
    print_one(desk, LISTING, person)


@clients.command("role")
@click.argument("person")
@click.argument("role", type=click.Choice(ROLES))
@provisioner_option
@with_desk
def change_role(desk: Desk, person: str, role: str, provisioners: tuple[Path, ...]) -> None:
    """Give a person another role. What was submitted in the old one goes on."""
    from tenure.protocol.principal_messages import ChangeRole, Role

    ask = ChangeRole(person=person, role=Role(role))
    told = principal_steps.change(desk, CLIENTS, person, provisioners, ask)
    desk.output.answer(told, f"{person} is {told['role']} now.")


@clients.command("rotate")
@click.argument("person")
@click.option("--finish", is_flag=True, help="End every credential but the newest.")
@credential_options
@with_desk
def rotate(desk: Desk, /, person: str, *, finish: bool, **options: object) -> None:
    """Give a person another credential. The one that is there stays good until `--finish`."""
    form = collect(CredentialForm, options)
    if finish:
        principal_steps.finish(desk, CLIENTS, person, form)
    else:
        principal_steps.rotate(desk, CLIENTS, person, form)


@clients.command("revoke")
@click.argument("person")
@click.option("--reason", metavar="TEXT", default="", help="Why; kept on record.")
@provisioner_option
@with_desk
def revoke(desk: Desk, person: str, reason: str, provisioners: tuple[Path, ...]) -> None:
    """Throw a person out for good: nothing is answered any more. What was submitted goes on."""
    principal_steps.revoke(desk, CLIENTS, person, provisioners, reason)


@clients.command("sync")
@click.argument("names", metavar="[PERSON]...", nargs=-1)
@provisioner_option
@with_desk
def sync(desk: Desk, names: tuple[str, ...], provisioners: tuple[Path, ...]) -> None:
    """Make the broker's users of people again, as the coordinator has them on record."""
    principal_steps.sync(desk, CLIENTS, provisioners, names)
