"""Waiting for several handles."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar, cast

from tenure.client.handle import Handle
from tenure.errors import WaitTimedOut

T = TypeVar("T")


class Waited(NamedTuple, Generic[T]):
    """What a wait found: handles that are over and handles that are not, each in the order given."""

    done: list[Handle[T]]
    pending: list[Handle[T]]


def as_completed(handles: Iterable[Handle[T]], timeout: float | None = None) -> Iterator[Handle[T]]:
    """Give each handle as its task ends, well or badly.

    Args:
        handles: the handles; one that is given twice comes once.
        timeout: the most seconds that all of it may take; None: no limit.

    Raises:
        WaitTimedOut: some have not ended in time; their tasks go on.
    """
    given = list(handles)
    try:
        for future in concurrent.futures.as_completed(given, timeout):
            yield cast("Handle[T]", future)
    except TimeoutError:
        raise _timed_out(given) from None


def wait(handles: Iterable[Handle[T]], timeout: float | None = None) -> Waited[T]:
    """Wait until all have ended, or for `timeout` seconds; running out of time is no error here."""
    given = list(dict.fromkeys(handles))
    concurrent.futures.wait(given, timeout)
    # Looked at once each: a task may end while the two lists are made.
    over = [handle.done() for handle in given]
    return Waited(
        [handle for handle, is_over in zip(given, over, strict=True) if is_over],
        [handle for handle, is_over in zip(given, over, strict=True) if not is_over],
    )


def _timed_out(handles: Iterable[Handle[Any]]) -> WaitTimedOut:
    late = [handle.task_id for handle in handles if not handle.done()]
    return WaitTimedOut(f"{len(late)} tasks have not ended within the time given", "They go on; wait again or cancel")
