"""What follows from the end of an errand, inside the loop's transaction; and what is due without anybody asking."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from tenure.coordinator import adoption, checkpoints, collection, logs, outputs, promotion
from tenure.coordinator.errands import (
    AdoptionCheck,
    CheckpointCheck,
    Collecting,
    Discarding,
    LogKeeping,
    Promotion,
    Restoring,
    ResultCheck,
)

if TYPE_CHECKING:
    from tenure.coordinator.curator import End
    from tenure.coordinator.turn import Turn


def follow(turn: Turn, end: End) -> None:
    """Decide what an errand's end means now: whatever it was begun for may have changed meanwhile."""
    errand, ended = end
    match errand:
        case ResultCheck():
            outputs.checked(turn, errand, ended)
        case CheckpointCheck():
            checkpoints.checked(turn, errand, ended)
        case AdoptionCheck():
            adoption.checked(turn, errand, ended)
        case Promotion():
            promotion.ended(turn, errand, ended)
        case LogKeeping():
            logs.ended(turn, errand, ended)
        case Collecting():
            collection.ended(turn, errand, ended)
        case Discarding() | Restoring():
            pass  # what could not be removed goes with the next collection; what is not back is missed by its readers
        case _:
            assert_never(errand)


def look(turn: Turn, retention_ms: int, began_ms: int) -> None:
    """See to what is due: what was accepted and not promoted, logs, old quarantine, the daily collection."""
    if not turn.curator.ready:
        return
    promotion.go_on(turn)
    logs.go_on(turn)
    adoption.expire(turn, retention_ms)
    collection.begin_daily(turn, began_ms)
