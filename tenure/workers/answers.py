"""Answers: what the coordinator's orders mean for the holds, and what must be told again while answers are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from tenure.protocol.control_messages import Granted, Judged, Refused, Stop
from tenure.protocol.worker_messages import Cause
from tenure.workers.actions import Tell
from tenure.workers.checkpoints import Checkpoints
from tenure.workers.conclusions import disclose, give_back
from tenure.workers.holds import Hold, Stage

if TYPE_CHECKING:
    from tenure.workers.intake import Intake
    from tenure.workers.ledger import Ledger
    from tenure.workers.rights import Rights
    from tenure.workers.stopping import Stopper

_CLAIM_PATIENCE_MS: Final = 1_000
_REPORT_PATIENCE_MS: Final = 2_000
_MOST_DOUBLINGS: Final = 4
_IMPLIED_CLAIM_MS: Final = 100
"""A task that starts at once and ends within this time needs no claim: its result implies it."""


@final
class Answers:
    """Applies grants, refusals, stops and verdicts, and repeats what stays unanswered."""

    def __init__(self, ledger: Ledger, rights: Rights, intake: Intake, stopper: Stopper) -> None:
        self._ledger = ledger
        self._rights = rights
        self._intake = intake
        self._stopper = stopper
        self.checkpoints: Final = Checkpoints(ledger)

    def granted(self, order: Granted, now_ms: int) -> None:
        """The lease is bound: start, unless the right to run has passed meanwhile."""
        hold = self._ledger.find((order.task_id, order.fence))
        if hold is None or hold.binding.nonce != order.nonce or hold.stage is not Stage.ASKING:
            return
        if now_ms >= self._rights.deadline_ms(hold) or self._intake.closed:
            give_back(self._ledger, hold, Cause.UNSTARTED, now_ms)
        else:
            self._ledger.make_ready(hold)

    def refused(self, order: Refused, now_ms: int) -> None:
        """The claim is refused: drop what has not started, end what has."""
        hold = self._ledger.find((order.task_id, order.fence))
        if hold is None or hold.binding.nonce != order.nonce:
            return
        disclose(self._ledger, hold, now_ms)
        if hold.stage is Stage.PLACED:
            hold.detail = f"the claim was refused: {order.reason}"
            self._stopper.stop(hold, Cause.CANCELLED, now_ms)
        elif hold.stage is not Stage.OVER:
            self._ledger.counts["refused"] += 1
            self._ledger.forget(hold)

    def stop(self, order: Stop, now_ms: int) -> None:
        """The attempt must end, also when its assignment is still on its way."""
        key = (order.task_id, order.fence)
        hold = self._ledger.find(key)
        if hold is not None:
            self._stopper.stop(hold, Cause.CANCELLED, now_ms)
        elif not self._ledger.recall(key):
            self._intake.stop_early(key)

    def judged(self, order: Judged) -> None:
        """The verdict is here: the attempt may be forgotten."""
        hold = self._ledger.find((order.task_id, order.fence))
        if hold is not None and hold.stage is Stage.OVER and hold.binding.nonce == order.nonce:
            self._ledger.counts[order.verdict] += 1
            self._ledger.forget(hold)

    def repeat(self, now_ms: int, *, at_once: bool = False) -> None:
        """Tell again what has been unanswered for long; `at_once` when it may have been lost."""
        for hold in self._ledger.holds():
            self.checkpoints.repeat(hold, now_ms, at_once=at_once)
            if hold.stage is Stage.OVER:
                self._repeat_report(hold, now_ms, at_once=at_once)
            elif hold.stage is Stage.ASKING or hold.claim_told:
                self._repeat_claim(hold, now_ms, at_once=at_once)
            elif now_ms - hold.told_ms >= _IMPLIED_CLAIM_MS:
                self._intake.ask(hold, now_ms)

    def _repeat_report(self, hold: Hold, now_ms: int, *, at_once: bool) -> None:
        if hold.report is not None and (at_once or _due(hold, now_ms, _REPORT_PATIENCE_MS)):
            hold.told_ms = now_ms
            hold.repeats += 1
            self._ledger.act(Tell(hold.report))

    def _repeat_claim(self, hold: Hold, now_ms: int, *, at_once: bool) -> None:
        # A claim whose grant is not needed is repeated only when it may have been lost.
        if at_once or (hold.stage is Stage.ASKING and _due(hold, now_ms, _CLAIM_PATIENCE_MS)):
            self._intake.ask(hold, now_ms)


def _due(hold: Hold, now_ms: int, patience_ms: int) -> bool:
    return now_ms - hold.told_ms >= patience_ms << min(hold.repeats, _MOST_DOUBLINGS)
