"""The ledger: every hold of this worker, found by task and fence, and what was decided and not carried out yet.

A hold leaves the ledger only with the coordinator's answer. Those that have left are remembered for a while, so that a
repeated handout of the same assignment starts nothing; one that never started may be taken again, to ask for a grant.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import TYPE_CHECKING, Final, final

from tenure.protocol.worker_messages import Released
from tenure.workers.actions import Forget, Tell
from tenure.workers.holds import NEVER, Hold, Stage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tenure.protocol.worker_messages import Finished
    from tenure.workers.actions import Action

_REMEMBERED: Final = 8_192

Key = tuple[str, int]


@final
class Ledger:
    """The holds, the queue of those that may start, and the actions that wait to be carried out."""

    def __init__(self) -> None:
        self._holds: dict[Key, Hold] = {}
        self._newest: dict[str, Hold] = {}
        self._recent: OrderedDict[Key, bool] = OrderedDict()
        self._calls = 0
        self.ready: deque[Hold] = deque()
        self.actions: list[Action] = []
        self.unfinished = 0
        self.counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._holds)

    def holds(self) -> Iterable[Hold]:
        """All holds, oldest first."""
        return self._holds.values()

    def find(self, key: Key) -> Hold | None:
        """The hold of that task and fence."""
        return self._holds.get(key)

    def newest(self, task_id: str) -> Hold | None:
        """The hold with the highest fence of a task."""
        return self._newest.get(task_id)

    def recall(self, key: Key) -> bool | None:
        """True: it is in hand, or may have been started not long ago. False: it was let go before it could start.

        None: nothing is known of it.
        """
        return True if key in self._holds else self._recent.get(key)

    def next_call(self) -> int:
        """A number for a new hold."""
        self._calls += 1
        return self._calls

    def add(self, hold: Hold) -> None:
        """Take up a hold."""
        self._holds[hold.key] = hold
        self._newest[hold.binding.task_id] = hold
        if hold.stage is not Stage.OVER:
            self.unfinished += 1
        if hold.stage is Stage.READY:
            self.ready.append(hold)

    def make_ready(self, hold: Hold, *, first: bool = False) -> None:
        """Let a hold start as soon as there is a place for it; `first` puts it before the others."""
        hold.stage = Stage.READY
        hold.slot, hold.began_ms = -1, NEVER
        if first:
            self.ready.appendleft(hold)
        else:
            self.ready.append(hold)

    def act(self, action: Action) -> None:
        """Decide an action."""
        self.actions.append(action)

    def conclude(self, hold: Hold, report: Finished | Released, now_ms: int) -> None:
        """The hold is over: its report is told, and kept until its verdict."""
        if hold.stage is not Stage.OVER:
            self.unfinished -= 1
        hold.stage, hold.report, hold.slot = Stage.OVER, report, -1
        hold.told_ms, hold.repeats, hold.progress = now_ms, 0, None
        self.actions.append(Tell(report, keep=True))

    def forget(self, hold: Hold) -> None:
        """The hold has its answer."""
        self._holds.pop(hold.key, None)
        self._remember(hold.key, started=_may_have_started(hold))
        if hold.stage is not Stage.OVER:
            self.unfinished -= 1
        if self._newest.get(hold.binding.task_id) is hold:
            del self._newest[hold.binding.task_id]
        if hold.report is not None:
            self.act(Forget(*hold.key))
        hold.stage = Stage.OVER

    def _remember(self, key: Key, *, started: bool) -> None:
        self._recent[key] = started or self._recent.get(key, False)
        if len(self._recent) > _REMEMBERED:
            self._recent.popitem(last=False)


def _may_have_started(hold: Hold) -> bool:
    if isinstance(hold.report, Released):
        return hold.report.started
    return hold.report is not None or hold.stage not in {Stage.ASKING, Stage.READY}
