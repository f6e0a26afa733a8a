"""`tenure up`: a whole fleet on this machine with one command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import click

from tenure.cli.arguments import LocalPath
from tenure.cli.desk import collect, store_options, with_desk
from tenure.cli.modules import require_modules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.cli.desk import Desk
    from tenure.cli.local_fleet import LocalFleet
    from tenure.cli.observer import Observer
    from tenure.cli.signals import Signals

_READY_MS: Final = 30_000
_LOOK_MS: Final = 200


@final
@dataclass(frozen=True, slots=True)
class UpForm:
    """The options of `tenure up`."""

    workers: int
    slots: int
    allow: tuple[str, ...]
    capability: tuple[str, ...]
    data: Path | None
    secrets_dir: Path | None

    def names(self) -> Sequence[str]:
        """The workers' ids: the same at every start, so that they are known again."""
        return [f"worker-{number}" for number in range(1, self.workers + 1)]

    def worker_options(self) -> list[str]:
        """What each worker is started with."""
        options = ["--slots", str(self.slots)]
        for module in self.allow:
            options += ["--allow", module]
        for name in self.capability or ("default",):
            options += ["--capability", name]
        if self.secrets_dir is not None:
            options += ["--secrets-dir", str(self.secrets_dir.absolute())]
        return options


@click.command(short_help="Run a whole fleet on this machine.")
@click.option(
    "--workers",
    type=click.IntRange(0, 256),
    metavar="N",
    default=2,
    show_default=True,
    help="How many worker processes.",
)
@click.option(
    "--slots", type=click.IntRange(1, 256), metavar="N", default=1, show_default=True, help="Tasks at once per worker."
)
@click.option("--allow", multiple=True, metavar="MODULE", help="A module whose functions may be called; repeatable.")
@click.option("--capability", multiple=True, metavar="NAME", help='What the workers offer; "default" when not given.')
@click.option(
    "--data", type=LocalPath(path_type=Path, file_okay=False), metavar="DIR", help="Where everything is kept."
)
@click.option(
    "--secrets-dir",
    type=LocalPath(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Secrets that tasks may name, one file each, readable by their owner only.",
)
@store_options
@with_desk
def up(desk: Desk, /, **options: object) -> None:
    """Run a broker, a coordinator and workers on this machine until Ctrl-C.

    Other terminals find the fleet by themselves, unless --data names a folder of your own. Files of tasks are kept in
    that folder, unless --artifacts says otherwise. Ctrl-C lets running tasks finish; a second one does not. Started
    again, it goes on where it ended.
    """
    from tenure.cli.local_fleet import FleetPlan, LocalFleet
    from tenure.cli.signals import Signals

    desk.runs_own_broker()
    form = collect(UpForm, options)
    require_modules(form.allow)
    folder = (form.data or desk.settings.up_dir).absolute()
    plan = FleetPlan(folder, desk.settings.namespace, desk.settings.artifacts, desk.settings.artifacts_options_file)
    with Signals() as signals:
        fleet = LocalFleet(desk, plan, desk.remark, signals)
        try:
            fleet.open()
            _run(desk, form, fleet, signals)
        finally:
            fleet.close()
    desk.remark("Everything has ended. Nothing is lost: `tenure up` goes on from here.")


def _run(desk: Desk, form: UpForm, fleet: LocalFleet, signals: Signals) -> None:
    from tenure.cli.observer import Observer
    from tenure.cli.status import status_line

    with Observer(fleet.url, desk.settings.namespace) as observer:
        if not _start(form, fleet, observer, desk.session.clock.now_ms()):
            return
        _greet(desk, form, fleet)
        with status_line(desk, observer) as status:
            while not signals.asked_to_end:
                fleet.tend()
                status.refresh()
                signals.wait(_LOOK_MS)
    desk.remark("Ending: running tasks may finish; press Ctrl-C again to stop them.")
    if not fleet.drain():
        desk.remark("Stopping at once.")


def _start(form: UpForm, fleet: LocalFleet, observer: Observer, since_ms: int) -> bool:
    fleet.start_coordinator()
    if not fleet.wait_for(lambda: bool(observer.rows("status")), _READY_MS, "starting the coordinator"):
        return False
    for name in form.names():
        fleet.start_worker(name, form.worker_options())
    return fleet.wait_for(lambda: _is_ready(observer, form, since_ms), _READY_MS, "starting the workers")


def _is_ready(observer: Observer, form: UpForm, since_ms: int) -> bool:
    active = {row["worker_id"] for row in observer.rows("workers") if row["registered_at_ms"] >= since_ms}
    return active.issuperset(form.names())


def _greet(desk: Desk, form: UpForm, fleet: LocalFleet) -> None:
    custom = f" --broker-url-file {fleet.url_file}" if form.data is not None else ""
    workers = "1 worker" if form.workers == 1 else f"{form.workers} workers"
    work = f"{form.allow[0]}:FUNCTION" if form.allow else "-- echo hello"
    desk.output.answer(
        {"ready": True, "workers": list(form.names()), "broker_url_file": str(fleet.url_file)},
        f"ready: a broker, a coordinator and {workers}. Data: {fleet.url_file.parent}\n"
        f"In another terminal: tenure submit --wait{custom} {work}\n"
        "Ctrl-C ends it.",
    )
