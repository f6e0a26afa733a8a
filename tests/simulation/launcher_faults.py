"""What happens to executors, and what their substrate says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.dice import Dice
    from tests.simulation.foreman import Launch
    from tests.simulation.world import World


@final
class LauncherFaults:
    """Strikes against a parent and its executors."""

    def __init__(self, world: World, dice: Dice) -> None:
        self.world = world
        self.dice = dice

    def table(self) -> dict[str, Callable[[], str]]:
        """The strikes by name."""
        return {
            "executor_crash": self._executor_crash,
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
