"""Tenure: a worker fleet for work you cannot afford to run twice.

Importing this package costs next to nothing, because modules that define tasks and the `tenure` command import it:
everything is loaded when it is first named, what needs more than the standard library included.
"""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType

TYPE_CHECKING = False  # as type checkers know it, without loading all of `typing`
if TYPE_CHECKING:
    from typing import Final

    from tenure.broker.base import LogChunk
    from tenure.client.client import Client
    from tenure.client.executor import FleetExecutor
    from tenure.client.handle import Handle
    from tenure.client.options import ClientOptions
    from tenure.client.progress import Progress
    from tenure.client.waiting import as_completed, wait
    from tenure.errors import (
        InvalidArguments,
        TaskAbandoned,
        TaskCancelled,
        TaskError,
        TaskFailed,
        TaskLost,
        TenureError,
        UsageError,
        WaitTimedOut,
    )
    from tenure.handlers.context import current
    from tenure.handlers.task import task
    from tenure.protocol.artifact import Blob, Bundle
    from tenure.protocol.envelope import Limits, Retry

    __version__: str

__all__ = [
    "Blob",
    "Bundle",
    "Client",
    "ClientOptions",
    "FleetExecutor",
    "Handle",
    "InvalidArguments",
    "Limits",
    "LogChunk",
    "Progress",
    "Retry",
    "TaskAbandoned",
    "TaskCancelled",
    "TaskError",
    "TaskFailed",
    "TaskLost",
    "TenureError",
    "UsageError",
    "WaitTimedOut",
    "__version__",
    "as_completed",
    "current",
    "task",
    "wait",
]

_LOADED_WHEN_NAMED: Final = MappingProxyType(
    {
        "Blob": "tenure.protocol.artifact",
        "Bundle": "tenure.protocol.artifact",
        "Client": "tenure.client.client",
        "ClientOptions": "tenure.client.options",
        "FleetExecutor": "tenure.client.executor",
        "Handle": "tenure.client.handle",
        "InvalidArguments": "tenure.errors",
        "Limits": "tenure.protocol.envelope",
        "LogChunk": "tenure.broker.base",
        "Progress": "tenure.client.progress",
        "Retry": "tenure.protocol.envelope",
        "TaskAbandoned": "tenure.errors",
        "TaskCancelled": "tenure.errors",
        "TaskError": "tenure.errors",
        "TaskFailed": "tenure.errors",
        "TaskLost": "tenure.errors",
        "TenureError": "tenure.errors",
        "UsageError": "tenure.errors",
        "WaitTimedOut": "tenure.errors",
        "as_completed": "tenure.client.waiting",
        "current": "tenure.handlers.context",
        "task": "tenure.handlers.task",
        "wait": "tenure.client.waiting",
    }
)


def __getattr__(name: str) -> object:
    """Load one of the names (PEP 562)."""
    if name == "__version__":
        return import_module("tenure.version").VERSION
    if name == "errors":  # `except tenure.errors.X` without another import
        return import_module("tenure.errors")
    module = _LOADED_WHEN_NAMED.get(name)
    if module is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
