"""`tenure doctor`: what is wrong here, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import click

from tenure.cli.arguments import LocalPath
from tenure.cli.desk import collect, store_options, with_desk
from tenure.cli.failures import FLEET_COULD_NOT
from tenure.cli.output import colour_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tenure.cli.checks import Finding
    from tenure.cli.desk import Desk

_WIDTH: Final = 4


@final
@dataclass(frozen=True, slots=True)
class DoctorForm:
    """The options of `tenure doctor`."""

    database: Path | None
    secrets_dir: Path | None
    provisioners: tuple[Path, ...]
    capability: tuple[str, ...] = ()


@click.command(short_help="Check broker, coordinator, store of files, workers, permissions.")
@click.option("--database", type=LocalPath(path_type=Path), metavar="FILE", help="A database on this host to look at.")
@click.option(
    "--secrets-dir", type=LocalPath(path_type=Path), metavar="DIR", help="A worker's folder of secrets to look at."
)
@click.option(
    "--provisioner-url-file",
    "provisioners",
    multiple=True,
    type=LocalPath(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Also compare the broker's users with what is on record; once for each node of the broker.",
)
@click.option(
    "--capability",
    multiple=True,
    metavar="NAME",
    help="With a site's credential: what its worker is to offer, to be compared with what it was granted; repeatable.",
)
@store_options
@with_desk
def doctor(desk: Desk, /, **options: object) -> int:
    """Check everything that this host can see. Exits with 3 when something is bad.

    A site's credential may ask the coordinator nothing. With one, this looks at the broker, whether a coordinator has
    announced itself there, and what the site was granted.
    """
    form = collect(DoctorForm, options)
    findings: list[Finding] = []
    for finding in _findings(desk, form):
        findings.append(finding)
        _print(desk, finding)
    if desk.output.as_json:
        desk.output.json([finding._asdict() for finding in findings])
    levels = {finding.level for finding in findings}
    if "bad" in levels:
        desk.output.say("Something is bad: see above.", bold=True)
        return FLEET_COULD_NOT
    desk.output.say("It works; see the warnings." if "warn" in levels else "Everything is in order.", bold=True)
    return 0


def _findings(desk: Desk, form: DoctorForm) -> Iterator[Finding]:
    from tenure.cli import checks, site_checks, store_checks
    from tenure.errors import InvalidSettings

    try:
        url = desk.settings.resolve_broker_url()
    except InvalidSettings as error:
        yield checks.bad("settings", error.message, error.remedy)
        return
    yield from checks.settings(desk.settings)
    yield from store_checks.secrets(form.secrets_dir)
    yield from _sorted_out(checks.broker(url))
    if (site := site_checks.site_of_address(url, desk.settings)) is not None:
        yield from site_checks.site(desk.settings, site, form.capability)
        yield from checks.database(form.database)
        yield from site_checks.left_out(site, form.provisioners)
    else:
        yield from _asked(desk, form)


def _asked(desk: Desk, form: DoctorForm) -> Iterator[Finding]:
    """What the coordinator has to be asked for."""
    from tenure.cli import acl_checks, checks, store_checks
    from tenure.errors import TenureError

    try:
        status = checks.coordinator_status(desk)
    except TenureError as error:
        yield checks.bad("coordinator", error.message, error.remedy or "Start it with `tenure coordinator`")
        yield from checks.database(form.database)
        return
    yield from checks.coordinator(status, desk.session.clock.now_ms())
    yield from checks.database(form.database or checks.local_database(status.row))
    yield from store_checks.store(desk, status.row)
    yield from checks.workers(desk, status.row)
    yield from acl_checks.users(desk, form.provisioners)


def _sorted_out(findings: Sequence[Finding]) -> Sequence[Finding]:
    """The worst first: what does not work at all explains the rest."""
    return sorted(findings, key=lambda finding: ("bad", "warn", "ok").index(finding.level))


def _print(desk: Desk, finding: Finding) -> None:
    remedy = f" {finding.remedy}." if finding.remedy else ""
    level = finding.level.ljust(_WIDTH)
    desk.output.say(f"{level}  {finding.about}: {finding.text}.{remedy}", colour=colour_of(finding.level))
