"""What happens to executors, and what their substrate says of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, final

from tenure.workers.inputs import DrainAsked
from tests.simulation.agent import GOODBYE_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.dice import Dice
    from tests.simulation.foreman import Launch
    from tests.simulation.world import World


@final
class LauncherFaults:
    """Strikes against a parent and its executors."""

    def __init__(self, world: World, dice: Dice, for_a_while: Callable[[int, Callable[[], None]], None]) -> None:
        self.world = world
        self.dice = dice
        self._for_a_while = for_a_while

    def table(self) -> dict[str, Callable[[], str]]:
        """The strikes by name."""
        return {
            "executor_crash": self._executor_crash,
            "executor_drained": self._executor_drained,
            "second_executor": self._second_executor,
            "false_end": self._false_end,
            "parent_crash": self._parent_crash,
        }

    def _launch(self) -> Launch | None:
        foreman = self.world.foreman
        running = foreman.running() if foreman is not None else []
        return self.dice.pick(running) if running else None

    def _executor_crash(self) -> str:
        launch = self._launch()
        if launch is None:
            return ""
        for seat in launch.seats:
            seat.retire()
        return launch.seats[0].worker_id

    def _executor_drained(self) -> str:
        """The substrate asks an executor to end, as an eviction does, and kills it when it is not quick enough."""
        launch = self._launch()
        if launch is None:
            return ""
        seat = self.dice.pick(launch.seats)
        agent = seat.agent
        if agent is None or not agent.alive:
            return ""
        # Its parent tells why when it has left: before or after the lease was kept for long enough.
        seat.goodbye_ms = self.dice.pick((10, 200, GOODBYE_MS, 2_000))
        agent.deliver(partial(agent.post, DrainAsked(at_once=True)))
        self.world.engine.after(self.dice.pick((300, 1_500, 6_000)), seat.retire)
        if self.dice.chance(300):
            self.world.engine.after(self.dice.pick((0, 100, 400, 800)), self._crash_coordinator)
        return seat.worker_id

    def _crash_coordinator(self) -> None:
        """What was given up is kept in memory, so a restart matters most while a parent's word is waited for."""
        process = self.world.coordinator
        if process is not None and process.alive and not self.world.quiet:
            process.crash_in = self.dice.between(1, 40)

    def _second_executor(self) -> str:
        launch = self._launch()
        foreman = self.world.foreman
        return foreman.start_again(launch) if launch is not None and foreman is not None else ""

    def _false_end(self) -> str:
        """The substrate calls an executor gone that runs, now and then with what it takes for a proof."""
        launch = self._launch()
        foreman = self.world.foreman
        if launch is None or foreman is None:
            return ""
        foreman.say_gone(launch, proved=self.dice.chance(700))
        return launch.seats[-1].worker_id

    def _parent_crash(self) -> str:
        foreman = self.world.foreman
        if foreman is None:
            return ""
        foreman.crash(self.dice.pick((100, 1_000, 4_000, 20_000)))
        return "f1"
