"""What a handler sees of its task while it runs in a child: `tenure.current()`."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final, final

from tenure.handlers.context import running
from tenure.handlers.context_files import TaskFiles
from tenure.workers.calls import Call, Progress, Saved
from tenure.workers.child_metrics import rendered
from tenure.workers.child_secrets import GivenSecrets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tenure.clock import Clock
    from tenure.workers.calls import FromChild
    from tenure.workers.child_sheet import Sheet

_PROGRESS_MS: Final = 100
_MAX_MESSAGE: Final = 1_000
_MILLION: Final = 1_000_000


class Stopped(BaseException):
    """Raised in a handler that must end now; not an `Exception`, so that no handler catches it by accident."""


@final
class Run(TaskFiles):
    """The context of one call. `send` takes messages to the agent; what is `given` to the call is never in them."""

    def __init__(
        self, call: Call, send: Callable[[FromChild], None], clock: Clock, given: GivenSecrets | None = None
    ) -> None:
        super().__init__(*_files(call.files), lambda name: send(Saved(call.call, name)))
        self._call = call
        self._send = send
        self._clock = clock
        self._given = given or GivenSecrets()
        self._told_ms: int | None = None
        self._asks = False
        self._stopped = False
        self.number: Final = call.call
        """The agent's number for the call."""
        self.sheet: Sheet | None = None
        """What the call has printed; None as long as it has not."""

    @property
    def task_id(self) -> str:
        """The task's id."""
        return self._call.task_id

    @property
    def attempt(self) -> int:
        """Which execution this is, from 1."""
        return self._call.attempt

    @property
    def fence(self) -> int:
        """The fencing token of this attempt."""
        return self._call.fence

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records name the task and belong to its log, in whatever thread they are made."""
        return _TaskLogger(self)

    def progress(self, fraction: float, message: str = "", **metrics: object) -> None:
        """Tell how far the task is; told at most ten times a second, the end always."""
        now_ms = self._clock.elapsed_ms()
        if fraction < 1 and self._told_ms is not None and now_ms - self._told_ms < _PROGRESS_MS:
            return
        self._told_ms = now_ms
        bounded = min(max(fraction, 0.0), 1.0) if fraction == fraction else 0.0  # noqa: PLR0124 - NaN
        text = self._given.text(str(message))[:_MAX_MESSAGE]
        numbers = rendered(metrics, self._given.text)
        self._send(Progress(self._call.call, round(bounded * _MILLION), text, numbers))

    def secret(self, name: str) -> str:
        """The value of a secret that the task names; from now on it is masked in all that is told of calls."""
        value = super().secret(name)
        self._given.add(name, value)
        return value

    def cancelled(self) -> bool:
        """Whether the task should end soon. A handler that asks is trusted to obey and not interrupted."""
        self._asks = True
        return self._stopped

    def stop(self) -> None:
        """Ask the handler to end; raises `Stopped` in the calling thread when it has never asked for that."""
        self._stopped = True
        if not self._asks:
            raise Stopped

    def note_cancelled(self) -> None:
        """Let `cancelled()` answer True, and raise nothing."""
        self._stopped = True

    @property
    def stopped(self) -> bool:
        """Whether the handler was asked to end."""
        return self._stopped


def _files(text: str) -> tuple[Path | None, Path | None, Mapping[str, Path]]:
    """A call's folder, checkpoint, and secrets."""
    if not text:
        return None, None, {}
    # Loaded here: most calls have no files, and a child starts sooner without it.
    from pathlib import Path

    said = json.loads(text)
    checkpoint = Path(said["checkpoint"]) if said["checkpoint"] else None
    return Path(said["folder"]), checkpoint, {name: Path(file) for name, file in said["secrets"].items()}


@final
class _TaskLogger(logging.LoggerAdapter[logging.Logger]):
    def __init__(self, run: Run) -> None:
        super().__init__(logging.getLogger("tenure.task"), {"task_id": run.task_id})
        self._run = run

    def log(self, level: int, msg: object, *args: object, stacklevel: int = 1, **kwargs: Any) -> None:  # noqa: ANN401
        """See `logging.Logger.log`; `stacklevel` counts this frame, so that records name the caller."""
        with running(self._run):
            super().log(level, msg, *args, stacklevel=stacklevel + 1, **kwargs)
