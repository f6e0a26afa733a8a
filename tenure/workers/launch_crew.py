"""The parent's crew: one thread that calls the launcher, so that a slow substrate never delays a heartbeat.

A launcher is used by one thread at a time, and the core asks for one thing at a time about each launch, so what waits
here is bounded by the slots. What ends something comes first. Then one start and the looks that have waited for it take
turns, for a start may take long: neither keeps the other waiting for more than one start, or one look at each launch.
"""

from __future__ import annotations

import logging
from itertools import count
from queue import PriorityQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from tenure.errors import LaunchError, LaunchRefused, TenureError
from tenure.launchers.base import Phase, Sighting
from tenure.workers.launch_actions import CancelLaunch, ClearLaunch, ProbeLaunch, StartLaunch
from tenure.workers.launch_inputs import CancelTried, ClearTried, Launched, NotLaunched, Sighted

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.launchers.base import Handle, Launcher, LaunchOrder
    from tenure.workers.launch_actions import CrewAction
    from tenure.workers.launch_inputs import CrewInput, Key

_LOG: Final = logging.getLogger(__name__)
_Place: TypeAlias = tuple[int, int]
_FIRST: Final = (0, 0)


@final
class LaunchCrew:
    """Calls the launcher for each action, and posts one answer for each."""

    def __init__(self, launcher: Launcher[Any], post: Callable[[CrewInput], None]) -> None:
        self._launcher = launcher
        self._post = post
        self._queue: PriorityQueue[tuple[_Place, int, CrewAction | None]] = PriorityQueue()
        self._ordinals = count()
        self._starts = count()
        self._starts_done = 0
        self._complaint = ""
        self._thread = Thread(target=self._run, name="tenure-launcher", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def perform(self, action: CrewAction) -> None:
        """Let it be done as soon as what is more urgent is."""
        self._queue.put((self._place(action), next(self._ordinals), action))

    def close(self, timeout_s: float) -> None:
        """End the thread after what it does just now, and let go of the substrate."""
        if self._thread.ident is None:
            self._launcher.close()
            return
        self._queue.put((_FIRST, next(self._ordinals), None))
        self._thread.join(timeout_s)

    def _place(self, action: CrewAction) -> _Place:
        """Where it stands in the queue; what stands lower is done earlier."""
        match action:
            case CancelLaunch():
                return (1, 0)
            case StartLaunch():
                return (2, 2 * next(self._starts) + 1)
            case ProbeLaunch():
                # Before the start that follows the one that is due or being done now.
                return (2, 2 * (self._starts_done + 1))
            case ClearLaunch():
                return (3, 0)

    def _run(self) -> None:
        while True:
            _, _, action = self._queue.get()
            if action is None:
                break
            self._post(self._do(action))
            self._starts_done += isinstance(action, StartLaunch)
        self._launcher.close()

    def _do(self, action: CrewAction) -> CrewInput:
        match action:
            case StartLaunch(key, order):
                return self._launch(key, order)
            case ProbeLaunch(key, handle):
                return Sighted(key, self._probe(action))
            case CancelLaunch(key, handle):
                return CancelTried(
                    key, done=self._try(lambda: self._launcher.cancel(handle), "end an executor", handle)
                )
            case ClearLaunch(key, handle):
                return ClearTried(key, done=self._try(lambda: self._launcher.clear(handle), "clear up", handle))

    def _launch(self, key: Key, order: LaunchOrder) -> CrewInput:
        try:
            plan = self._launcher.render(order)
            handle = self._launcher.launch(plan)
        except LaunchError as error:
            self._complain("launch an executor", error)
            return NotLaunched(key, str(error), is_known=isinstance(error, LaunchRefused))
        except TenureError as error:
            # Not about the substrate, so nothing was asked of it: an option does not fit this order.
            self._complain("launch an executor", error)
            return NotLaunched(key, str(error), is_known=True)
        except Exception as error:  # noqa: BLE001 - a launcher may be anybody's
            self._complain("launch an executor", error)
            return NotLaunched(key, repr(error), is_known=False)
        self._complaint = ""
        return Launched(key, handle)

    def _probe(self, action: ProbeLaunch) -> Sighting:
        foreign = self._foreign(action.handle)
        if foreign:
            return Sighting(Phase.MISSING, detail=foreign)
        try:
            return self._launcher.probe(action.handle)
        except Exception as error:  # noqa: BLE001 - same
            self._complain("look after an executor", error)
            return Sighting(Phase.UNKNOWN, detail=repr(error))

    def _foreign(self, handle: Handle) -> str:
        """Why this launcher cannot be asked about it, "" when it can: an earlier agent may have had another one."""
        if handle.launcher == self._launcher.name:
            return ""
        return f"it was launched with {handle.launcher}, and this worker has {self._launcher.name} now"

    def _try(self, step: Callable[[], None], what: str, handle: Handle) -> bool:
        try:
            if not self._foreign(handle):
                step()
        except Exception as error:  # noqa: BLE001 - same
            self._complain(what, error)
            return False
        return True

    def _complain(self, what: str, error: Exception) -> None:
        """Say it once, and again only when it is something else."""
        text = f"the launcher {self._launcher.name} could not {what}: {error}"
        level = logging.DEBUG if text == self._complaint else logging.WARNING
        _LOG.log(level, "%s", text, exc_info=None if isinstance(error, TenureError) else error)
        self._complaint = text
