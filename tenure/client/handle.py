"""A handle: the future of one task."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future, InvalidStateError
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar, final

from tenure.client.progress import Progress
from tenure.errors import (
    TaskAbandoned,
    TaskCancelled,
    TaskError,
    TaskFailed,
    TaskLost,
    UnknownArtifact,
    UsageError,
    WaitTimedOut,
)
from tenure.handlers.results import Returns
from tenure.protocol.artifact import Bundle
from tenure.protocol.client_messages import Done
from tenure.protocol.states import TaskState

T = TypeVar("T")

Fetch = Callable[[Bundle, Path, bool], object]
"""Puts a bundle's files into a folder; the flag says whether files that are there already may be replaced."""


@final
@dataclass(frozen=True, slots=True)
class Ties:
    """What a handle needs of its client.

    Args:
        cancel: asks to cancel the task of an id.
        fetch: brings files; None: there is no store.
        look: asks how far the task of an id is; None: there is nobody to ask.
    """

    cancel: Callable[[str], object]
    fetch: Fetch | None = None
    look: Callable[[str], Progress | None] | None = None


_NO_KWARGS: Final[Mapping[str, Any]] = MappingProxyType({})
_PLAIN: Final = Returns(None)


@final
class Handle(Future[T]):
    """One task's future: works with `concurrent.futures`, `asyncio.wrap_future` and `tenure.as_completed`.

    The task belongs to the fleet, not to this process: it goes on when the handle is dropped or the client closed, and
    `Client.handle(task_id)` attaches to it again. Callbacks run in the client's own thread; one that submits or asks
    gets a UsageError, because it would wait for itself.
    """

    def __init__(
        self,
        ties: Ties,
        *,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] = _NO_KWARGS,
        returns: Returns = _PLAIN,
        lost: Literal["raise", "wait"] = "raise",
    ) -> None:
        super().__init__()
        self._ties = ties
        self._returns = returns
        self._lost: Literal["raise", "wait"] = lost
        self.args = args
        """The positional arguments of the call."""
        self.kwargs = kwargs
        """The keyword arguments of the call."""
        self.task_id = ""
        """The task's id."""
        self.state = TaskState.QUEUED
        """The state that was last heard of; being offered and running are not announced."""
        self.attempt: int | None = None
        """The attempt that ended the task; None before."""
        self.fence: int | None = None
        """The fencing token of that attempt; None before."""
        self.outputs: Bundle | None = None
        """The files that the task has left in `outputs/`; None before its end, and when it left none."""

    def __repr__(self) -> str:
        return f"<Handle {self.task_id} {self.state}>"

    def result(self, timeout: float | None = None) -> T:
        """The task's value, waiting up to `timeout` seconds (None: for as long as it takes).

        Raises:
            TaskFailed, TaskLost, TaskCancelled, TaskAbandoned: how the task ended without a value.
            WaitTimedOut: it has not ended yet; it goes on.
        """
        try:
            return super().result(timeout)
        except CancelledError:
            raise self._cancelled_error() from None
        except TimeoutError as error:
            raise self._too_early(error) from None

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What `result` would raise; None when it would give a value. Raises WaitTimedOut."""
        try:
            return super().exception(timeout)
        except CancelledError:
            return self._cancelled_error()
        except TimeoutError as error:
            raise self._too_early(error) from None

    def cancel(self) -> bool:
        """Ask the fleet to cancel the task, waiting a moment (`ClientOptions.cancel_wait_ms`) for its word.

        Returns:
            True when the task is cancelled. False when it had ended already, or when its end is not proved yet: then
            the cancellation goes on, and the handle ends as soon as the process is known to be gone.
        """
        if not self.done():
            self._ties.cancel(self.task_id)
        return self.cancelled()

    def progress(self) -> Progress | None:
        """How far the task is, as the fleet knows now; None when it is not running, or has told nothing.

        Raises:
            CoordinatorUnreachable, BrokerError: nobody answered.
            UsageError: in a callback, or after the client was closed.
        """
        if self.done() or self._ties.look is None:
            return None
        return self._ties.look(self.task_id)

    def download(self, folder: str | Path, *, force: bool = False, timeout: float | None = None) -> Path:
        """Put the files that the task has left into a folder, waiting up to `timeout` seconds for its end.

        Args:
            folder: made when it is not there.
            force: whether files that are there already with other content are replaced.
            timeout: None: for as long as it takes.

        Raises:
            UnknownArtifact: the task has left no files.
            UsageError: a file is there already with other content, or cannot be written.
            ArtifactError: the store does not answer, or what it holds is damaged.
            TaskError, WaitTimedOut: as of `result`.
        """
        self.result(timeout)
        if self.outputs is None:
            raise UnknownArtifact(f"task {self.task_id} has left no files", "Programs write them into outputs/")
        if self._ties.fetch is None:
            raise UsageError("this handle belongs to no client", "Attach to the task with Client.handle(task_id)")
        self._ties.fetch(self.outputs, Path(folder), force)
        return Path(folder)

    def admit(self, task_id: str, state: TaskState) -> None:
        """Take the coordinator's answer to the submission. For the client, as `set_result` is for executors."""
        self.task_id = task_id
        self.state = state

    def settle(self, done: Done) -> bool:
        """Take the coordinator's word about the task's end; answers whether nothing more is expected."""
        self.state, self.attempt, self.fence = done.state, done.attempt, done.fence
        self.outputs = done.outputs
        with contextlib.suppress(InvalidStateError):  # ended in the meantime: the client was closed
            if done.state is TaskState.SUCCEEDED:
                self._succeed(done)
            elif done.state is TaskState.CANCELLED:
                super().cancel()
                self.set_running_or_notify_cancel()
            elif (error := _error_of(done, self._lost)) is not None:
                self.set_exception(error)
        return self.done()

    def _succeed(self, done: Done) -> None:
        try:
            value = self._returns.read("null" if done.value is None else done.value)
        except Exception as error:  # noqa: BLE001 - a result type's own validator may raise anything
            self.set_exception(error)
        else:
            self.set_result(value)

    def _cancelled_error(self) -> TaskCancelled:
        return TaskCancelled(f"task {self.task_id} was cancelled")

    def _too_early(self, error: TimeoutError) -> TimeoutError:
        if self.done():  # the task itself raised or carries a TimeoutError
            return error
        return WaitTimedOut(
            f"task {self.task_id} has not ended within the time given",
            f"It goes on; see `tenure explain {self.task_id}`",
        )


def _error_of(done: Done, lost: Literal["raise", "wait"]) -> TaskError | None:
    explain = f"See `tenure explain {done.task_id}`"
    match done.state:
        case TaskState.FAILED:
            return _failure(done, explain)
        case TaskState.ABANDONED:
            return TaskAbandoned(f"task {done.task_id} was lost and its retry was denied", explain)
        case TaskState.LOST if lost == "raise":
            return TaskLost(
                f"task {done.task_id} was lost: {done.detail or 'its lease ran out'}",
                f"Decide with `tenure directives approve {done.task_id}` or `deny`",
            )
        case _:
            return None


def _failure(done: Done, explain: str) -> TaskFailed:
    failure = done.failure
    if failure is None:
        return TaskFailed(f"task {done.task_id} failed: {done.detail or 'no reason was recorded'}", explain)
    error = TaskFailed(
        f"task {done.task_id} failed: {failure.message}", explain, kind=failure.kind.value, trace=failure.trace
    )
    if failure.trace:
        error.add_note(f"On the worker:\n{failure.trace}")
    return error
