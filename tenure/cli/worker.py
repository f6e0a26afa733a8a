"""`tenure worker`: one worker, with its runners and children."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import click

from tenure.cli.desk import collect, with_desk
from tenure.cli.owner import end_with_owner, log_to_stderr, owner_option
from tenure.cli.records import amounts, pairs

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from tenure.broker.redis_worker import RedisWorker
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
    allow: tuple[str, ...]
    label: tuple[str, ...]
    resource: tuple[str, ...]
    ttl: str
    state_dir: Path | None
    worker_id: str | None
    site: str | None
    owner_pipe: int | None


@click.command(short_help="Run a worker.")
@click.option(
    "--capability", multiple=True, metavar="NAME", help='What it can do; "default" when not given; repeatable.'
)
@click.option("--slots", type=click.IntRange(1, 4096), default=1, show_default=True, help="How many tasks at once.")
@click.option("--allow", multiple=True, metavar="MODULE", help="A module whose functions may be called; repeatable.")
@click.option("--label", multiple=True, metavar="KEY=VALUE", help="A label that tasks may ask for; repeatable.")
@click.option("--resource", multiple=True, metavar="NAME=N", help="An amount that tasks may reserve; repeatable.")
@click.option("--ttl", default=_DEFAULT_TTL, show_default=True, metavar="DURATION", help="How long it may be silent.")
@click.option("--state-dir", type=click.Path(path_type=Path), metavar="DIR", help="Where it keeps its id and results.")
@click.option("--worker-id", metavar="NAME", help="Its durable id; made once when not given.")
@click.option("--site", metavar="NAME", help="The site that it belongs to.")
@owner_option
@with_desk
def worker(desk: Desk, /, **options: object) -> None:
    """Run a worker until Ctrl-C: then it finishes what it holds, and leaves. A second Ctrl-C ends it at once."""
    from tenure.workers.agent import Agent

    form = collect(WorkerForm, options)
    chosen = worker_options(form, desk.settings)
    log_to_stderr()
    agent = Agent(chosen, _connector(desk.settings, chosen), desk.session.clock, desk.session.entropy)
    _drain_on_signals(agent)
    end_with_owner(form.owner_pipe, lambda: _end_at_once(agent), desk.session.clock)
    summary = agent.run()
    counts = ", ".join(f"{count} {name}" for name, count in sorted(summary.counts.items())) or "nothing to do"
    desk.remark(f"Worker {summary.worker_id} has left: {counts}")


def worker_options(form: WorkerForm, settings: Settings) -> WorkerOptions:
    """The options as the agent takes them. Raises `UsageError`."""
    from tenure.protocol.durations import duration_ms
    from tenure.settings import inherited_environment
    from tenure.workers.options import ENVIRONMENT_NAMES, WorkerOptions

    python_path = inherited_environment(("PYTHONPATH",)).get("PYTHONPATH", "")
    return WorkerOptions(
        state_dir=(form.state_dir or settings.data_dir).absolute(),
        capabilities=form.capability or ("default",),
        worker_id=form.worker_id,
        slots=form.slots,
        allow=form.allow,
        labels=pairs(form.label, "--label"),
        resources=amounts(form.resource, "--resource"),
        ttl_ms=duration_ms(form.ttl, "--ttl"),
        site=form.site or settings.site,
        environment=tuple(sorted(inherited_environment(ENVIRONMENT_NAMES).items())),
        adopts=True,
        import_path=(str(Path.cwd()), *(folder for folder in python_path.split(os.pathsep) if folder)),
    )


def _connector(settings: Settings, options: WorkerOptions) -> Callable[[str], RedisWorker]:
    from tenure.broker.keys import Keys
    from tenure.broker.redis_connection import BrokerUrl, RedisConnection
    from tenure.broker.redis_worker import RedisWorker
    from tenure.protocol.timing import broker_timeout_ms

    url, keys = BrokerUrl(settings.resolve_broker_url()), Keys(settings.namespace)
    timeout_ms = broker_timeout_ms(options.ttl_ms)

    def connect(worker_id: str) -> RedisWorker:
        connection = RedisConnection(url, timeout_ms=timeout_ms)
        return RedisWorker(connection, keys, site=options.site, worker_id=worker_id)

    return connect


def _drain_on_signals(agent: Agent) -> None:
    def drain(_: int, __: FrameType | None) -> None:
        agent.request_drain()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, drain)


def _end_at_once(agent: Agent) -> None:
    agent.request_drain()
    agent.request_drain()
