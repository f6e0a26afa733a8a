"""Logs of attempts that are over: taken from the broker into the store, a few seconds after the end.

The wait lets the last flush of a worker that is alive come in. Which logs are still to be kept is on record, so that a
crash forgets none; only attempts that have printed are on it, and those whose workers could not say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenure.artifacts.jobs import StagingPlace
from tenure.coordinator import promotion
from tenure.coordinator.errands import Artifact, LogKeeping
from tenure.coordinator.journal import Step
from tenure.protocol.artifact import Bundle
from tenure.protocol.states import LeaseState

if TYPE_CHECKING:
    from tenure.artifacts.jobs import Ended
    from tenure.coordinator.live import LiveLease
    from tenure.coordinator.turn import Turn

_FLUSH_MS: Final = 5_000
_AT_ONCE: Final = 8
_MOST_TRIES: Final = 22
_NO_NONCE: Final = "0" * 16


def note_end(turn: Turn, lease: LiveLease) -> None:
    """An attempt that was bound is over: its log is to be kept, unless its worker says that there is none."""
    if not (lease.printed and lease.worker_id and lease.state is LeaseState.ACTIVE and turn.curator.ready):
        return
    turn.store.run("log_to_keep", (lease.task_id, lease.fence, lease.attempt, lease.site, turn.now_ms))


def go_on(turn: Turn) -> None:
    """Begin to keep the logs whose time has come, a few at once."""
    room = _AT_ONCE - turn.curator.under_way("log")
    if room <= 0:
        return
    for task_id, fence, attempt, site in turn.store.rows("logs_to_keep", (turn.now_ms - _FLUSH_MS, 4 * _AT_ONCE)):
        errand = LogKeeping(task_id, fence, attempt, site)
        if room > 0 and not turn.curator.waits(errand.key, turn.elapsed_ms):
            turn.ask_porter(errand)
            room -= 1


def ended(turn: Turn, errand: LogKeeping, end: Ended) -> None:
    """A log is in the store, or there was none; what the store does not take is tried again for some time."""
    if end.problem is not None and turn.curator.failed(errand.key, end, turn.elapsed_ms) < _MOST_TRIES:
        return
    turn.curator.succeeded(errand.key)
    turn.store.run("log_done", (errand.task_id, errand.fence))
    if end.problem is not None:
        text = f"The log of attempt {errand.attempt} could not be kept: {end.problem.message}."
        turn.record("log_lost", text, task_id=errand.task_id, step=Step(reason=end.problem.code, site=errand.site))
    elif end.blob is not None:
        artifact = Artifact(
            task_id=errand.task_id,
            fence=errand.fence,
            attempt=errand.attempt,
            kind="log",
            ordinal=0,
            name="",
            bundle=Bundle(manifest=end.blob, files=1, size=end.blob.size),
            place=StagingPlace(site=errand.site, task_id=errand.task_id, fence=errand.fence, nonce=_NO_NONCE),
        )
        promotion.record_promoted(turn, artifact)
