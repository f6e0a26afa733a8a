"""Where the demo plays: a fleet in a temporary folder, its records, and a voice."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from tenure.cli.local_fleet import FleetPlan, LocalFleet
from tenure.cli.observer import Observer
from tenure.cli.signals import Signals
from tenure.client.client import Client
from tenure.client.options import ClientOptions
from tenure.client.wiring import wiring_of
from tenure.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

    from tenure.cli.desk import Desk
    from tenure.cli.parts import Part
    from tenure.protocol.client_messages import Listed

NAMESPACE: Final = "demo"
CAPABILITY: Final = "lorenz"
LEASE_TTL: Final = "5s"
FIRST: Final = "worker-a"
SECOND: Final = "worker-b"
_TASKS: Final = "tenure.cli.demo_tasks"
_PATIENCE_MS: Final = 60_000


@final
@dataclass(frozen=True, slots=True)
class Stage:
    """What all acts use."""

    folder: Path
    """Of this demo alone; removed afterwards."""
    desk: Desk
    fleet: LocalFleet
    client: Client
    observer: Observer

    @property
    def enough(self) -> Path:
        """The file that lets the tasks end which the first worker is stopped in.

        They go on until it is there, so that a machine of any speed catches them in the middle, and end at once then,
        long before their leases do.
        """
        return self.folder / "enough"

    def say(self, text: str = "", *, bold: bool = False) -> None:
        """Tell the audience something."""
        self.desk.output.say(text, bold=bold)

    def rows(self, what: Listed, **where: str) -> list[dict[str, Any]]:
        """Records, newest first."""
        return self.observer.rows(what, **where)

    def first(self, what: Listed, name: str, **where: str) -> dict[str, Any]:
        """The newest record of its kind, as soon as there is one. Raises `FleetError` when there is none in time."""
        found: list[dict[str, Any]] = []

        def there() -> bool:
            found[:] = self.rows(what, **where)
            return bool(found)

        self.wait(name, there)
        return found[0]

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait until the records show something. Raises `FleetError` when they do not."""
        if not self.fleet.wait_for(condition, _PATIENCE_MS, what):
            raise KeyboardInterrupt

    def start_worker(self, name: str, slots: int) -> Part:
        """Start a worker and wait until the coordinator knows it."""
        options = ["--capability", CAPABILITY, "--slots", str(slots), "--ttl", LEASE_TTL, "--allow", _TASKS]
        part = self.fleet.start_worker(name, options)
        self.wait(
            f"starting {name}", lambda: any(row["state"] == "ACTIVE" for row in self.rows("workers", worker_id=name))
        )
        return part

    def story_of(self, task_id: str) -> Sequence[dict[str, Any]]:
        """The coordinator's own account of a task."""
        from tenure.protocol.client_messages import Explain

        return self.client.ask(Explain(task_id=task_id)).rows


@contextmanager
def open_stage(desk: Desk, folder: Path) -> Generator[Stage]:
    """Start broker and coordinator; end everything afterwards."""
    with Signals() as signals:
        plan = FleetPlan(folder, NAMESPACE)
        fleet = LocalFleet(desk, plan, desk.remark, signals)
        try:
            fleet.open()
            fleet.start_coordinator()
            options = ClientOptions(namespace=NAMESPACE, principal="demo")
            # The store is named, too: what this user has set for another fleet must not be looked into here.
            own = load_settings(broker_url=fleet.url, namespace=NAMESPACE, artifacts=plan.store_address)
            with (
                Observer(fleet.url, NAMESPACE) as observer,
                Client(options=options, wiring=wiring_of(own)) as client,
            ):
                stage = Stage(folder, desk, fleet, client, observer)
                stage.wait("starting the coordinator", lambda: bool(stage.rows("status")))
                yield stage
            fleet.drain()
        finally:
            fleet.close()
