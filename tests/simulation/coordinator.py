"""The coordinator's process: the real coordinator over the real store, and what can happen to it at every point.

Every call to the broker and every commit is a point at which it can be killed or stopped, before or after the effect.
A call that waits runs the rest of the world meanwhile (see `engine.py`).
"""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager, suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, cast, final

from tenure.coordinator.coordinator import Coordinator
from tenure.coordinator.options import CoordinatorOptions
from tenure.coordinator.store.database import Database
from tenure.errors import BrokerError, BrokerFull, BrokerUnreachable, StoreFull, StreamMissing, Superseded
from tests.simulation.contents import ADDRESS, SimulatedPorter
from tests.simulation.groups import GroupMissing
from tests.simulation.history import Broken
from tests.simulation.hosts import Process
from tests.simulation.network import unreachable
from tests.simulation.profile import START_POINTS, WORK_POINTS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from tenure.broker.base import CoordinatorBroker, EntryId
    from tenure.protocol.assignment import Assignment
    from tests.simulation.contents import Shelf
    from tests.simulation.dice import Dice
    from tests.simulation.hosts import Host
    from tests.simulation.network import Network
    from tests.simulation.records import Records

WORLD: Final = "main"
UNCLAIMED_MS: Final = 2_500
_IDLE_MS: Final = 250
_PAUSE_MS: Final = 250
_TIMEOUT_MS: Final = 1_000
_AIMED_PER_MILLE: Final = 700
"""How often a crash waits for a certain point."""


class Crash(BaseException):
    """The process was killed here. Nothing catches this but the simulation."""


@final
class GuardedStore:
    """The real store, watched: facts are read after each commit, and a crash may come before or after it."""

    def __init__(self, process: CoordinatorProcess, store: Database) -> None:
        self._process = process
        self._store = store
        self.run = store.run
        self.run_many = store.run_many
        self.rows = store.rows
        self.row = store.row
        self.records = store.records

    def begin_epoch(self) -> int:
        """See `Database.begin_epoch`."""
        self._process.point("before an epoch", can_stop=False)
        epoch = self._store.begin_epoch()
        self._process.point("after an epoch", can_stop=False)
        return epoch

    @property
    def epoch(self) -> int:
        return self._store.epoch

    @property
    def path(self) -> Path:
        return self._store.path

    @contextmanager
    def transaction(self) -> Generator[None]:
        """See `Database.transaction`."""
        process = self._process
        with self._store.transaction():
            yield
            process.point("before a commit", can_stop=False)
            if process.disk_full:
                raise StoreFull("the simulated disk is full", "Free some space")
        process.records.observe(self._store._connection)
        process.point("after a commit")


