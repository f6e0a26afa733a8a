"""Tenure: a worker fleet for work you cannot afford to run twice.

Importing this package is cheap, because modules that define tasks import it: what needs more than the standard library
is loaded when it is first named.
"""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

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
from tenure.version import VERSION

if TYPE_CHECKING:
    from tenure.broker.base import LogChunk
    from tenure.client.client import Client
    from tenure.client.executor import FleetExecutor
    from tenure.client.handle import Handle
    from tenure.client.options import ClientOptions
    from tenure.client.progress import Progress
    from tenure.client.waiting import as_completed, wait
    from tenure.protocol.artifact import Blob, Bundle
    from tenure.protocol.envelope import Limits, Retry

__version__: Final = VERSION

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
        "LogChunk": "tenure.broker.base",
        "Progress": "tenure.client.progress",
        "Limits": "tenure.protocol.envelope",
        "Retry": "tenure.protocol.envelope",
        "as_completed": "tenure.client.waiting",
        "wait": "tenure.client.waiting",
    }
)


def __getattr__(name: str) -> object:
    """Load one of the names that are not loaded at once (PEP 562)."""
    module = _LOADED_WHEN_NAMED.get(name)
    if module is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
