"""A worker's runners and what they run, as `workers/runner.py` and the child processes behave.

One crew per worker host. It outlives the agent by the time that it takes to end what runs, and a new agent starts only
then. User code here does nothing but take time; it may ignore SIGTERM, so that every kill uses its whole grace.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, final

from tenure.protocol.worker_messages import Failure, FailureKind, Outcome
from tenure.workers.actions import AllowUntil, CancelCall, EndTree, Recall, StartCall, StartCommand
from tenure.workers.inputs import CallEnded, CheckpointSaved, HandlerSeen, Recalled, TreeEnded
from tests.simulation.book import Run
from tests.simulation.history import Ended, Frozen, Started
from tests.simulation.hosts import Process

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.workers.inputs import Input
    from tests.simulation.book import Book
    from tests.simulation.hosts import Host

SlotAction = StartCall | StartCommand | Recall | CancelCall | EndTree | AllowUntil

ORPHAN_GRACE_MS: Final = 500
ASYNC: Final = "sim:side_by_side"
QUICK: Final = "sim:quick"


@final
@dataclass(slots=True, eq=False)
class Slot:
    """One runner: its tree, if it has one, and its deadline."""

    index: int
    active: bool = False
    command: bool = False
    side_by_side: bool = False
    queue: list[StartCall] = field(default_factory=list[StartCall])
    runs: dict[int, Run] = field(default_factory=dict[int, Run])
    until_ms: int | None = None
    grace_ms: int = 0
    kill_at_ms: int | None = None
    """By this host's elapsed time; None while nothing has asked the tree to end."""
    reason: str = ""
    ready_at: int = 0
    tree: int = 0
    seen: set[str] = field(default_factory=set[str])
    after: StartCommand | None = None
    unheard: list[int] | None = None
    """Calls that went to a tree whose end the agent has not heard of yet; None when there is no such tree."""


