"""`tenure workers`: the workers on record, and the verbs for executors that speak for themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click

from tenure.cli.desk import with_desk
from tenure.cli.leases import LEASES
from tenure.cli.output import Column, listed, moment
from tenure.cli.records import (
    Listing,
    amounts,
    ask_and_print,
    is_task_id,
    limit_option,
    pairs,
    print_list,
    print_one,
    task_id_argument,
)
from tenure.cli.render_launch import render_launch

if TYPE_CHECKING:
    from tenure.cli.desk import Desk

WORKERS: Final = Listing(
    what="workers",
    identity="worker_id",
    columns=(
        Column("WORKER", "worker_id"),
        Column("STATE", "state"),
        Column("SITE", "site", spare=4),
        Column("SLOTS", "slots", right=True),
        Column("HELD", "holding", right=True),
        Column("CAPABILITIES", "capabilities", listed),
        Column("HOST", "host", spare=3),
        Column("PID", "pid", right=True, spare=1),
        Column("SEEN", "seen_at_ms", moment, spare=2),
    ),
    empty="There are no workers. Start one with `tenure worker`, or a whole fleet with `tenure up`.",
)
WITH_EXECUTORS: Final = replace(
    WORKERS, columns=(WORKERS.columns[0], Column("STARTED FOR", "executor_of", spare=5), *WORKERS.columns[1:])
)
STATES: Final = ("ACTIVE", "STALE", "DRAINING", "OFFLINE")


@click.group()
def workers() -> None:
    """List, show, register and direct workers."""


@workers.command("list")
@click.option("--state", type=click.Choice(STATES, case_sensitive=False), help="Only workers in this state.")
@click.option("--executors", is_flag=True, help="Also what workers have started through their launchers.")
@limit_option
@with_desk
def list_workers(desk: Desk, *, state: str | None, executors: bool, limit: int) -> None:
    """List workers."""
    listing = WITH_EXECUTORS if executors else WORKERS
    print_list(desk, listing, {"state": state, "executor_of": "*" if executors else None}, limit)


@workers.command("show")
@click.argument("worker_id")
@with_desk
def show_worker(desk: Desk, worker_id: str) -> None:
    """Show all that is known about a worker."""
    print_one(desk, WORKERS, worker_id)


@workers.command("register")
@click.argument("worker_id")
@click.option("--capability", "capabilities", multiple=True, metavar="NAME", help="What it can do; may be repeated.")
@click.option(
    "--slots", type=click.IntRange(1, 4096), metavar="N", default=1, show_default=True, help="How many tasks at once."
)
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label; may be repeated.")
@click.option("--resource", "resources", multiple=True, metavar="NAME=N", help="A resource; may be repeated.")
@with_desk
def register(
    desk: Desk,
    worker_id: str,
    capabilities: tuple[str, ...],
    slots: int,
    labels: tuple[str, ...],
    resources: tuple[str, ...],
) -> None:
    """Record a worker by hand, for an executor that speaks for itself."""
    from tenure.protocol.client_messages import RegisterWorker

    ask_and_print(
        desk,
        RegisterWorker(
            worker_id=worker_id,
            slots=slots,
            capabilities=capabilities or ("default",),
            labels=pairs(labels, "--label"),
            resources=amounts(resources, "--resource"),
        ),
    )


@workers.command("heartbeat")
@click.argument("worker_id")
@with_desk
def heartbeat(desk: Desk, worker_id: str) -> None:
    """Renew a worker that was registered by hand, and the leases that it holds."""
    from tenure.protocol.client_messages import BeatWorker

    ask_and_print(desk, BeatWorker(worker_id=worker_id))


@workers.command("assign")
@click.argument("task_id", type=task_id_argument)
@click.argument("worker_id")
@with_desk
def assign(desk: Desk, task_id: str, worker_id: str) -> None:
    """Give a queued task to a worker, if it is eligible."""
    from tenure.protocol.client_messages import Assign

    ask_and_print(desk, Assign(task_id=task_id, worker_id=worker_id))


@workers.command("sweep")
@with_desk
def sweep(desk: Desk) -> None:
    """Look for expired leases and silent workers now."""
    from tenure.protocol.client_messages import Sweep

    ask_and_print(desk, Sweep(), nothing="Nothing has expired and no worker is newly silent.")


@workers.command("drain")
@click.argument("worker_id")
@with_desk
def drain(desk: Desk, worker_id: str) -> None:
    """Give a worker nothing more; it ends when it holds nothing."""
    from tenure.protocol.client_messages import DrainWorker

    ask_and_print(desk, DrainWorker(worker_id=worker_id))


@workers.command("lease")
@click.argument("identity", metavar="WORKER_OR_TASK_ID")
@limit_option
@with_desk
def lease(desk: Desk, identity: str, limit: int) -> None:
    """List the leases of a worker or of a task."""
    print_list(desk, LEASES, {"task_id" if is_task_id(identity) else "worker_id": identity}, limit)


workers.add_command(render_launch)
