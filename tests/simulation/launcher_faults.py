"""What happens to executors, and what their substrate says of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

from tenure.protocol.control_messages import Reason
from tenure.workers.inputs import DrainAsked
from tests.simulation.agent import GOODBYE_MS
from tests.simulation.history import Answered

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.agent import Seat
    from tests.simulation.dice import Dice
    from tests.simulation.foreman import Launch
    from tests.simulation.world import World

_LOOK_EVERY_MS: Final = 50
_REFUSED_WITHIN_MS: Final = 5_000


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
            "second_end": self._second_end,
            "false_end": self._false_end,
            "unproved_end": self._unproved_end,
            "parent_crash": self._parent_crash,
            "parent_forgets": self._parent_forgets,
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
        """A restart matters most while a parent's word is waited for: what was given up must not be forgotten."""
        process = self.world.coordinator
        if process is not None and process.alive and not self.world.quiet:
            process.crash_in = self.dice.between(1, 40)

    def _second_executor(self) -> str:
        launch = self._launch()
        foreman = self.world.foreman
        return foreman.start_again(launch) if launch is not None and foreman is not None else ""

    def _false_end(self) -> str:
        """The substrate calls an executor gone that runs, with what it takes for a proof."""
        return self._call_gone(proved=True)

    def _unproved_end(self) -> str:
        """The substrate calls an executor gone that runs, often unheard, and does not say that it knows."""
        name = self._call_gone(proved=False)
        for seat in self.world.seats:
            if seat.worker_id == name:
                self._cut_off(seat)
        return name

    def _cut_off(self, seat: Seat) -> None:
        """Often an executor is not heard for a while, as if it were gone."""
        if self.dice.chance(600) and not seat.host.cut and not self.world.quiet:
            seat.host.cut = True
            self._for_a_while(self.dice.pick((900, 2_500, 6_000)), partial(self.world.network.heal, seat.host))

    def _call_gone(self, *, proved: bool) -> str:
        launch = self._launch()
        foreman = self.world.foreman
        if launch is None or foreman is None:
            return ""
        foreman.say_gone(launch, proved=proved)
        return launch.seats[-1].worker_id

    def _second_end(self) -> str:
        """A launch is started once more; the executor that is refused ends, and the substrate proves that truthfully.

        Its parent cannot tell the two apart. The other one may not be heard meanwhile, and runs.
        """
        launch = self._launch()
        foreman = self.world.foreman
        if launch is None or foreman is None:
            return ""
        name = foreman.start_again(launch)
        self._look_for_refusal(launch, len(self.world.history.facts), self.world.engine.now + _REFUSED_WITHIN_MS)
        return name

    def _look_for_refusal(self, launch: Launch, since: int, until_ms: int) -> None:
        world = self.world
        if world.quiet or world.engine.now > until_ms:
            return
        refused = {
            fact.worker
            for fact in world.history.facts[since:]
            if isinstance(fact, Answered) and fact.answer == "refused" and fact.reason == Reason.SECOND_EXECUTOR
        }
        second = next((seat for seat in launch.seats if seat.worker_id in refused), None)
        if second is None:
            world.engine.after(_LOOK_EVERY_MS, partial(self._look_for_refusal, launch, since, until_ms))
            return
        second.retire()
        self._cut_off(next(seat for seat in launch.seats if seat is not second))
        if world.foreman is not None:
            world.foreman.say_gone(launch, proved=True)

    def _parent_crash(self) -> str:
        foreman = self.world.foreman
        if foreman is None:
            return ""
        foreman.crash(self.dice.pick((100, 1_000, 4_000, 20_000)))
        return "f1"

    def _parent_forgets(self) -> str:
        """A parent is killed and its journal is lost, while its executors go on, now and then unheard."""
        foreman = self.world.foreman
        if foreman is None or not foreman.launches:
            return ""
        seats = [seat for launch in foreman.running() for seat in launch.seats]
        foreman.crash(self.dice.pick((10, 100, 1_000, 4_000)))
        foreman.forget()
        if seats:
            unheard = partial(self._cut_off, self.dice.pick(seats))
            self.world.engine.after(self.dice.pick((0, 100, 400, 1_000)), unheard)
        return "f1"
