"""The handles whose tasks are not over yet, by task id."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import Any, final

from tenure.client.handle import Handle
from tenure.errors import TenureError
from tenure.protocol.client_messages import Done


@final
class Tracker:
    """Where ends of tasks find their handles. Safe to share between threads; handles are settled outside the lock."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._handles: dict[str, list[Handle[Any]]] = {}

    def add(self, handles: Iterable[Handle[Any]]) -> None:
        """Expect the ends of these handles' tasks. One task may have several handles."""
        with self._lock:
            for handle in handles:
                self._handles.setdefault(handle.task_id, []).append(handle)

    def settle(self, ends: Iterable[Done]) -> int:
        """Pass on what is known about tasks' ends; answers how many handles have ended.

        Ends of tasks without a handle are nobody's business.
        """
        ended = 0
        for done in ends:
            with self._lock:
                handles = self._handles.pop(done.task_id, [])
            unsettled = [handle for handle in handles if not handle.settle(done)]
            if unsettled:
                self.add(unsettled)
            ended += len(handles) - len(unsettled)
        return ended

    def fail(self, task_ids: Iterable[str], error: TenureError) -> None:
        """End these tasks' handles with `error`."""
        for task_id in task_ids:
            with self._lock:
                handles = self._handles.pop(task_id, [])
            for handle in handles:
                if not handle.done():
                    handle.set_exception(error)

    def outstanding(self) -> list[str]:
        """The ids of all tasks that are waited for, oldest first."""
        with self._lock:
            return list(self._handles)

    def __bool__(self) -> bool:
        return bool(self._handles)
