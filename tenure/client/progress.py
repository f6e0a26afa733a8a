"""How far a running task is, as it has told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, final

from tenure.protocol.metrics import read_metrics


@final
@dataclass(frozen=True, slots=True)
class Progress:
    """What a running task has told last; `cursor` grows with every message of an attempt."""

    fraction: float
    """From 0.0 to 1.0."""
    message: str
    metrics: Mapping[str, Any]
    """Whatever numbers and texts the task tells, by name."""
    attempt: int
    cursor: int


def progress_of(row: Mapping[str, Any]) -> Progress | None:
    """The progress in a task's row; None when the task is not running, or has told nothing."""
    if row.get("progress") is None:
        return None
    return Progress(
        fraction=float(row["progress"]),
        message=str(row.get("message") or ""),
        metrics=MappingProxyType(metrics_of(row)),
        attempt=int(row.get("attempt") or 0),
        cursor=int(row.get("cursor") or 0),
    )


def metrics_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics in a task's row; a worker may have sent anything, so what is no object counts as none."""
    try:
        return read_metrics(row.get("metrics") or "")
    except ValueError:
        return {}
