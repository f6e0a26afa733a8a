"""The book: every launch that the parent has in hand, and the few steps that all of them share."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from tenure.protocol.worker_messages import Cause, ExecutorGone, Held
from tenure.workers.actions import Tell
from tenure.workers.holds import NEVER
from tenure.workers.launch_actions import DropLaunch
from tenure.workers.launch_stages import LAUNCH, UNFINISHED, LaunchStage

if TYPE_CHECKING:
    from collections.abc import ValuesView

    from tenure.launchers.base import Handle, LaunchOrder
    from tenure.protocol.worker_messages import Binding
    from tenure.workers.launch_actions import LaunchAction
    from tenure.workers.launch_inputs import Key

_REMEMBERED: Final = 10_000
_MAX_DETAIL: Final = 1_000


@final
@dataclass(slots=True, eq=False)
class Launch:
    """One launch. Changed by the modules of the parent's core only."""

    binding: Binding
    """The nonce is the parent's own, and only names what is answered."""
    ttl_ms: int
    since_ms: int
    """When it was taken up by this agent."""
    order: LaunchOrder | None = None
    """None for an assignment that cannot be launched."""
    stage: LaunchStage = LaunchStage.ORDERED
    handle: Handle | None = None
    busy: bool = False
    """Whether the launcher is being asked something about it; one thing at a time."""
    due_ms: int = 0
    """When it is to be asked next."""
    failures: int = 0
    """How often in a row it could not be."""
    end: Cause | None = None
    """Why it is to end, if it is."""
    end_by_ms: int = NEVER
    """When it is ended by force, unless it has ended by itself."""
    forced_ms: int = NEVER
    """When the substrate was first told to end it by force."""
    is_superseded: bool = False
    """Whether the coordinator has said that its lease is over."""
    detail: str = ""
    report: ExecutorGone | None = None
    told_ms: int = NEVER
    repeats: int = 0

    @property
    def key(self) -> Key:
        """Task and fence."""
        return self.binding.task_id, self.binding.fence

    @property
    def is_unfinished(self) -> bool:
        """Whether it takes up a slot."""
        return self.stage in UNFINISHED

    def move(self, stage: LaunchStage) -> None:
        """Go on to that stage; a step that is not in the table is a mistake in this program."""
        if stage is not self.stage and stage not in LAUNCH[self.stage]:
            message = f"a launch goes from {self.stage} to {stage}"
            raise AssertionError(message)
        self.stage = stage

    def told(self, cause: Cause, now_ms: int, *, proved: bool, detail: str = "") -> Tell:
        """What the coordinator is told of its end, from now on until it answers."""
        # A substrate's words may be anything, and what is no text at all could not be told.
        said = (detail or self.detail)[:_MAX_DETAIL].encode(errors="replace").decode()
        self.report = ExecutorGone(binding=self.binding, cause=cause, proved=proved, detail=said)
        self.told_ms, self.repeats = now_ms, 0
        return Tell(self.report)

    def held(self) -> Held:
        """What heartbeats say about it."""
        return Held(
            task_id=self.binding.task_id,
            fence=self.binding.fence,
            state="launched" if self.is_unfinished else "finished",
        )


@final
class LaunchBook:
    """All launches by task and fence, oldest first, and the actions that were decided."""

    def __init__(self) -> None:
        self._launches: dict[Key, Launch] = {}
        self._recent: OrderedDict[Key, None] = OrderedDict()
        self.actions: list[LaunchAction] = []
        self.counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._launches)

    def launches(self) -> ValuesView[Launch]:
        """All of them, oldest first."""
        return self._launches.values()

    def find(self, key: Key) -> Launch | None:
        """The launch of that task and fence."""
        return self._launches.get(key)

    def knows(self, key: Key) -> bool:
        """Whether it is in hand, or was not long ago."""
        return key in self._launches or key in self._recent

    def newest(self, task_id: str) -> Launch | None:
        """The launch with the highest fence of a task."""
        of_task = (launch for launch in self._launches.values() if launch.binding.task_id == task_id)
        return max(of_task, key=lambda launch: launch.binding.fence, default=None)

    def unfinished(self) -> int:
        """How many slots are taken up."""
        return sum(launch.is_unfinished for launch in self._launches.values())

    def held(self) -> tuple[Held, ...]:
        """What heartbeats list: everything that has no answer yet."""
        return tuple(each.held() for each in self._launches.values() if each.stage is not LaunchStage.CLEARING)

    def add(self, launch: Launch) -> None:
        """Take up a launch."""
        self._launches[launch.key] = launch

    def act(self, action: LaunchAction) -> None:
        """Decide an action."""
        self.actions.append(action)

    def conclude(self, launch: Launch, cause: Cause, now_ms: int, *, proved: bool = False, detail: str = "") -> None:
        """It is over, or never came to be: the coordinator is told until it answers.

        Only what the substrate was seen to say is a proof. That this agent has launched nothing is none: the agent
        before it may have, and its journal may be lost; and a try that is refused may not have been the first.
        """
        launch.move(LaunchStage.OVER)
        self.act(launch.told(cause, now_ms, proved=proved, detail=detail))
        self.counts["ended" if cause is Cause.EXECUTOR_DIED and proved else cause] += 1

    def forget(self, launch: Launch) -> None:
        """Nothing is left to be done about it."""
        launch.move(LaunchStage.FORGOTTEN)
        del self._launches[launch.key]
        self._recent[launch.key] = None
        if len(self._recent) > _REMEMBERED:
            self._recent.popitem(last=False)
        self.act(DropLaunch(launch.key))
