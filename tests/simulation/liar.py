"""A worker that lies, in a site of its own. It reads what it may read, and says whatever it likes.

It knows task ids, fences, digests and other workers' names, for it reads assignments and guesses well. Some work it is
really handed and granted, and even that it ends with lies. Now and then it knows the generation of another worker's
agent, and the nonce of another executor, which only that one and the coordinator should ever see. It tells of files
that it has staged, that nobody has, or that another executor has. What it cannot do is write to another site's inbox,
or to its staging places.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

from tenure.errors import BrokerError
from tenure.protocol.artifact import Blob, Bundle
from tenure.protocol.envelope import Scope
from tenure.protocol.worker_messages import (
    HEARTBEAT,
    REPORT,
    Binding,
    Cause,
    Checkpointed,
    Claimed,
    ExecutorGone,
    Finished,
    Heartbeat,
    Held,
    Hello,
    Leaving,
    Outcome,
    Released,
    Report,
)
from tests.simulation.contents import bundle_named
from tests.simulation.coordinator import WORLD
from tests.simulation.executions import LIAR
from tests.simulation.history import Lie, Missing
from tests.simulation.hosts import Process

if TYPE_CHECKING:
    from tenure.broker.memory import MemoryWorker
    from tenure.protocol.worker_messages import WorkerEvent
    from tests.simulation.dice import Dice
    from tests.simulation.world import World

SITE: Final = "elsewhere"
"""Where it is; its id says so, too."""
RUN: Final = "r1"
_TTL_MS: Final = 1_000


@final
class Liar(Process):
    """The worker."""

    def __init__(self, world: World, dice: Dice) -> None:
        super().__init__(world.engine, world.host("l"))
        self.world = world
        self.dice = dice
        self.sequence = 0
        self._lies = 0
        self._mine: list[tuple[str, int]] = []
        """What it was really handed, and may well be granted."""
        self._known: dict[tuple[str, int], Binding] = {}

    def start(self) -> None:
        """Begin to lie."""
        self.world.network.server.listeners.append(self._grab)
        self.after(self.dice.between(100, 1_000), self._turn)

    def stop(self) -> None:
        """Be caught."""
        self.kill()

    def _face(self) -> MemoryWorker:
        return self.world.network.face(self.host, SITE, LIAR)

    def _turn(self) -> None:
        with suppress(BrokerError):
            self._lie()
        self.world.network.server.reported()
        self.after(self.dice.between(50, 700), self._turn)

    def _grab(self) -> None:
        """Now and then it is handed work before the others are, and claims it as an honest worker would."""
        if not self.alive or not self.sequence or not self.dice.chance(100):
            return
        with suppress(BrokerError):
            face = self._face()
            for handout in face.take(capabilities=("cpu", "gpu"), limit=1, block_ms=0):
                if handout.assignment is not None:
                    ticket = handout.assignment.ticket
                    self._learn(ticket.task_id, ticket.fence, ticket.attempt, ticket.digest)
                    self._mine.append((ticket.task_id, ticket.fence))
                    claim = Claimed(binding=self._known[self._mine[-1]], after_beat=self.sequence)
                    self._say(face, LIAR, claim)

    def _lie(self) -> None:
        face = self._face()
        if not self.sequence or self.dice.chance(300):
            self._say(face, LIAR, Hello(slots=4, capabilities=("cpu", "gpu"), ttl_ms=_TTL_MS))
        for assignment in self.world.faults.people.seen.values():
            ticket = assignment.ticket
            self._learn(ticket.task_id, ticket.fence, ticket.attempt, ticket.digest)
        self._beat(face)
        if not self._known:
            return
        names = [LIAR, LIAR, *(seat.worker_id for seat in self.world.seats)]
        name = self.dice.pick(names)
        event = self._event()
        if isinstance(event, Finished):
            self._note(name, event)
        self._say(face, name, event)
        self.world.history.fault("liar", "")

    def _learn(self, task: str, fence: int, attempt: int, digest: str) -> None:
        if (task, fence) not in self._known:
            nonce = self.dice.token(16)
            self._known[task, fence] = Binding(task_id=task, fence=fence, attempt=attempt, digest=digest, nonce=nonce)

    def _beat(self, face: MemoryWorker) -> None:
        self.sequence += 1
        held = tuple(
            Held(task_id=one.task_id, fence=one.fence, state="running")
            for key, one in self._known.items()
            if self.dice.chance(950 if key in self._mine else 500)
        )
        beat = Heartbeat(generation=1, sequence=self.sequence, window=self.dice.below(3), held=held)
        face.beat(HEARTBEAT.dump_json(beat), _TTL_MS)

    def _say(self, face: MemoryWorker, worker_id: str, event: WorkerEvent) -> None:
        generation = 1
        if worker_id != LIAR:
            true = next(seat.generation for seat in self.world.seats if seat.worker_id == worker_id)
            generation = self.dice.pick((max(true, 1), self.dice.between(1, 9)))
        report = Report(worker_id=worker_id, generation=generation, window=self.dice.below(3), events=(event,))
        face.report([REPORT.dump_json(report)])

    def _made_up(self) -> str:
        self._lies += 1
        return f'"lie {self._lies}"'

    def _note(self, worker_id: str, event: Finished) -> None:
        said = event.binding
        known = self._known.get((said.task_id, said.fence))
        untrue = {
            "task or fence": known is None,
            "digest": known is not None and known.digest != said.digest,
            "attempt": known is not None and known.attempt != said.attempt,
            "world": event.scope.world != WORLD,
            "run": event.scope.run != RUN,
        }
        wrong = ", ".join(name for name, is_so in untrue.items() if is_so)
        value, now = event.outcome.value or "", self.engine.now
        self.world.history.add(Lie(now, value, worker_id, said.task_id, said.fence, said.nonce, wrong))

    def _event(self) -> WorkerEvent:
        binding = self._binding()
        match self.dice.below(8):
            case 0 | 1:
                return Claimed(binding=binding, after_beat=self.dice.below(5))
            case 2 | 3:
                scope = Scope(world=self.dice.pick(("main", "main", "other")), run=self.dice.pick(("r1", "r1", "r2")))
                outcome = Outcome(value=self._made_up())
                outputs = self._files(binding) if self.dice.chance(400) else None
                return Finished(binding=binding, scope=scope, outcome=outcome, duration_ms=1, outputs=outputs)
            case 4:
                cause = self.dice.pick((Cause.UNSTARTED, Cause.PROCESS_DIED, Cause.CANCELLED))
                started = self.dice.chance(500) and cause is not Cause.UNSTARTED  # that would not be read
                return Released(binding=binding, cause=cause, started=started, tree_gone=self.dice.chance(500))
            case 5:
                return ExecutorGone(binding=binding, cause=Cause.EXECUTOR_DIED, proved=self.dice.chance(700))
            case 6:
                ordinal = self.dice.between(1, 3)
                return Checkpointed(binding=binding, ordinal=ordinal, name="lie", bundle=self._files(binding))
            case _:
                return Leaving(gone=self.dice.chance(500))

    def _files(self, binding: Binding) -> Bundle:
        """Files that it has staged, that another executor has, or nobody."""
        text, book = f"files of {self._made_up()}", self.world.book
        strategy = self.dice.below(3)
        if strategy == 0:
            return book.save(LIAR, binding, text)
        known = self._known.get((binding.task_id, binding.fence))
        if known is not None and known.nonce == binding.nonce:  # another's nonce excuses nothing
            self.world.history.add(Missing(self.engine.now, binding.task_id, binding.fence, binding.nonce))
        shelf = book.shelf
        others = {digest for place in shelf.staged.values() for digest in place if digest not in shelf.objects}
        if strategy == 1 and others:
            return Bundle(manifest=Blob(digest=self.dice.pick(sorted(others)), size=10), files=1, size=10)
        return bundle_named(text)

    def _with_true_nonce(self, binding: Binding) -> Binding:
        for task, fence, _, _, _, nonce, *_ in self.world.records.bindings():
            if nonce and (task, fence) == (binding.task_id, binding.fence):
                return binding.model_copy(update={"nonce": nonce})
        return binding

    def _binding(self) -> Binding:
        """A binding that is true but for the nonce, or wrong in one more way."""
        if self._mine and self.dice.chance(500):
            true = self._known[self.dice.pick(self._mine[-3:])]
        else:
            true = self.dice.pick(sorted(self._known.values(), key=lambda one: (one.fence, one.task_id))[-5:])
        if self.dice.chance(500):
            true = self._with_true_nonce(true)
        match self.dice.below(8):
            case 0:
                return true.model_copy(update={"fence": max(1, true.fence - self.dice.between(1, 3))})
            case 1:
                return true.model_copy(update={"digest": self.dice.token(32)})
            case 2:
                return true.model_copy(update={"attempt": true.attempt + 1})
            case 3:
                return true.model_copy(update={"task_id": "0" * 26})
            case _:
                return true