@final
class GuardedBroker:
    """The coordinator's face, over a network that fails, for a process that dies."""

    def __init__(self, process: CoordinatorProcess, part: str = "") -> None:
        self._process = process
        self._part = part
        if not part:
            self.sites = GuardedBroker(process, "sites.")

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Every call passes through the process."""
        process = self._process

        def call(*args: Any, **kwargs: Any) -> Any:
            if "block_ms" in kwargs:
                kwargs["block_ms"] = 0
            return process.call(f"{self._part}{name}", args, kwargs)

        self.__dict__[name] = call
        return call


@final
class CoordinatorProcess(Process):
    """One coordinator from its start to its end."""

    def __init__(
        self, host: Host, network: Network, records: Records, database: Path, dice: Dice, shelf: Shelf
    ) -> None:
        super().__init__(network.engine, host)
        self.network = network
        self.records = records
        self.dice = dice
        self.disk_full = False
        self.crash_in = 0
        """At how many more points it is killed; 0 for never."""
        self.crash_at = ""
        """Which points count for that; all of them when it is empty."""
        self.stop_in = 0
        """At how many more points it is stopped for `stop_ms`."""
        self.stop_ms = 0
        self.when_stopped: Callable[[CoordinatorProcess], None] | None = None
        """Called when it stands still, once."""
        self.has_mail: Callable[[], bool] = lambda: True
        """Whether there is more to read at once."""
        self.ended: Callable[[CoordinatorProcess], None] | None = None
        self.published: Callable[[EntryId, Assignment], None] | None = None
        self._database = database
        self._porter = SimulatedPorter(self, shelf, dice.fork("porter"))
        self._store: Database | None = None
        self._coordinator: Coordinator | None = None
        self.busy = False
        """Whether it is in the middle of a step."""
        self._planned = -1

    # --- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the database and begin to coordinate."""
        options = CoordinatorOptions(
            database=self._database, namespace=WORLD, unclaimed_ms=UNCLAIMED_MS, artifacts=ADDRESS
        )
        try:
            self._store = Database(self._database)
            store = cast("Database", GuardedStore(self, self._store))
            broker = cast("CoordinatorBroker", GuardedBroker(self))
            self._coordinator = Coordinator(
                options,
                store=store,
                broker=broker,
                clock=self.host.clock,
                entropy=self.dice,
                porter=self._porter,
            )
            self.records.observe(self._store._connection)
        except Crash:
            self.die()
            return
        self.wake(1)

    def crash_soon(self, *, starting: bool = False) -> None:
        """Be killed at one of the next points, or when a certain one is reached, for many are reached seldom."""
        points = START_POINTS if starting else WORK_POINTS
        self.crash_at = self.dice.pick(points) if self.dice.chance(_AIMED_PER_MILLE) else ""
        if self.crash_at:
            self.crash_in = 1 if starting else self.dice.pick((1, 1, 1, 2))
        else:
            self.crash_in = self.dice.between(1, 16 if starting else 40)

    def die(self) -> None:
        """Be killed. In the middle of a step, the step unwinds first."""
        self.alive = False
        if not self.busy:
            self._close()

    def limit_disk(self, *, full: bool) -> None:
        """Let the store's disk be full, or free again."""
        self.disk_full = full
        if self._store is not None and self.alive:
            connection = self._store._connection
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages if full else 1_000_000}")

    def break_lock(self) -> None:
        """Let somebody remove the lock file, so that a second coordinator can start."""
        self._database.with_name(f"{self._database.name}.lock").unlink()

    def _close(self) -> None:
        super().kill()
        if self._store is not None:
            with suppress(OSError):
                self._store._connection.close()
                os.close(self._store._lock)
            self._store = None
        if self.ended is not None:
            self.ended(self)

    # --- steps ----------------------------------------------------------------------------------

    def wake(self, delay_ms: int) -> None:
        """Step soon; earlier than planned, if it is."""
        when = self.engine.now + delay_ms
        if self.busy or (self.engine.now <= self._planned <= when):
            return
        self._planned = when

        def step() -> None:
            if self._planned == when and not self.busy:
                self._step()

        self.engine.at(when, lambda: self.deliver(step))

    def _step(self) -> None:
        coordinator = self._coordinator
        if coordinator is None:
            return
        self.busy, self._planned = True, -1
        pause_ms = _IDLE_MS
        try:
            pause_ms = 1 if coordinator.step(0) and self.has_mail() else _IDLE_MS
        except (BrokerFull, BrokerUnreachable, StreamMissing, StoreFull):
            pause_ms = _PAUSE_MS
        except Superseded:
            self.alive = False
        except Crash:
            self.alive = False
        except Exception as error:
            logging.getLogger("tenure.simulation").exception("the coordinator ended")
            what = f"the coordinator ended: {type(error).__name__}: {error}"
            self.records.history.add(Broken(self.engine.now, what))
            self.alive = False
        self.busy = False
        if self.alive:
            self.wake(pause_ms)
        else:
            self._close()

    # --- points ---------------------------------------------------------------------------------

    def point(self, where: str, *, can_stop: bool = True) -> None:
        """A point at which it can be killed or stopped."""
        if self.crash_in and self.crash_at in {"", where}:
            self.crash_in -= 1
            if not self.crash_in:
                self.records.history.fault("coordinator_crash", where)
                raise Crash
        if self.stop_in and can_stop:
            self.stop_in -= 1
            if not self.stop_in:
                self._be_stopped(where)
        if not self.alive:
            raise Crash

    def _be_stopped(self, where: str) -> None:
        when_stopped, self.when_stopped = self.when_stopped, None
        kind = "coordinator_pause" if when_stopped is None else "stopped"
        self.records.history.fault(kind, f"{where} for {self.stop_ms} ms")
        if when_stopped is not None:
            self.engine.after(1, lambda: when_stopped(self))
        self._stand_still(self.stop_ms)

    def _stand_still(self, duration_ms: int) -> None:
        """Be stopped here, while everything else goes on."""
        self.engine.run(self.engine.now + duration_ms, lambda: not self.alive)
        while self.stands_still and self.alive:
            self.engine.run(self.engine.now + 20, lambda: not self.alive)
        if not self.alive:
            raise Crash

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One call to the broker."""
        if self.crash_in or self.stop_in or not self.alive:
            self.point(f"before {name}")
        if self.stands_still:
            self._stand_still(0)
        network = self.network
        if self.host.cut:
            self._stand_still(self.dice.between(1, _TIMEOUT_MS))
            raise unreachable()
        if network.noisy:
            self._message_faults(name, args, kwargs)
        value = self._act(name, args, kwargs)
        if network.noisy and network.struck("lost_reply"):
            self._stand_still(_TIMEOUT_MS)
            raise unreachable()
        if self.crash_in or self.stop_in or not self.alive:
            self.point(f"after {name}")
        return value

    def _message_faults(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        network = self.network
        if network.struck("lost_request"):
            self._stand_still(_TIMEOUT_MS)
            raise unreachable()
        if network.struck("late"):
            delay_ms = self.dice.between(1, 3_000)
            if delay_ms < _TIMEOUT_MS:
                self._stand_still(delay_ms)
                return

            def arrive() -> None:
                with suppress(BrokerError):
                    self._act(name, args, kwargs)

            self.engine.after(delay_ms, arrive)
            self._stand_still(_TIMEOUT_MS)
            raise unreachable()

    def _act(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        server = self.network.server_of(self.host)
        try:
            value = attrgetter(name)(server.coordinator)(*args, **kwargs)
        except GroupMissing as error:
            server.met_no_group(error.what)
            raise
        if name == "ensure_streams":
            server.ensured(*args, **kwargs)
        if name == "publish" and self.published is not None:
            for publication in args[0]:
                self.published(publication.entry_id, publication.assignment)
        if name in {"publish", "post", "ensure_streams"}:
            server.written()
        return value
