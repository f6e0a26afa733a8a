"""The end of launches: why one is to end, how long it may do so by itself, and what the substrate's word means.

An executor is told by the coordinator that it is to end, and ends its task's tree in good order. The parent only makes
sure of it: it waits as long as that may take, and then has the launcher end it by force.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from tenure.launchers.base import Phase
from tenure.protocol.durations import duration_text
from tenure.protocol.timing import grace_ms
from tenure.protocol.worker_messages import Cause
from tenure.workers.holds import NEVER
from tenure.workers.launch_actions import CancelLaunch
from tenure.workers.launch_stages import LaunchStage

if TYPE_CHECKING:
    from tenure.launchers.base import Sighting
    from tenure.workers.launch_book import Launch, LaunchBook

_PATIENCE_MS: Final = 2_000
"""What an executor may take beyond the grace of its lease, for the way of the order and of its own report."""
_CANCEL_AGAIN_MS: Final = 5_000
_NOT_SEEN_RUNNING: Final = frozenset({LaunchStage.STARTING, LaunchStage.UNSEEN})


@final
class LaunchStops:
    """Ends launches, and draws conclusions from what the substrate says."""

    def __init__(self, book: LaunchBook, timeout_ms: int) -> None:
        self._book = book
        self.timeout_ms: Final = timeout_ms
        """How long a launch may be STARTING."""

    def stop(self, launch: Launch, cause: Cause, now_ms: int, *, at_once: bool = False) -> None:
        """It is to end: by itself if it runs, unless `at_once`, and by force when it does not."""
        if not launch.is_unfinished or launch.stage is LaunchStage.STOPPING:
            return
        launch.end = launch.end or cause
        by_itself = launch.stage in {LaunchStage.RUNNING, LaunchStage.UNSEEN} and not at_once
        end_by_ms = now_ms + (grace_ms(launch.ttl_ms) + _PATIENCE_MS if by_itself else 0)
        launch.end_by_ms = end_by_ms if launch.end_by_ms == NEVER else min(launch.end_by_ms, end_by_ms)
        # Whether it has ended is worth knowing soon.
        launch.due_ms = now_ms

    def insist(self, launch: Launch, now_ms: int) -> bool:
        """Have it ended by force if its time is over; answers whether that was decided.

        What the substrate still shows after it was ended by force for as long as a launch may take is given up, with
        nothing proved, when its lease is over: its worker or node may be gone for good.
        """
        is_late = launch.end_by_ms != NEVER and now_ms >= launch.end_by_ms
        if launch.handle is None or launch.busy or not launch.is_unfinished or not is_late:
            return False
        if launch.is_superseded and launch.forced_ms != NEVER and now_ms - launch.forced_ms >= self.timeout_ms:
            detail = f"it was ended by force, and its end was not seen within {duration_text(self.timeout_ms)}"
            self._book.conclude(launch, launch.end or Cause.CANCELLED, now_ms, detail=detail)
            return True
        launch.move(LaunchStage.STOPPING)
        launch.end_by_ms = now_ms + _CANCEL_AGAIN_MS
        launch.busy = True
        self._book.act(CancelLaunch(launch.key, launch.handle))
        return True

    def forced(self, launch: Launch, now_ms: int, *, done: bool) -> None:
        """The launcher was asked to end it, and could, or could not, tell the substrate."""
        launch.due_ms = now_ms
        if done and launch.forced_ms == NEVER:
            launch.forced_ms = now_ms

    def sighted(self, launch: Launch, sighting: Sighting, now_ms: int) -> None:
        """What the substrate says of an unfinished launch."""
        match sighting.phase:
            case Phase.STARTING | Phase.UNKNOWN:
                if launch.stage in _NOT_SEEN_RUNNING and now_ms - launch.since_ms >= self.timeout_ms:
                    self._late(launch, sighting, now_ms)
            case Phase.RUNNING:
                if launch.stage in _NOT_SEEN_RUNNING:
                    launch.move(LaunchStage.RUNNING)
            case Phase.ENDED:
                self._over(launch, sighting, Cause.EXECUTOR_DIED, now_ms)
            case Phase.MISSING:
                self._over(launch, sighting, Cause.EXECUTOR_REMOVED, now_ms)

    def _late(self, launch: Launch, sighting: Sighting, now_ms: int) -> None:
        if sighting.phase is Phase.STARTING:
            launch.detail = sighting.detail or f"it had not started after {self.timeout_ms} ms"
            self.stop(launch, sighting.cause or Cause.UNSCHEDULABLE, now_ms, at_once=True)
            return
        if launch.stage is LaunchStage.STARTING:
            # Neither ended by force nor given up: an earlier agent may have left it, and it may have run since.
            launch.move(LaunchStage.UNSEEN)
            cause = launch.end or Cause.UNSCHEDULABLE
            self._book.act(launch.told(cause, now_ms, proved=False, detail=sighting.detail))

    def _over(self, launch: Launch, sighting: Sighting, otherwise: Cause, now_ms: int) -> None:
        # Once it was ended by force from here, the substrate only says that somebody did so.
        forced = launch.end if launch.stage is LaunchStage.STOPPING else None
        cause = forced or sighting.cause or launch.end or otherwise
        detail = launch.detail or sighting.detail if forced else sighting.detail
        self._book.conclude(launch, cause, now_ms, proved=sighting.proved, detail=detail)
