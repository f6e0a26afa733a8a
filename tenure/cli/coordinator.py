"""`tenure coordinator`: the one process that decides."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

import click

from tenure.cli.allowances import AllowanceForm, allowance_options, with_allowances
from tenure.cli.arguments import LocalPath
from tenure.cli.desk import collect, store_options, with_desk
from tenure.cli.owner import end_on_signal, end_with_owner, log_to_stderr, owner_option

if TYPE_CHECKING:
    from tenure.cli.desk import Desk


@final
@dataclass(frozen=True, slots=True)
class CoordinatorForm:
    """The options of `tenure coordinator`."""

    database: Path | None
    owner_pipe: int | None
    campaigns_only: bool


@click.command(short_help="Run the coordinator of a fleet.")
@click.option(
    "--database", type=LocalPath(path_type=Path, dir_okay=False), metavar="FILE", help="The fleet's database."
)
@click.option("--campaigns-only", is_flag=True, help="Refuse submissions that name no campaign.")
@allowance_options
@store_options
@owner_option
@with_desk
def coordinator(desk: Desk, /, **options: object) -> None:
    """Run the coordinator until Ctrl-C. One database has one coordinator.

    Files of tasks are kept where --artifacts says: small ones in the broker when it says nothing.
    """
    from tenure.broker.keys import Keys
    from tenure.broker.redis_connection import BrokerUrl, RedisConnection
    from tenure.broker.redis_coordinator import RedisCoordinator
    from tenure.cli.porters import porter_factory
    from tenure.coordinator.options import CoordinatorOptions
    from tenure.coordinator.service import run_coordinator
    from tenure.processes.linux import forbid_inspection
    from tenure.settings import BROKER_STORE

    form = collect(CoordinatorForm, options)
    settings = desk.settings
    database = (form.database or settings.data_dir / f"{settings.namespace}.db").absolute()
    database.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    url = BrokerUrl.of(settings)
    address = settings.artifacts or BROKER_STORE
    chosen = with_allowances(
        CoordinatorOptions(database, settings.namespace, artifacts=address, campaigns_only=form.campaigns_only),
        collect(AllowanceForm, options),
    )
    porter = porter_factory(settings, desk.session.clock, database.with_suffix(".copies"))(address)
    stop = threading.Event()

    end_on_signal(stop)
    end_with_owner(form.owner_pipe, stop.set, desk.session.clock)
    log_to_stderr()
    desk.remark(f"Coordinator of {settings.namespace!r} on {url.address}, database {database}, files at {address}")
    forbid_inspection()
    broker = RedisCoordinator(RedisConnection(url, timeout_ms=chosen.broker_timeout_ms), Keys(settings.namespace))
    try:
        run_coordinator(chosen, broker, desk.session.clock, desk.session.entropy, stop, porter)
    finally:
        porter.close()
