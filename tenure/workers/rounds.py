"""Rounds: what the core looks after as time passes, ten times a second while anything is in hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from tenure.protocol.worker_messages import Cause, FailureKind, Progressed
from tenure.workers.actions import Tell
from tenure.workers.conclusions import disclose, give_back
from tenure.workers.holds import NEVER, Hold, Stage

if TYPE_CHECKING:
    from tenure.workers.floor import Floor
    from tenure.workers.ledger import Ledger
    from tenure.workers.rights import Rights
    from tenure.workers.stopping import Stopper

ROUND_MS: Final = 100
IDLE_ROUND_MS: Final = 1_000
_CLOSING_MS: Final = 15_000
"""How long the report of an attempt that has ended badly waits for the answer to its last checkpoint."""
_BLOCKED_MS: Final = 250
"""A call that has been running for this long does not let others wait behind it."""


@final
class Rounds:
    """Deadlines, timeouts, blocked queues and progress."""

    def __init__(self, ledger: Ledger, floor: Floor, rights: Rights, stopper: Stopper) -> None:
        self._ledger = ledger
        self._floor = floor
        self._rights = rights
        self._stopper = stopper

    def round(self, now_ms: int) -> None:
        """Look after everything once."""
        for hold in list(self._ledger.holds()):
            if hold.stage is not Stage.OVER:
                self._look_after(hold, now_ms)
        self._stopper.insist(now_ms)
        self._unblock(now_ms)

    def lapse(self, now_ms: int) -> None:
        """End what has no right to run any more: a renewal that comes now must not bring it back.

        After a suspend the coordinator may have replaced it long ago, and its grant may still lie in the mail.
        """
        for hold in list(self._ledger.holds()):
            if hold.stage not in {Stage.OVER, Stage.CLOSING} and now_ms >= self._rights.deadline_ms(hold):
                self._end(hold, now_ms)

    def give_back_blocked(self, now_ms: int) -> None:
        """Hand back what may start but has no prospect of a place soon: another worker may have one."""
        if self._ledger.ready and self._floor.blocked(now_ms, _BLOCKED_MS):
            for hold in list(self._ledger.ready):
                if hold.stage is Stage.READY:
                    give_back(self._ledger, hold, Cause.UNSTARTED, now_ms)
            self._ledger.ready.clear()

    def _look_after(self, hold: Hold, now_ms: int) -> None:
        if hold.progress is not None:
            self._tell_progress(hold, hold.progress)
        if hold.stage is Stage.CLOSING:
            if now_ms >= min(hold.closing_ms + _CLOSING_MS, self._rights.deadline_ms(hold)):
                disclose(self._ledger, hold, now_ms)
        elif now_ms >= self._rights.deadline_ms(hold):
            self._end(hold, now_ms)
        elif _timed_out(hold, now_ms):
            self._stopper.stop(hold, FailureKind.TIMEOUT, now_ms)

    def _end(self, hold: Hold, now_ms: int) -> None:
        hold.detail = hold.detail or "could not renew in time"
        self._stopper.stop(hold, Cause.SELF_FENCED, now_ms)

    def _tell_progress(self, hold: Hold, progress: tuple[int, str, str]) -> None:
        fraction_ppm, message, metrics = progress
        hold.progress = None
        hold.cursor += 1
        event = Progressed(
            binding=hold.binding, cursor=hold.cursor, fraction_ppm=fraction_ppm, message=message, metrics=metrics
        )
        self._ledger.act(Tell(event))

    def _unblock(self, now_ms: int) -> None:
        for slot in self._floor.slots:
            queued = len(slot.placed) > 1 and not slot.is_async and not slot.ending
            if queued and slot.busy_for_ms(now_ms) > _BLOCKED_MS:
                self._stopper.recall(slot)


def _timed_out(hold: Hold, now_ms: int) -> bool:
    timeout_ms = hold.provision.timeout_ms
    return timeout_ms is not None and hold.began_ms != NEVER and now_ms - hold.began_ms >= timeout_ms
