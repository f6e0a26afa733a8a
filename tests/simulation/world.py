"""One simulated fleet: what there is at the start, what people do, and the end."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, final

from tenure.broker.base import Readers
from tenure.broker.keys import DEFAULT_PERSON, DEFAULT_SITE, Keys
from tenure.protocol.client_messages import Adopt, CollectArtifacts, Drop
from tenure.protocol.envelope import CallWork, CommandWork, Envelope, Requirements, Retry, Scope, digest, encode
from tests.simulation.agent import Seat
from tests.simulation.book import Book, TaskPlan
from tests.simulation.clients import ClientProcess, Wanted
from tests.simulation.contents import Shelf
from tests.simulation.coordinator import WORLD, CoordinatorProcess
from tests.simulation.dice import Dice
from tests.simulation.engine import Engine
from tests.simulation.executions import NORTH
from tests.simulation.faults import TEN_MINUTES_MS, Faults
from tests.simulation.foreman import LABELS, Foreman
from tests.simulation.history import Closed, Fact, History, Quiet, Submitted
from tests.simulation.hosts import Host, HostClock
from tests.simulation.liar import SITE
from tests.simulation.network import Network
from tests.simulation.profile import LAUNCHER, Profile, draw_profile
from tests.simulation.records import Records
from tests.simulation.slots import ASYNC, QUICK, Crew

if TYPE_CHECKING:
    from pathlib import Path

    from tenure.protocol.client_messages import Ask

_READERS: Final = Readers((DEFAULT_SITE, SITE, NORTH), (DEFAULT_PERSON,))
_LONGEST_MS: Final = 180_000
"""And as long again as all jumps of clocks: a delay is kept by the wall clock, and a jump nobody saw adds to it."""
_LOOK_EVERY_MS: Final = 500
_SETTLE_MS: Final = 3_000
_COLLECTED_AFTER_MS: Final = 12_000
"""Longer than anything stands still, so that no collection is decided upon what was long ago."""
OVER: Final = frozenset({"SUCCEEDED", "FAILED", "CANCELLED", "ABANDONED"})
TTLS: Final = (1_000, 1_500, 2_000, 3_000)


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """Which seed, and without which faults."""

    seed: int
    without: frozenset[str] = frozenset()
    only: tuple[str, ...] = ()
    """Exactly these faults, when there are any here."""


@final
class World:
    """Everything of one history."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        dice = Dice(plan.seed)
        self.dice = dice.fork("world")
        self.profile: Profile = draw_profile(dice.fork("profile"), plan.without, plan.only)
        self.folder = folder
        self.engine = Engine()
        self.history = History(self.engine)
        self.book = Book(self.history, dice, Shelf(self.history))
        self.records = Records(self.history)
        self._clocks = dice.fork("clocks")
        broker_clock = self._clock()
        self.network = Network(self.engine, broker_clock, Keys(WORLD), dice.fork("network"), self.profile)
        self.network.history = self.history
        self.hosts: dict[str, Host] = {}
        self.twins: list[Seat] = []
        sites = dice.fork("sites")
        self.seats = [self._seat(f"w{number}", dice, sites) for number in range(1, self.dice.between(2, 3) + 1)]
        self.database = folder / "fleet.db"
        self.coordinator: CoordinatorProcess | None = None
        self.coordinators = 0
        self.client = self._new_client(1)
        self.wanted: dict[str, Wanted] = {}
        self.quiet = False
        self.network.server.listeners.append(self._wake_readers)
        self.foreman = self._new_foreman(dice.fork("foreman"))
        self.faults = Faults(self, dice.fork("faults"))
        self.records.revoked = self.faults.people.revoked

    # --- the parts ------------------------------------------------------------------------------

    def host(self, name: str) -> Host:
        """The host of that name."""
        found = self.hosts.get(name)
        if found is None:
            found = self.hosts[name] = Host(name, self._clock())
        return found

    def start_coordinator(self) -> None:
        """A new coordinator, unless one is at work."""
        if self.coordinator is not None and self.coordinator.alive:
            return
        self.coordinators += 1
        process = CoordinatorProcess(
            self.host("c"),
            self.network,
            self.records,
            self.database,
            self.dice.fork(f"c{self.coordinators}"),
            self.book.shelf,
        )
        process.ended = self._coordinator_ended
        process.has_mail = self._has_mail
        process.published = self.faults.people.note
        self.coordinator = process
        if self.coordinators > 1 and not self.quiet and self.profile.has("coordinator_crash") and self.dice.chance(600):
            process.crash_soon(starting=True)  # on its way up, too
        process.start()

    def take_over(self, stale: CoordinatorProcess) -> None:
        """Start another coordinator beside one that stands still."""
        if stale.alive and stale is self.coordinator:
            self.history.fault("stale_coordinator", f"c{self.coordinators}")
            stale.break_lock()
            self.coordinator = None
            self.start_coordinator()

    def new_client(self) -> None:
        """The client is killed, and another asks for the same under the same keys."""
        self.client.kill()
        number = int(self.client.client_id[6:]) + 1
        self.client = self._new_client(number)
        self.client.start()
        self.client.submit(list(self.wanted.values()))

    def _new_client(self, number: int) -> ClientProcess:
        name = f"client{number}"
        return ClientProcess(self.host("p"), self.network, name, self.dice.fork(name), self.history)

    def _new_foreman(self, dice: Dice) -> Foreman | None:
        """In some histories a worker starts executors; in all where something may happen to them."""
        wanted = dice.chance(250) or any(map(self.profile.has, LAUNCHER))
        return Foreman(self, dice) if wanted else None

    def _clock(self) -> HostClock:
        dice = self._clocks
        return HostClock(
            self.engine,
            start_ms=dice.between(0, 1_000_000),
            wall_offset_ms=dice.between(-600_000, 600_000),
            rate_ppm=dice.between(-5_000, 5_000),
        )

    def _seat(self, name: str, dice: Dice, sites: Dice) -> Seat:
        """The first one is where nobody is thrown out; the others may be of another site."""
        site = NORTH if name != "w1" and sites.chance(450) else DEFAULT_SITE
        name = f"{NORTH}.{name}" if site == NORTH else name
        host, slots = self.host(name), self.dice.pick((1, 1, 2, 3))
        return Seat(
            worker_id=name,
            host=host,
            network=self.network,
            crew=Crew(host, name, slots, self.book),
            book=self.book,
            folder=self.folder,
            dice=dice.fork(name),
            slots=slots,
            ttl_ms=self.dice.pick(TTLS),
            capabilities=("cpu", "gpu") if name == "w1" else ("cpu",),
            labels=(("room", name),),
            site=site,
        )

    def _coordinator_ended(self, process: CoordinatorProcess) -> None:
        if process is self.coordinator:
            self.engine.after(self.dice.between(50, 1_500), self.start_coordinator)

    def _wake_readers(self) -> None:
        delay_ms = self.dice.below(4)
        if self.coordinator is not None and not self.coordinator.busy and self._has_mail():
            self.coordinator.wake(delay_ms)
        if self.client.has_news():
            self.client.wake(2)

    def _has_mail(self) -> bool:
        return self.network.server_of(self.host("c")).unread(_READERS)

    # --- one history ----------------------------------------------------------------------------

    def run(self) -> list[Fact]:
        """From the start to the end; the facts."""
        self.start_coordinator()
        for seat in self.seats:
            self.engine.at(self.dice.between(0, 300), seat.start_when_possible)
        if self.foreman is not None:
            self.foreman.start()
        self.client.start()
        self._plan_tasks()
        self.faults.plan()
        self.engine.at(self.profile.quiet_ms, self._fall_quiet)
        settled = self._run_until_settled()
        self.history.add(Closed(self.engine.now, settled))
        self._close()
        return self.history.facts

    def _run_until_settled(self) -> bool:
        since = -1
        jumps = sum(kind == "clock_jump" for _, kind in self.profile.strikes)
        longest_ms = _LONGEST_MS + jumps * TEN_MINUTES_MS
        while self.engine.now < longest_ms:
            self.engine.run(self.engine.now + _LOOK_EVERY_MS)
            if not (self.quiet and self.is_settled()):
                since = -1
            elif since < 0:
                since = self.engine.now
            elif self.engine.now - since >= _SETTLE_MS:
                return True
        return False

    def is_settled(self) -> bool:
        """Whether every task is over or waits for a person, and everyone knows."""
        states = self.records.task_states()
        if len(states) < len(self.wanted):
            return False
        pending = set(self.records.pending())
        for task, state in states.items():
            if state not in OVER and not (state == "LOST" and task in pending):
                return False
        if self.records.unpromoted() or (self.foreman is not None and self.foreman.launches):
            return False
        keys = self.records.keys()
        done = [handle.done() or states.get(keys.get(key, "")) == "LOST" for key, handle in self.client.handles.items()]
        return all(done) and all(seat.crew.is_empty() or not _busy(seat) for seat in self.seats)

    def _fall_quiet(self) -> None:
        self.quiet = True
        self.faults.stop()
        self.history.add(Quiet(self.engine.now))

    def _close(self) -> None:
        if self.coordinator is not None:
            self.coordinator.ended = None
            self.coordinator.die()
        for seat in (*self.seats, *self.twins):
            if seat.agent is not None and seat.agent.alive:
                seat.agent.kill()
                seat.agent.spool.close()

    # --- what people want -----------------------------------------------------------------------

    def _plan_tasks(self) -> None:
        count = self.dice.between(3, 7)
        tasks = [self._task(f"k{number}") for number in range(count)]
        at = 200
        while tasks:
            batch, tasks = tasks[: (size := self.dice.between(1, 4))], tasks[size:]
            self.engine.at(at, partial(self._submit, batch))
            at += self.dice.between(0, 4_000)
        for key in list(self.wanted):
            if self.dice.chance(120):
                when = self.dice.between(300, self.profile.quiet_ms)
                self.engine.at(when, partial(self._cancel, key))
        for _ in range(self.dice.below(6)):
            self.engine.at(self.dice.between(2_000, 15_000), self._decide)
        for _ in range(self.dice.below(6)):
            self.engine.at(self.dice.between(2_000, 20_000), self._judge)
        for _ in range(self.dice.below(3)):
            collect = CollectArtifacts(min_age_ms=_COLLECTED_AFTER_MS)
            self.engine.at(self.dice.between(5_000, 25_000), partial(self._ask, collect))

    def _submit(self, batch: list[Wanted]) -> None:
        self.client.submit(batch)

    def _cancel(self, key: str) -> None:
        self.client.cancel(key)

    def _decide(self) -> None:
        pending = sorted(self.records.pending())
        if pending:
            task = self.dice.pick(pending)
            named = self.records.directive_of(task) if self.dice.chance(600) else None
            self.client.decide(task, approve=self.dice.chance(700), named=named)

    def _judge(self) -> None:
        """Somebody decides about a rejected result."""
        if self.records.undecided:
            name = self.dice.pick(self.records.undecided)
            self.client.judge(Adopt(quarantine_id=name) if self.dice.chance(800) else Drop(quarantine_id=name))

    def _ask(self, ask: Ask) -> None:
        self.client._ask(ask)

    def _task(self, key: str) -> Wanted:
        dice = self.dice
        start = "granted" if dice.chance(700) else "claimed"
        exclusive = start == "granted" and dice.chance(300)
        handler = dice.pick(("sim:work", "sim:work", QUICK, ASYNC))
        takes_ms = dice.between(1, 30) if handler == QUICK else dice.pick((100, 500, 1_500, 3_000, 5_000))
        retry = Retry(lost=dice.below(4), failed=dice.below(3), backoff_ms=dice.pick((0, 0, 200, 900)))
        capability = "gpu" if dice.chance(150) else "cpu"
        envelope = Envelope(
            capability=capability,
            work=CommandWork(argv=("true",)) if dice.chance(200) else CallWork(handler=handler),
            scope=Scope(world=WORLD, run="r1"),
            start="granted" if start == "granted" else "claimed",
            exclusive=exclusive,
            lease_ttl_ms=dice.pick(TTLS),
            timeout_ms=dice.pick((1_000, 4_000)) if dice.chance(150) else None,
            retry=retry,
            priority=dice.below(3),
            delay_ms=dice.pick((0, 0, 0, 700)),
            requirements=self._requirements(capability),
            label=key,
        )
        raw = encode(envelope)
        kind = "exclusive" if exclusive else start
        fails, dies = dice.pick((0, 0, 300)), dice.pick((0, 0, 0, 200))
        self.book.tasks[digest(raw)] = TaskPlan(
            key,
            kind,
            takes_ms,
            fails,
            dies,
            leaves=dice.pick((0, 0, 1_000, 700)),
            lies=dice.pick((0, 0, 200)),
            saves=dice.pick((0, 0, 1, 3)),
        )
        self.history.add(Submitted(0, key, kind, retry.lost, retry.failed, envelope.lease_ttl_ms, envelope.timeout_ms))
        self.wanted[key] = Wanted(key, raw.decode())
        return self.wanted[key]

    def _requirements(self, capability: str) -> Requirements:
        if not self.dice.chance(200):
            return Requirements()
        if self.foreman is not None and capability == "cpu" and self.dice.chance(400):
            return Requirements(labels=LABELS)
        seats = [seat for seat in self.seats if capability in seat.capabilities]
        if self.profile.has("site_revoked"):
            seats = [seat for seat in seats if seat.site == DEFAULT_SITE]  # the others may be gone for good
        seat = self.dice.pick(seats)
        if self.dice.chance(500):
            return Requirements(worker=seat.worker_id)
        return Requirements(labels=seat.labels)


def _busy(seat: Seat) -> bool:
    return any(slot.runs for slot in seat.crew.slots)
