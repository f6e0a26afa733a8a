"""`tenure worker`: one worker, with its runners and children."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import click

from tenure.cli.arguments import LocalPath
from tenure.cli.desk import collect, store_options, with_desk
from tenure.cli.execution import ExecutionForm, execution_of, execution_options, site_for, worker_connector
from tenure.cli.launching import LaunchForm, launch_options, launching
from tenure.cli.lifetime import LifetimeForm, lifetime_options, with_lifetime
from tenure.cli.modules import require_modules
from tenure.cli.owner import end_with_owner, log_to_stderr, owner_option
from tenure.cli.records import amounts, pairs

if TYPE_CHECKING:
    from types import FrameType

    from tenure.cli.desk import Desk
    from tenure.settings import Settings
    from tenure.workers.agent import Agent
    from tenure.workers.options import WorkerOptions

_DEFAULT_TTL: Final = "30s"


@final
@dataclass(frozen=True, slots=True)
class WorkerForm:
    """The options of `tenure worker`."""

    capability: tuple[str, ...]
    slots: int
    label: tuple[str, ...]
    resource: tuple[str, ...]
    ttl: str
    state_dir: Path | None
    worker_id: str | None
    site: str | None
    owner_pipe: int | None
    execution: ExecutionForm
    lifetime: LifetimeForm
    launch: LaunchForm = field(default_factory=LaunchForm)


@click.command(short_help="Run a worker.")
@click.option(
    "--capability", multiple=True, metavar="NAME", help='What it can do; "default" when not given; repeatable.'
)
@click.option(
    "--slots", type=click.IntRange(1, 4096), metavar="N", default=1, show_default=True, help="How many tasks at once."
)
@click.option("--label", multiple=True, metavar="KEY=VALUE", help="A label that tasks may ask for; repeatable.")
@click.option("--resource", multiple=True, metavar="NAME=N", help="An amount that tasks may reserve; repeatable.")
@click.option("--ttl", default=_DEFAULT_TTL, show_default=True, metavar="DURATION", help="How long it may be silent.")
@click.option("--state-dir", type=LocalPath(path_type=Path), metavar="DIR", help="Where it keeps its id and results.")
@click.option(
    "--worker-id", metavar="NAME", help="Its durable id, with its site's name before it; made once when not given."
)
@click.option("--site", metavar="NAME", help="The site that it belongs to; its credential's when not given.")
@execution_options
@lifetime_options
@launch_options
@store_options
@owner_option
@with_desk
def worker(desk: Desk, /, **options: object) -> None:
    """Run a worker until Ctrl-C: then it finishes what it holds, and leaves. A second Ctrl-C ends it at once.

    With --launcher it runs nothing itself: it starts one executor for each task on another machine or cluster, and
    looks after them.
    """
    from tenure.cli.porters import porter_factory
    from tenure.workers.agent import Agent
    from tenure.workers.shift import Shift

    parts: dict[str, object] = {
        "execution": collect(ExecutionForm, options),
        "lifetime": collect(LifetimeForm, options),
        "launch": collect(LaunchForm, options),
    }
    form = collect(WorkerForm, options | parts)
    log_to_stderr()
    parent = launching(desk, form.launch, form.execution)
    chosen = with_lifetime(worker_options(form, desk.settings), form.lifetime, desk.session.clock)
    porters = porter_factory(desk.settings, desk.session.clock)
    connect, begin = worker_connector(desk.settings, chosen), Shift if parent is None else parent.begin
    agent = Agent(chosen, connect, desk.session.clock, desk.session.entropy, porters, begin)
    _drain_on_signals(agent)
    end_with_owner(form.owner_pipe, lambda: _end_at_once(agent), desk.session.clock)
    summary = agent.run()
    counts = ", ".join(f"{count} {name}" for name, count in sorted(summary.counts.items()))
    if counts or summary.refusal is None:
        desk.remark(f"Worker {summary.worker_id} has left: {counts or 'nothing to do'}")
    if summary.refusal is not None:
        raise summary.refusal


def worker_options(form: WorkerForm, settings: Settings) -> WorkerOptions:
    """The options as the agent takes them. Raises `UsageError`."""
    from tenure.protocol.durations import duration_ms

    if form.launch.launcher is None:
        # With a launcher the modules are where its executors run, which need not be here.
        require_modules(form.execution.allow)
    return replace(
        execution_of(form.execution, settings, (form.state_dir or settings.data_dir).absolute()),
        capabilities=form.capability or ("default",),
        worker_id=form.worker_id,
        slots=form.slots,
        labels=pairs(form.label, "--label"),
        resources=amounts(form.resource, "--resource"),
        ttl_ms=duration_ms(form.ttl, "--ttl"),
        site=site_for(settings, form.site),
        # What an executor that was killed has left is no child that a parent would ever wait for.
        adopts=form.launch.launcher is None,
    )


def _drain_on_signals(agent: Agent) -> None:
    def drain(_: int, __: FrameType | None) -> None:
        agent.request_drain()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, drain)


def _end_at_once(agent: Agent) -> None:
    agent.request_drain()
    agent.request_drain()
