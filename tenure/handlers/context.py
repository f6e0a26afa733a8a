"""The running task's context: what a handler can ask and tell while it runs.

`current()` works everywhere: inside a fleet it gives the task's own context, elsewhere a double that does nothing, so
that handlers run in tests and notebooks unchanged. The context follows the handler into coroutines and into threads
that copy the context (`asyncio.to_thread` does); a bare thread must be handed what `current()` returned.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Protocol, final

from tenure.handlers.context_files import LooseFiles, TaskFiles

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


class RunContext(Protocol):
    """What a handler sees of the task that it runs for."""

    @property
    def task_id(self) -> str:
        """The task's id; "" outside a fleet."""
        ...

    @property
    def attempt(self) -> int:
        """Which execution this is, from 1; 0 outside a fleet."""
        ...

    @property
    def fence(self) -> int:
        """The fencing token: grows with every assignment of the task, so that storage can refuse an older one."""
        ...

    @property
    def logger(self) -> logging.Logger | logging.LoggerAdapter[logging.Logger]:
        """A logger whose records belong to this task."""
        ...

    def progress(self, fraction: float, message: str = "", **metrics: object) -> None:
        """Tell how far the task is, from 0.0 to 1.0; values outside are taken as the nearest end.

        `metrics` are numbers and short texts by name, such as `loss=0.03`; the newest of them are shown.
        """
        ...

    def cancelled(self) -> bool:
        """Whether the task should end soon of its own accord; it will be killed when it does not."""
        ...

    @property
    def folder(self) -> Path:
        """The task's own folder, removed when it is over; of tasks that have inputs or secrets, or ask for `files`.

        Raises `UsageError` when the task has none. Outside a fleet it is a temporary folder.
        """
        ...

    @property
    def inputs(self) -> Path:
        """The folder of what the task was submitted with."""
        ...

    @property
    def outputs(self) -> Path:
        """The folder of what the task leaves: kept when it returns, and with its result only."""
        ...

    @property
    def checkpoint(self) -> Path | None:
        """What an earlier attempt of this task has saved last; None when there is nothing."""
        ...

    def save_checkpoint(self, name: str) -> None:
        """Keep the file or folder `checkpoint/<name>` for a later attempt. It must stay as it is from now on."""
        ...

    def secret(self, name: str) -> str:
        """The value of a secret that the task names. Raises `UsageError` for any other."""
        ...


@final
class NoRun(TaskFiles):
    """The double outside a fleet: nothing is reported, nothing is cancelled, files lie in a temporary folder."""

    def __init__(self) -> None:
        self._loose = LooseFiles()
        super().__init__(None, None, {}, lambda _: None)

    @property
    def folder(self) -> Path:
        """A temporary folder, the same one as long as this process lives."""
        return self._loose.path()

    @property
    def task_id(self) -> str:
        """Always ""."""
        return ""

    @property
    def attempt(self) -> int:
        """Always 0."""
        return 0

    @property
    def fence(self) -> int:
        """Always 0."""
        return 0

    @property
    def logger(self) -> logging.Logger:
        """The logger named "tenure.task"."""
        return logging.getLogger("tenure.task")

    def progress(self, fraction: float, message: str = "", **metrics: object) -> None:
        """Does nothing."""

    def cancelled(self) -> bool:
        """Always False."""
        return False


_CURRENT: ContextVar[RunContext] = ContextVar("tenure_current")
_NO_RUN: Final = NoRun()


def current() -> RunContext:
    """The context of the task that is running here, or a double that does nothing outside a fleet."""
    return _CURRENT.get(_NO_RUN)


@contextmanager
def running(context: RunContext) -> Generator[None]:
    """Make `context` the one that `current()` gives inside the with block."""
    token = _CURRENT.set(context)
    try:
        yield
    finally:
        _CURRENT.reset(token)
