"""Stopping: how a hold comes to an end that is not its own, and what the end of a process tree means for its holds.

A sync call is stopped by ending its child's tree, after everything that the child had not begun was taken back: the
kernel decides what had begun. What is left in the child then is the one call that runs. An async call is cancelled on
its own first; only when it does not obey in time is the tree ended, and its neighbours with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from tenure.protocol.timing import grace_ms
from tenure.protocol.worker_messages import Cause, FailureKind
from tenure.workers.actions import CancelCall, EndTree, Recall
from tenure.workers.conclusions import Ending, disclose, finish, stopped
from tenure.workers.holds import NEVER, Hold, Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.workers.floor import Floor, Slot
    from tenure.workers.inputs import Recalled, TreeEnded
    from tenure.workers.ledger import Ledger

_START_PATIENCE_MS: Final = 60_000
_LATE_PATIENCE_MS: Final = 30_000
"""How long what ended well may be staged after its right to run was over: it is evidence, and it takes a slot."""


@final
class Stopper:
    """Ends holds, and draws the conclusions from ended trees."""

    def __init__(self, ledger: Ledger, floor: Floor) -> None:
        self._ledger = ledger
        self._floor = floor

    def stop(self, hold: Hold, end: Cause | FailureKind, now_ms: int) -> None:
        """End a hold for that reason; the first reason counts."""
        disclose(self._ledger, hold, now_ms)
        if hold.stage is Stage.OVER:
            return
        if hold.end is not None:
            if hold.end is Cause.SELF_FENCED and end is Cause.DRAINED and hold.stage is Stage.PLACED:
                self._end_tree(self._floor.slots[hold.slot], 0)  # nobody waits for evidence
            return
        hold.end = end
        if hold.stage is not Stage.PLACED:
            stopped(self._ledger, hold, now_ms, started=False)
            return
        slot = self._floor.slots[hold.slot]
        if slot.ending:
            return
        if slot.is_command:
            self._end_first(slot, hold, now_ms)
        elif slot.is_async:
            hold.end_by_ms = now_ms + grace_ms(hold.ttl_ms)
            self._ledger.act(CancelCall(slot.index, hold.call))
        else:
            self.recall(slot)

    def recall(self, slot: Slot) -> None:
        """Take back what the slot's child has not begun."""
        if not slot.recalling and not slot.is_command:
            slot.recalling = True
            self._ledger.act(Recall(slot.index))

    def insist(self, now_ms: int) -> None:
        """End the tree of every child that does not start, or in which a cancelled async call did not obey in time."""
        for slot in self._floor.slots:
            if slot.waiting_since_ms != NEVER and now_ms - slot.waiting_since_ms > _START_PATIENCE_MS:
                slot.waiting_since_ms = NEVER
                self._end_tree(slot, 0)
            late = [hold for hold in slot.placed.values() if hold.end_by_ms != NEVER and now_ms >= hold.end_by_ms]
            if late and (not slot.ending or late[0].end is Cause.SELF_FENCED):
                late[0].end_by_ms = NEVER
                self._end_tree(slot, grace_ms(late[0].ttl_ms))

    def recalled(self, happened: Recalled, now_ms: int) -> None:
        """What a child had not begun is back: let it start elsewhere, or conclude it; end what had begun."""
        slot = self._floor.slots[happened.slot]
        slot.recalling = False
        self._take_back(slot, happened.calls, now_ms)
        begun = next((hold for hold in slot.placed.values() if hold.end is not None), None)
        if begun is not None and not slot.ending and not slot.is_async:
            self._end_first(slot, begun, now_ms)

    def tree_ended(self, happened: TreeEnded, now_ms: int) -> None:
        """Conclude everything that a slot's process tree was running when it ended."""
        slot = self._floor.slots[happened.slot]
        was_asked = slot.ending or happened.by_deadline
        self._take_back(slot, happened.unstarted, now_ms)
        victims = list(slot.placed.values())
        for hold in victims:
            self._floor.remove(slot, hold, now_ms)
            self._conclude(hold, happened, now_ms, others_fault=slot.ending)
        self._floor.ended(slot, now_ms, useless=bool(happened.unstarted) and not victims and not was_asked)

    def _conclude(self, hold: Hold, happened: TreeEnded, now_ms: int, *, others_fault: bool) -> None:
        if hold.detail == "":
            hold.detail = happened.detail
        if happened.outcome is not None:
            ending = Ending(happened.outcome, happened.duration_ms, happened.outputs, happened.notes)
            finish(self._ledger, hold, ending, now_ms)
            return
        if happened.by_deadline and hold.end in {None, FailureKind.TIMEOUT}:
            # Its lease was over first; who was stalled looks at its time before hearing of that.
            hold.end = Cause.SELF_FENCED
        elif hold.end is None:
            hold.end = Cause.COLLATERAL if others_fault else Cause.PROCESS_DIED
        # A timeout is the task's own end, wherever its time went.
        started = happened.begun or hold.end is FailureKind.TIMEOUT
        stopped(self._ledger, hold, now_ms, started=started, gone=happened.gone)

    def _take_back(self, slot: Slot, calls: Sequence[int], now_ms: int) -> None:
        back = [hold for call in calls if (hold := slot.placed.get(call)) is not None]
        for hold in back:
            self._floor.remove(slot, hold, now_ms)
        for hold in reversed(back):
            if hold.end is FailureKind.TIMEOUT:
                # It had not begun, so neither had its time.
                hold.end = None
            if hold.end is not None:
                stopped(self._ledger, hold, now_ms, started=False)
            else:
                self._ledger.make_ready(hold, first=True)

    def _end_first(self, slot: Slot, hold: Hold, now_ms: int) -> None:
        is_late = hold.end is Cause.SELF_FENCED
        if is_late:
            hold.end_by_ms = now_ms + _LATE_PATIENCE_MS
        self._end_tree(slot, grace_ms(hold.ttl_ms), is_late=is_late)

    def _end_tree(self, slot: Slot, grace: int, *, is_late: bool = False) -> None:
        slot.ending = True
        self._ledger.act(EndTree(slot.index, grace, is_late))
