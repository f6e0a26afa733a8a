"""`tenure workers render-launch`: what a launcher would start for a task, shown and not started."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

import click

from tenure.cli.arguments import LocalPath
from tenure.cli.desk import collect, store_options, with_desk
from tenure.cli.execution import ExecutionForm, execution_options
from tenure.cli.launching import LaunchForm, executor_command, launcher_tables
from tenure.cli.records import one_row, query, task_id_argument
from tenure.cli.tasks import TASKS
from tenure.errors import UsageError
from tenure.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.cli.desk import Desk
    from tenure.launchers.base import LaunchOrder, Plan

_EXAMPLE_TASK: Final = "01JDEXAMP1E00000000000000A"
_EXAMPLE_OPTIONS: Final = MappingProxyType(
    {
        "kubernetes": {"image": f"registry.example/tenure:{VERSION}"},
        "rq": {"redis_url": "redis://redis.example:6379/0"},
    }
)
"""What a launcher must be told, for an example that nobody has told anything."""

_SOMEWHERE: Final = Path("/run/credentials/broker")
_UNKNOWN_ENTRY: Final = "0-0"
_TTL_MS: Final = 30_000


@click.command("render-launch", short_help="Show what a launcher would start for a task.")
@click.argument("task_id", metavar="[TASK]", type=task_id_argument, required=False)
@click.option("--launcher", required=True, metavar="NAME", help="Which launcher; see `tenure launchers`.")
@click.option("--example", is_flag=True, help="For a made-up task, with all that the substrate must have; asks nobody.")
@click.option(
    "--launcher-file",
    type=LocalPath(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The launcher's options, as TOML.",
)
@click.option("--launcher-option", multiple=True, metavar="KEY=VALUE", help="One of its options; repeatable.")
@click.option(
    "--worker-id", default="worker", metavar="NAME", show_default=True, help="The worker that would start it."
)
@execution_options
@store_options
@with_desk
def render_launch(desk: Desk, /, task_id: str | None, launcher: str, *, example: bool, **options: Any) -> None:  # noqa: ANN401 - click's
    """Show what a worker with this launcher would start for a task, without starting it.

    With --example it is a made-up task, and for a cluster also its accounts, rights and network rules. A real launch
    differs only in the place of the task's entry at the broker.
    """
    if (task_id is None) != example:
        raise UsageError("a task or --example is needed, and not both", "See `tenure tasks list`")
    worker_id: str = options["worker_id"]
    order = _example(desk, worker_id) if task_id is None else _order_of(desk, task_id, worker_id)
    plan = _renderer(desk, launcher, options, example=example)(order)
    shown: Callable[[], str] = plan.shown
    if example:
        shown = cast("Callable[[], str]", getattr(plan, "shown_with_premises", plan.shown))
    text = shown().rstrip("\n")
    desk.output.answer({"name": plan.name, "plan": text}, text)


def _renderer(desk: Desk, name: str, options: dict[str, Any], *, example: bool) -> Callable[[LaunchOrder], Plan]:
    from tenure.launchers.base import LauncherSettings
    from tenure.launchers.catalog import make_renderer, require_launcher

    require_launcher(name)
    form = LaunchForm(name, options["launcher_file"], options["launcher_option"])
    executor, own = launcher_tables(form)
    if example:
        own = {**_EXAMPLE_OPTIONS.get(name, {}), **own}
    # The file that executors would be told of: rendering writes none, and reads no address.
    source = None if example else desk.settings.broker_url_source()
    settings = desk.settings.model_copy(update={"broker_url": None, "broker_url_file": source or _SOMEWHERE})
    folder = settings.data_dir
    command = executor_command(name, settings, collect(ExecutionForm, _execution(options)), folder, executor)
    return make_renderer(name, LauncherSettings(command, folder, desk.session.clock, desk.session.entropy, own))


def _execution(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in ExecutionForm.__dataclass_fields__}


def _example(desk: Desk, worker_id: str) -> LaunchOrder:
    row: dict[str, Any] = {
        "task_id": _EXAMPLE_TASK,
        "capability": "default",
        "run": "example",
        "attempt": 1,
        "fence": 1,
        "digest": "0" * 64,
        "memory_bytes": 2**31,
        "timeout_ms": 3_600_000,
        "resources": {},
    }
    return _order(desk, row, "example", worker_id)


def _order_of(desk: Desk, task_id: str, worker_id: str) -> LaunchOrder:
    row = one_row(desk, TASKS, task_id)
    (status,) = query(desk, "status")
    return _order(desk, row, str(status["world"]), worker_id)


def _order(desk: Desk, row: dict[str, Any], world: str, worker_id: str) -> LaunchOrder:
    from tenure.launchers.base import LaunchOrder
    from tenure.protocol.launch import LaunchTicket

    ticket = LaunchTicket(
        namespace=desk.settings.namespace,
        site=desk.settings.site,
        parent=worker_id,
        capability=row["capability"],
        entry=_UNKNOWN_ENTRY,
        world=world,
        run=row["run"],
        task_id=row["task_id"],
        attempt=row["attempt"],
        # A task that was never offered gets its first fence with its first offer.
        fence=row["fence"] or 1,
        digest=row["digest"],
        ttl_ms=_TTL_MS,
    )
    resources = tuple(sorted(row["resources"].items()))
    return LaunchOrder(ticket, row["memory_bytes"], row["timeout_ms"], resources)
