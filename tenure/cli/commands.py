"""The root command and everything below it, in the order in which `tenure --help` lists it."""

from __future__ import annotations

import click

from tenure.cli.artifacts import artifacts
from tenure.cli.broker import broker
from tenure.cli.campaigns import campaigns
from tenure.cli.cancel import cancel
from tenure.cli.clients import clients
from tenure.cli.completion import completion
from tenure.cli.coordinator import coordinator
from tenure.cli.demo import demo
from tenure.cli.directives import directives
from tenure.cli.doctor import doctor
from tenure.cli.ending import result, wait
from tenure.cli.events import events
from tenure.cli.explain import explain
from tenure.cli.launchers import launchers
from tenure.cli.leases import leases
from tenure.cli.logs import logs
from tenure.cli.map import map_rows
from tenure.cli.quarantine import quarantine
from tenure.cli.run_assignment import run_assignment
from tenure.cli.sections import Sections
from tenure.cli.sites import sites
from tenure.cli.submit import submit
from tenure.cli.tasks import tasks
from tenure.cli.up import up
from tenure.cli.worker import worker
from tenure.cli.workers import workers
from tenure.version import VERSION


def _print_version(context: click.Context, _: click.Parameter, asked: bool) -> None:  # noqa: FBT001 - click's signature
    if not asked or context.resilient_parsing:
        return
    click.echo(f"tenure {VERSION}")
    context.exit()


@click.group(cls=Sections, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
def tenure() -> None:
    """A worker fleet for work you cannot afford to run twice.

    Start with `tenure demo` to see it work, or with `tenure up` to have a fleet on this machine.
    """


tenure.section("Start here", demo, up)
tenure.section("Work", submit, map_rows, wait, result, logs, cancel, explain)
tenure.section("Records", tasks, workers, leases, directives, quarantine, artifacts, events)
tenure.section("Who takes part", sites, clients, campaigns)
tenure.section("Parts of a fleet", broker, coordinator, worker, launchers)
tenure.section("Help", doctor, completion)
tenure.add_command(run_assignment)  # launchers call it, so the help does not list it
