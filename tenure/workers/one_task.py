"""One task: what an executor is there for, and when it has nothing more to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from tenure.workers.holds import NEVER, Stage

if TYPE_CHECKING:
    from tenure.workers.intake import Intake
    from tenure.workers.ledger import Ledger


@final
class OneTask:
    """Watches over the one assignment of an executor.

    `patience_ms` is how long it may stay unknown whether this executor may run it. Without such an end an executor that
    no coordinator answers would occupy its place on the substrate for ever, and its launcher would wait for it.
    """

    def __init__(self, patience_ms: int, intake: Intake, ledger: Ledger) -> None:
        self._patience_ms = patience_ms
        self._intake = intake
        self._ledger = ledger
        self._since_ms = NEVER

    def is_over(self, now_ms: int) -> bool:
        """Whether nothing is to be run any more, or the fleet has been away for too long."""
        if self._since_ms == NEVER:
            self._since_ms = now_ms
        if self._intake.has_read and self._ledger.unfinished == 0:
            return True
        return now_ms - self._since_ms >= self._patience_ms and not self._was_granted()

    def _was_granted(self) -> bool:
        return any(hold.stage is not Stage.ASKING for hold in self._ledger.holds())
