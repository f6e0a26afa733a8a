"""What the parent looks after as time passes: what is asked of the substrate and when, and what is told again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from tenure.protocol.worker_messages import Cause
from tenure.workers.actions import Tell
from tenure.workers.launch_actions import ClearLaunch, NoteHandle, ProbeLaunch
from tenure.workers.launch_stages import TOLD, LaunchStage

if TYPE_CHECKING:
    from tenure.launchers.base import Handle
    from tenure.workers.launch_book import Launch, LaunchBook
    from tenure.workers.launch_inputs import NotLaunched
    from tenure.workers.launch_intake import LaunchIntake
    from tenure.workers.launch_stops import LaunchStops

_REPORT_PATIENCE_MS: Final = 2_000
_MOST_DOUBLINGS: Final = 4
_FIRST_PAUSE_MS: Final = 1_000
_LONGEST_PAUSE_MS: Final = 60_000
_QUICKEST_PROBE_MS: Final = 200
_SLOWEST_PROBE_MS: Final = 1_000
_PROBE_SHARE_MS: Final = 10
"""With many launches in hand each is asked about less often: a substrate is asked 100 times a second at most."""
_CLEAR_TRIES: Final = 8


@final
class LaunchRounds:
    """Probes, repetitions and pauses."""

    def __init__(self, book: LaunchBook, intake: LaunchIntake, stops: LaunchStops) -> None:
        self._book = book
        self._intake = intake
        self._stops = stops
        self._refusals = 0
        self._pause_until_ms = 0

    def pauses(self, now_ms: int) -> bool:
        """Whether nothing is to be taken now: the substrate refuses."""
        return now_ms < self._pause_until_ms

    def round(self, now_ms: int) -> None:
        """Look after everything once."""
        for launch in list(self._book.launches()):
            if launch.stage in TOLD:
                self._repeat(launch, now_ms)
            if launch.stage is LaunchStage.OVER or launch.busy or self._stops.insist(launch, now_ms):
                continue
            if now_ms >= launch.due_ms:
                self._ask(launch, now_ms)

    def repeat_all(self, now_ms: int) -> None:
        """Tell again everything that is unanswered: it may have been lost."""
        for launch in self._book.launches():
            if launch.stage in TOLD:
                self._tell(launch, now_ms)

    def launched(self, launch: Launch, handle: Handle, now_ms: int) -> None:
        """The substrate took it."""
        self._refusals = self._pause_until_ms = launch.failures = 0
        self._book.counts["launched"] += 1
        self._book.act(NoteHandle(launch.key, handle))
        launch.handle = handle
        launch.due_ms = now_ms + _QUICKEST_PROBE_MS
        if launch.stage is LaunchStage.ORDERED:
            launch.move(LaunchStage.STARTING)

    def not_launched(self, launch: Launch, answer: NotLaunched, now_ms: int) -> None:
        """The substrate refused it, or could not be asked."""
        if launch.stage is not LaunchStage.ORDERED:
            return
        if answer.is_known:
            self._pause_until_ms = now_ms + _pause_ms(self._refusals)
            self._refusals += 1
            cause = launch.end or Cause.LAUNCH_REFUSED
            self._book.conclude(launch, cause, now_ms, detail=answer.detail)
        elif now_ms - launch.since_ms >= self._stops.timeout_ms:
            # It may have been launched after all. Then it is refused, or its lease is its own and runs out by itself.
            cause = launch.end or Cause.UNSCHEDULABLE
            self._book.conclude(launch, cause, now_ms, detail=answer.detail)
        else:
            launch.due_ms = now_ms + _pause_ms(launch.failures)
            launch.failures += 1

    def cleared(self, launch: Launch, now_ms: int, *, done: bool) -> None:
        """Nothing is left of it, or it was tried in vain."""
        if launch.stage is not LaunchStage.CLEARING:
            return
        launch.failures += 1
        if done or launch.failures >= _CLEAR_TRIES:
            self._book.counts["cleared" if done else "not_cleared"] += 1
            self._book.forget(launch)
        else:
            launch.due_ms = now_ms + _pause_ms(launch.failures)

    def _ask(self, launch: Launch, now_ms: int) -> None:
        if launch.stage is LaunchStage.ORDERED:
            self._intake.start(launch)
        elif launch.handle is not None:
            launch.busy = True
            launch.due_ms = now_ms + self._probe_pause_ms(launch, now_ms)
            make = ClearLaunch if launch.stage is LaunchStage.CLEARING else ProbeLaunch
            self._book.act(make(launch.key, launch.handle))

    def _probe_pause_ms(self, launch: Launch, now_ms: int) -> int:
        """A young launch, or one that is to end, is asked about more often."""
        if launch.end is not None:
            return _QUICKEST_PROBE_MS
        age_ms = now_ms - launch.since_ms
        pause_ms = max(_QUICKEST_PROBE_MS, min(_SLOWEST_PROBE_MS, age_ms // 8))
        return max(pause_ms, _PROBE_SHARE_MS * len(self._book))

    def _repeat(self, launch: Launch, now_ms: int) -> None:
        if now_ms - launch.told_ms >= _REPORT_PATIENCE_MS << min(launch.repeats, _MOST_DOUBLINGS):
            self._tell(launch, now_ms)

    def _tell(self, launch: Launch, now_ms: int) -> None:
        if launch.report is not None:
            launch.told_ms = now_ms
            launch.repeats += 1
            self._book.act(Tell(launch.report))


def _pause_ms(failures: int) -> int:
    return min(_FIRST_PAUSE_MS << min(failures, 16), _LONGEST_PAUSE_MS)