@final
class Crew(Process):
    """All runners of one worker."""

    def __init__(self, host: Host, worker: str, slots: int, book: Book) -> None:
        super().__init__(book.history.engine, host)
        self.worker = worker
        self.book = book
        self.dice = book.dice.fork(f"crew {worker}")
        self.history = book.history
        self.slots = [Slot(index) for index in range(slots)]
        self.tell: Callable[[Callable[[], list[Input]]], None] | None = None
        """The agent's ear; None while there is no agent."""

    # --- orders of the agent --------------------------------------------------------------------

    def perform(self, action: SlotAction) -> list[Input]:
        """Carry out an order; answers what is known at once."""
        slot = self.slots[action.slot]
        match action:
            case StartCall():
                self._start_call(slot, action)
            case StartCommand():
                self._start_command(slot, action)
            case Recall():
                return [Recalled(slot.index, self._recall(slot))]
            case CancelCall():
                self._cancel_call(slot, action.call)
            case EndTree():
                return self._end_tree(slot, action.grace_ms)
            case AllowUntil():
                slot.until_ms, slot.grace_ms = action.until_ms, action.grace_ms
                self._watch(slot)
        return []

    def _end_tree(self, slot: Slot, grace_ms: int) -> list[Input]:
        if not slot.active and slot.unheard is None:
            return [TreeEnded(slot.index, gone=True)]
        if slot.active:
            self._end(slot, "stop", self.host.clock.elapsed_ms(), grace_ms)
        return []

    def _recall(self, slot: Slot) -> list[int]:
        """What the child has not begun, also when it has died since."""
        if slot.unheard is not None:
            back, slot.unheard = slot.unheard, []
            return back
        queue, slot.queue = slot.queue, []
        return [start.call for start in queue]

    def lose_agent(self) -> None:
        """The agent is gone: end everything, soon."""
        self.tell = None
        for slot in self.slots:
            slot.after = slot.unheard = None
            if slot.active:
                self._end(slot, "agent", self.host.clock.elapsed_ms(), ORPHAN_GRACE_MS)

    def is_empty(self) -> bool:
        """Whether nothing runs, so that a new agent may start."""
        return not any(slot.active for slot in self.slots)

    # --- faults ---------------------------------------------------------------------------------

    def child_dies(self, slot: Slot) -> None:
        """The process of a slot ends by itself, in the middle of its work."""
        if slot.active:
            self._gone(slot, "died")

    def runner_dies(self, slot: Slot) -> None:
        """The runner is killed; its tree dies with it, but nobody is left to prove that."""
        if slot.active:
            self._gone(slot, "died", proved=False)

    def freeze(self, slot: Slot) -> None:
        """User code stands still; its runner does not."""
        for run in slot.runs.values():
            self._freeze(run)

    def unfreeze(self, slot: Slot) -> None:
        """User code goes on."""
        if not self.host.suspended:
            for run in slot.runs.values():
                self._unfreeze(slot, run)

    def froze(self) -> None:
        for slot in self.slots:
            self.freeze(slot)

    def thawed(self) -> None:
        # The runners look at their deadlines before anything that they watch over goes on.
        for slot in self.slots:
            self._look(slot)
        for slot in self.slots:
            self.unfreeze(slot)
        super().thawed()

    def _freeze(self, run: Run) -> None:
        if run.frozen_at < 0:
            run.frozen_at = self.engine.now
            self.history.add(Frozen(self.engine.now, run.number, frozen=True))

    def _unfreeze(self, slot: Slot, run: Run) -> None:
        if run.frozen_at >= 0:
            run.ends_at += self.engine.now - run.frozen_at
            run.frozen_at = -1
            self.history.add(Frozen(self.engine.now, run.number, frozen=False))
            self._plan_end(slot, run)

    # --- starting -------------------------------------------------------------------------------

    def _start_call(self, slot: Slot, start: StartCall) -> None:
        if slot.unheard is not None:
            slot.unheard.append(start.call)
            return
        if not slot.active:
            self._new_tree(slot, self.dice.between(5, 120))
        slot.queue.append(start)
        self._begin_later(slot)

    def _start_command(self, slot: Slot, start: StartCommand) -> None:
        slot.unheard = None
        if slot.active:  # an idle child is ended first
            slot.after = start
            self._end(slot, "replaced", self.host.clock.elapsed_ms(), 0)
            return
        self._new_tree(slot, 0)
        slot.command = True
        self._begin(slot, start)

    def _new_tree(self, slot: Slot, ready_in_ms: int) -> None:
        slot.active, slot.command, slot.side_by_side = True, False, False
        slot.kill_at_ms, slot.reason = None, ""
        slot.tree += 1
        slot.ready_at = self.engine.now + ready_in_ms
        slot.seen = set()
        self._watch(slot)

    def _begin_later(self, slot: Slot) -> None:
        tree = slot.tree

        def begin() -> None:
            if slot.tree == tree and slot.active:
                self._begin_next(slot)

        self.engine.at(max(slot.ready_at, self.engine.now), lambda: self.deliver(begin))

    def _begin_next(self, slot: Slot) -> None:
        while slot.queue and (slot.side_by_side or not slot.runs):
            start = slot.queue.pop(0)
            handler = start.work.handler
            if handler not in slot.seen:
                slot.seen.add(handler)
                slot.side_by_side = slot.side_by_side or handler == ASYNC
                self._say(HandlerSeen(slot.index, handler, is_async=handler == ASYNC))
            self._begin(slot, start)

    def _begin(self, slot: Slot, start: StartCall | StartCommand) -> None:
        call, binding, point = start.call, start.binding, start.provision.checkpoint
        number = self.book.next_run()
        kind, takes_ms, how = self.book.plan(binding)
        now = self.engine.now
        run = Run(number, call, binding, now + takes_ms, how, f'"run {number}"', now)
        slot.runs[call] = run
        known = (number, binding.task_id, binding.fence, binding.attempt, binding.nonce, self.worker, kind)
        self.history.add(Started(now, *known, point.bundle.manifest.digest if point is not None else ""))
        self._plan_end(slot, run)
        saves = self.book.tasks[binding.digest].saves
        for step in range(1, saves + 1):
            self.engine.at(now + takes_ms * step // (saves + 1), partial(self._save, slot, run, step))

    def _save(self, slot: Slot, run: Run, step: int) -> None:
        """A run that still goes on makes a checkpoint."""
        if slot.runs.get(run.call) is run and run.frozen_at < 0:
            bundle = self.book.save(self.worker, run.binding, f"checkpoint {step} of run {run.number}")
            self._say(CheckpointSaved(slot.index, run.call, f"step-{step}", bundle))

    def _plan_end(self, slot: Slot, run: Run) -> None:
        planned = run.ends_at

        def end() -> None:
            if slot.runs.get(run.call) is run and run.ends_at == planned and run.frozen_at < 0:
                self._comes_to_its_end(slot, run)

        self.engine.at(planned, end)

    # --- ending ---------------------------------------------------------------------------------

    def _comes_to_its_end(self, slot: Slot, run: Run) -> None:
        if run.how == "died":
            self._gone(slot, "died")
            return
        del slot.runs[run.call]
        self.history.add(Ended(self.engine.now, run.number, run.how, run.value))
        run.duration_ms, run.outputs = self.engine.now - run.began_at, self.book.outputs(self.worker, run)
        if slot.command:
            self._tree_over(slot, gone=True, run=run)
            return
        self._say(CallEnded(slot.index, run.call, _outcome(run), run.duration_ms, run.outputs))
        self._begin_later(slot)

    def _cancel_call(self, slot: Slot, call: int) -> None:
        """An async call is asked to end; now and then it does not."""
        run = slot.runs.get(call)
        if run is None or self.dice.chance(300):
            return

        def obey() -> None:
            if slot.runs.get(call) is run and run.frozen_at < 0:
                del slot.runs[call]
                self.history.add(Ended(self.engine.now, run.number, "cancelled", ""))
                self._say(CallEnded(slot.index, call, None, self.engine.now - run.began_at))

        self.after(self.dice.between(1, 200), obey)

    def _end(self, slot: Slot, reason: str, now_ms: int, grace_ms: int) -> None:
        """SIGTERM, and after the grace SIGKILL. A later call can only shorten the grace."""
        kill_at_ms = now_ms + grace_ms
        if slot.kill_at_ms is None:
            slot.reason, slot.kill_at_ms = reason, kill_at_ms
            self._term(slot, grace_ms)
        slot.kill_at_ms = min(slot.kill_at_ms, kill_at_ms)
        self._watch(slot)

    def _term(self, slot: Slot, grace_ms: int) -> None:
        if grace_ms <= 0 or self.dice.chance(600):
            return  # it does not listen
        tree = slot.tree

        def obey() -> None:
            if slot.tree == tree and slot.active and all(run.frozen_at < 0 for run in slot.runs.values()):
                self._gone(slot, "killed")

        self.after(self.dice.between(0, max(1, grace_ms)), obey)

    def _watch(self, slot: Slot) -> None:
        """Look at the slot again when something is due."""
        if not slot.active:
            return
        is_past = slot.until_ms is not None and slot.until_ms <= self.host.clock.elapsed_ms()
        until_ms = None if slot.kill_at_ms is not None and is_past else slot.until_ms
        due = [at for at in (until_ms, slot.kill_at_ms) if at is not None]
        if due:
            tree = slot.tree
            when = self.host.clock.true_ms(min(due))
            self.engine.at(when, lambda: self.deliver(lambda: self._look(slot) if slot.tree == tree else None))

    def _look(self, slot: Slot) -> None:
        if not slot.active:
            return
        now_ms = self.host.clock.elapsed_ms()
        if slot.until_ms is not None and now_ms >= slot.until_ms:
            self._end(slot, "deadline", slot.until_ms, slot.grace_ms)
        if slot.kill_at_ms is not None and now_ms >= slot.kill_at_ms:
            self._gone(slot, "killed")

    def _gone(self, slot: Slot, how: str, *, proved: bool = True) -> None:
        for run in slot.runs.values():
            self.history.add(Ended(self.engine.now, run.number, how, ""))
        slot.runs.clear()
        self._tree_over(slot, gone=proved)

    def _tree_over(self, slot: Slot, *, gone: bool, run: Run | None = None) -> None:
        slot.active = False
        slot.tree += 1
        unstarted, slot.queue = [start.call for start in slot.queue], []
        reason, following = slot.reason, slot.after
        slot.after = None
        if reason != "replaced" and self.tell is not None:
            slot.unheard = unstarted
            self.tell(partial(self._heard, slot, slot.tree, gone=gone, run=run))
        if following is not None and self.tell is not None:
            self._start_command(slot, following)

    def _heard(self, slot: Slot, tree: int, *, gone: bool, run: Run | None) -> list[Input]:
        """The agent reads of the end of a tree: only now what it had sent there since comes back, too."""
        if slot.tree != tree or slot.unheard is None:
            return []  # it has started a command in the slot since
        unstarted, slot.unheard = slot.unheard, None
        return [
            TreeEnded(
                slot.index,
                gone=gone,
                unstarted=unstarted,
                outcome=_outcome(run) if run is not None else None,
                duration_ms=run.duration_ms if run is not None else 0,
                outputs=run.outputs if run is not None else None,
                by_deadline=slot.reason == "deadline",
                detail=f"simulated end ({slot.reason or 'exit'})",
            )
        ]

    def _say(self, happened: Input) -> None:
        if self.tell is not None:
            self.tell(lambda: [happened])


def _outcome(run: Run) -> Outcome:
    if run.how == "value":
        return Outcome(value=run.value)
    return Outcome(failure=Failure(kind=FailureKind.EXCEPTION, message=run.value))
