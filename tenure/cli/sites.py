"""`tenure sites`: the machines, clusters and labs that take part, each with a credential of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import click

from tenure.cli import principal_steps
from tenure.cli.credentials import CredentialForm, credential_options, provisioner_option
from tenure.cli.desk import collect, with_desk
from tenure.cli.output import Column, listed, moment
from tenure.cli.principal_steps import SITES
from tenure.cli.records import Listing, limit_option, print_list, print_one

if TYPE_CHECKING:
    from tenure.cli.desk import Desk
    from tenure.protocol.client_messages import Ask

LISTING: Final = Listing(
    what="sites",
    identity="site",
    columns=(
        Column("SITE", "site"),
        Column("KIND", "kind", spare=3),
        Column("STATE", "state"),
        Column("HEALTH", "health"),
        Column("WORKERS", "workers", right=True),
        Column("LEASES", "leases", right=True),
        Column("CAPABILITIES", "capabilities", listed),
        Column("SEEN", "seen_at_ms", moment, spare=2),
        Column("ISSUED", "issued_at_ms", moment, spare=4),
    ),
    empty="There are no sites.",
)
KINDS: Final = ("agent", "compute", "batch", "lab")
STATES: Final = ("ACTIVE", "REVOKED")


@final
@dataclass(frozen=True, slots=True)
class IssueForm:
    """The options of `tenure sites issue`."""

    kind: str
    capabilities: tuple[str, ...]
    devices: tuple[str, ...]
    most_leases: int
    provisioners: tuple[Path, ...]
    out: Path | None
    address: str | None


@final
@dataclass(frozen=True, slots=True)
class GrantForm:
    """The options of `tenure sites grant`."""

    capabilities: tuple[str, ...]
    devices: tuple[str, ...]
    most_leases: int | None
    provisioners: tuple[Path, ...]


_capabilities: Final = click.option(
    "--capability",
    "capabilities",
    multiple=True,
    required=True,
    metavar="NAME",
    help="What its workers may offer; may be repeated.",
)
_devices: Final = click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="NAME",
    help="A device that its workers may have the label of; may be repeated. Without any: none.",
)


@click.group()
def sites() -> None:
    """Let sites take part, give them credentials, throw them out."""


@sites.command("issue")
@click.argument("site")
@click.option("--kind", type=click.Choice(KINDS), default="compute", show_default=True, help="What it is.")
@_capabilities
@_devices
@click.option(
    "--most-leases",
    type=click.IntRange(0),
    metavar="N",
    default=0,
    help="How many tasks it may hold at once; as many as its workers want when not given.",
)
@credential_options
@with_desk
def issue(desk: Desk, /, site: str, **options: object) -> None:
    """Make a site known and give it a credential."""
    from tenure.protocol.principal_messages import IssueSite, SiteKind

    form = collect(IssueForm, options)

    def ask(digest: str) -> Ask:
        return IssueSite(
            site=site,
            site_kind=SiteKind(form.kind),
            capabilities=form.capabilities,
            devices=form.devices,
            most_leases=form.most_leases,
            secret_digest=digest,
        )

    principal_steps.issue(desk, SITES, site, CredentialForm(form.provisioners, form.out, form.address), ask)


@sites.command("list")
@click.option("--state", type=click.Choice(STATES, case_sensitive=False), help="Only sites in this state.")
@click.option("--kind", type=click.Choice(KINDS), help="Only sites of this kind.")
@limit_option
@with_desk
def list_sites(desk: Desk, state: str | None, kind: str | None, limit: int) -> None:
    """List sites, with how their workers are."""
    print_list(desk, LISTING, {"state": state, "kind": kind}, limit)


@sites.command("show")
@click.argument("site")
@with_desk
def show_site(desk: Desk, site: str) -> None:
    """Show all that is known about a site."""
    print_one(desk, LISTING, site)


@sites.command("grant")
@click.argument("site")
@_capabilities
@_devices
@click.option(
    "--most-leases",
    type=click.IntRange(0),
    metavar="N",
    help="How many tasks it may hold at once; 0: as many as its workers want. As before when not given.",
)
@provisioner_option
@with_desk
def grant(desk: Desk, /, site: str, **options: object) -> None:
    """Grant a site these capabilities and devices, and no others from now on. What runs there goes on."""
    from tenure.protocol.principal_messages import GrantSite

    form = collect(GrantForm, options)
    ask = GrantSite(site=site, capabilities=form.capabilities, devices=form.devices, most_leases=form.most_leases)
    told = principal_steps.change(desk, SITES, site, form.provisioners, ask)
    devices = f" with {', '.join(told['devices'])}" if told["devices"] else ""
    most = f", and may hold {told['most_leases']} tasks at once" if told["most_leases"] else ""
    desk.output.answer(told, f"Site {site} is granted {', '.join(told['capabilities'])}{devices}{most}.")


@sites.command("rotate")
@click.argument("site")
@click.option("--finish", is_flag=True, help="End every credential but the newest.")
@credential_options
@with_desk
def rotate(desk: Desk, /, site: str, *, finish: bool, **options: object) -> None:
    """Give a site another credential. The one that it has stays good until `--finish`."""
    form = collect(CredentialForm, options)
    if finish:
        principal_steps.finish(desk, SITES, site, form)
    else:
        principal_steps.rotate(desk, SITES, site, form)


@sites.command("revoke")
@click.argument("site")
@click.option("--reason", metavar="TEXT", default="", help="Why; kept on record.")
@provisioner_option
@with_desk
def revoke(desk: Desk, site: str, reason: str, provisioners: tuple[Path, ...]) -> None:
    """Throw a site out for good: its results are refused from now on, and its leases end."""
    principal_steps.revoke(desk, SITES, site, provisioners, reason)


@sites.command("sync")
@click.argument("names", metavar="[SITE]...", nargs=-1)
@provisioner_option
@with_desk
def sync(desk: Desk, names: tuple[str, ...], provisioners: tuple[Path, ...]) -> None:
    """Make the broker's users of sites again, as the coordinator has them on record."""
    principal_steps.sync(desk, SITES, provisioners, names)
