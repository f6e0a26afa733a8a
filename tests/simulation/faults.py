"""What goes wrong at planned times, and how it is put right when the history falls quiet."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, final

from tenure.errors import BrokerError
from tests.simulation.broker_faults import BrokerFaults
from tests.simulation.launcher_faults import LauncherFaults
from tests.simulation.liar import Liar
from tests.simulation.people_faults import PeopleFaults

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.agent import Agent, Seat
    from tests.simulation.dice import Dice
    from tests.simulation.hosts import Host
    from tests.simulation.slots import Slot
    from tests.simulation.world import World

TEN_MINUTES_MS: Final = 600_000


@final
class Faults:
    """Strikes, and what undoes those that last."""

    def __init__(self, world: World, dice: Dice) -> None:
        self.world = world
        self.dice = dice
        self.over = False
        self._undo: dict[int, Callable[[], None]] = {}
        self._undos = 0
        self.broker = BrokerFaults(world, dice, self.for_a_while)
        self.people = PeopleFaults(world, dice, self.for_a_while)
        self.launcher = LauncherFaults(world, dice, self.for_a_while)
        self.liar: Liar | None = None

    def plan(self) -> None:
        """Plan every strike of the profile."""
        table = self._table() | self.broker.table() | self.people.table() | self.launcher.table()
        for when, kind in self.world.profile.strikes:
            self.world.engine.at(when, partial(self._strike, kind, table[kind]))
        if self.world.profile.has("liar"):
            self.liar = Liar(self.world, self.dice.fork("liar"))
            self.liar.start()

    def stop(self) -> None:
        """Put everything right."""
        self.over = True
        undo, self._undo = self._undo, {}
        for act in undo.values():
            act()
        self.world.network.noisy = False
        if self.liar is not None:
            self.liar.stop()
        coordinator = self.world.coordinator
        if coordinator is not None:
            coordinator.crash_in = coordinator.stop_in = 0
        for seat in self.world.seats:
            if seat.agent is not None:
                seat.agent.crash_in = 0

    def for_a_while(self, duration_ms: int, undo: Callable[[], None]) -> None:
        """Undo something after that time, or when the history falls quiet."""
        self._undos += 1
        number = self._undos
        self._undo[number] = undo

        def over() -> None:
            if self._undo.pop(number, None) is not None:
                undo()

        self.world.engine.after(duration_ms, over)

    def _strike(self, kind: str, act: Callable[[], str]) -> None:
        at = len(self.world.history.facts)
        detail = ""
        if not self.over:
            with suppress(BrokerError):  # there is nothing to break while the broker is away
                detail = act()
        if detail:
            self.world.history.fault_before(at, kind, detail)

    def _table(self) -> dict[str, Callable[[], str]]:
        return {
            "coordinator_crash": self._coordinator_crash,
            "coordinator_pause": self._coordinator_pause,
            "stale_coordinator": self._stale_coordinator,
            "disk_full": self._disk_full,
            "agent_crash": self._agent_crash,
            "agent_pause": self._agent_pause,
            "agent_stall": self._agent_stall,
            "host_suspend": self._host_suspend,
            "child_pause": self._child_pause,
            "child_death": self._child_death,
            "runner_death": self._runner_death,
            "partition": self._partition,
            "store_away": self._store_away,
            "clock_jump": self._clock_jump,
        }

    # --- the coordinator ------------------------------------------------------------------------

    def _coordinator_crash(self) -> str:
        process = self.world.coordinator
        if process is None or not process.alive:
            return ""
        if self.dice.chance(100):
            process.die()
            return "between two steps"
        process.crash_soon()
        return ""  # it strikes when it kills

    def _coordinator_pause(self) -> str:
        process = self.world.coordinator
        if process is None or not process.alive or process.stands_still:
            return ""
        duration_ms = self.dice.pick((300, 1_200, 1_500, 1_800, 3_000, 6_000))
        if self.dice.chance(700):
            process.stop_in, process.stop_ms = self.dice.between(1, 40), duration_ms
            return ""  # it strikes when it stops
        process.pause()
        self.for_a_while(duration_ms, process.go_on)
        return f"for {duration_ms} ms"

    def _stale_coordinator(self) -> str:
        """One that stands still loses its lock, and another takes over; then it goes on."""
        process = self.world.coordinator
        if process is None or not process.alive or process.stop_in:
            return ""
        process.stop_ms = self.dice.between(1_000, 5_000)
        process.stop_in = self.dice.between(1, 40)
        process.when_stopped = self.world.take_over
        return ""  # it strikes when another takes over

    def _disk_full(self) -> str:
        process = self.world.coordinator
        if process is None or not process.alive:
            return ""
        process.limit_disk(full=True)
        self.for_a_while(self.dice.between(200, 4_000), lambda: process.limit_disk(full=False))
        return "on"

    # --- workers --------------------------------------------------------------------------------

    def _someone(self) -> tuple[Seat, Agent] | None:
        seat = self.dice.pick(self.world.seats)
        agent = seat.agent
        if agent is None or not agent.alive or agent.stands_still:
            return None
        return seat, agent

    def _agent_crash(self) -> str:
        found = self._someone()
        if found is None:
            return ""
        found[1].crash_in = self.dice.between(1, 6)
        return ""  # it strikes when it kills

    def _agent_pause(self) -> str:
        found = self._someone()
        if found is None:
            return ""
        seat, agent = found
        agent.pause()
        self.for_a_while(self.dice.pick((100, 700, 2_000, 5_000)), agent.go_on)
        return seat.worker_id

    def _agent_stall(self) -> str:
        found = self._someone()
        if found is None:
            return ""
        seat, agent = found
        agent.stalled_until = self.world.engine.now + self.dice.pick((200, 1_500, 5_000))
        return seat.worker_id

    def _host_suspend(self) -> str:
        names = [*(seat.worker_id for seat in self.world.seats), "c"]
        host = self.world.host(self.dice.pick(names))
        if host.suspended:
            return ""
        host.suspend()
        self.for_a_while(self.dice.pick((100, 700, 2_000, 6_000)), host.resume)
        return host.name

    def _busy_slot(self) -> tuple[Seat, Slot] | None:
        busy = [(seat, slot) for seat in self.world.seats for slot in seat.crew.slots if slot.runs]
        return self.dice.pick(busy) if busy else None

    def _child_pause(self) -> str:
        found = self._busy_slot()
        if found is None:
            return ""
        seat, slot = found
        seat.crew.freeze(slot)
        self.for_a_while(self.dice.pick((100, 2_000, 8_000)), lambda: seat.crew.unfreeze(slot))
        return seat.worker_id

    def _child_death(self) -> str:
        found = self._busy_slot()
        if found is None:
            return ""
        seat, slot = found
        seat.crew.child_dies(slot)
        return seat.worker_id

    def _runner_death(self) -> str:
        found = self._busy_slot()
        if found is None:
            return ""
        seat, slot = found
        seat.crew.runner_dies(slot)
        return seat.worker_id

    # --- the network ----------------------------------------------------------------------------

    def _any_host(self) -> Host:
        return self.world.host(self.dice.pick([*(seat.worker_id for seat in self.world.seats), "c", "p"]))

    def _partition(self) -> str:
        host = self._any_host()
        if host.cut:
            return ""
        host.cut = True
        duration_ms = self.dice.pick((200, 900, 2_500, 6_000))
        self.for_a_while(duration_ms, lambda: self.world.network.heal(host))
        return f"{host.name} for {duration_ms} ms"

    def _store_away(self) -> str:
        shelf = self.world.book.shelf
        if shelf.away:
            return ""
        shelf.away = True
        duration_ms = self.dice.pick((200, 900, 2_500, 6_000))

        def back() -> None:
            shelf.away = False

        self.for_a_while(duration_ms, back)
        return f"for {duration_ms} ms"

    def _clock_jump(self) -> str:
        clocks = [self.world.network.clock, *(host.clock for host in self.world.hosts.values())]
        difference_ms = self.dice.between(-TEN_MINUTES_MS, TEN_MINUTES_MS)
        clock = self.dice.pick(clocks)
        clock.jump_wall_ms(difference_ms)
        self.for_a_while(self.dice.between(100, 30_000), lambda: clock.jump_wall_ms(-difference_ms))
        return f"by {difference_ms} ms"
