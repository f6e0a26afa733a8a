"""A `concurrent.futures.Executor` over a fleet, for code that takes an executor."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar, final

from tenure.client.client import Client
from tenure.client.handle import Handle
from tenure.client.waiting import wait as wait_for
from tenure.clock import Clock, SystemClock
from tenure.errors import UsageError

P = ParamSpec("P")
T = TypeVar("T")


@final
class FleetExecutor(concurrent.futures.Executor):
    """Submits calls through a client, which stays the caller's to close.

    Functions must be importable by workers, arguments and results must have a JSON form; initializers do not exist.

    Args:
        client: the fleet.
        clock: what the timeout of `map` is judged by; None: the host's.
    """

    def __init__(self, client: Client, *, clock: Clock | None = None) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._open: set[concurrent.futures.Future[Any]] = set()
        self._is_shut_down = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Handle[T]:
        """Submit one call; see `Client.submit`."""
        self._refuse_after_shutdown()
        handle = self._client.submit(fn, *args, **kwargs)
        self._remember(handle)
        return handle

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,  # noqa: ARG002 - the interface's
    ) -> Iterator[T]:
        """Submit all calls at once and give their values in order.

        Args:
            fn: the function.
            iterables: as for the builtin `map`.
            timeout: the most seconds until the last value; None: no limit.
            chunksize: ignored; requests are batched anyway.

        Raises:
            WaitTimedOut: a value was not there in time (raised by the iterator); the tasks go on.
        """
        self._refuse_after_shutdown()
        handles = self._client.map(fn, *iterables)
        for handle in handles:
            self._remember(handle)
        return self._values(handles, None if timeout is None else self._clock.elapsed_ms() + int(timeout * 1000))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - the interface's
        """Take nothing more; wait for what was submitted here, unless told not to.

        Args:
            wait: whether to wait until all tasks have ended, well or badly.
            cancel_futures: whether to ask the fleet to cancel what has not ended.
        """
        self._is_shut_down = True
        handles = [future for future in list(self._open) if isinstance(future, Handle)]
        if cancel_futures:
            self._client.cancel(handles)
        if wait:
            wait_for(handles)

    def _refuse_after_shutdown(self) -> None:
        if self._is_shut_down:
            raise UsageError("the executor has been shut down", "Make a new one over the same client")

    def _remember(self, handle: Handle[T]) -> None:
        self._open.add(handle)
        handle.add_done_callback(self._forget)

    def _forget(self, future: concurrent.futures.Future[Any]) -> None:
        self._open.discard(future)

    def _values(self, handles: Iterable[Handle[T]], deadline_ms: int | None) -> Iterator[T]:
        for handle in handles:
            yield handle.result(None if deadline_ms is None else max(0, deadline_ms - self._clock.elapsed_ms()) / 1000)
