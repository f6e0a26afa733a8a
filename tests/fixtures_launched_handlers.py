"""Handlers for tasks that a launcher's executors run: what they see, say and leave."""

from __future__ import annotations

import os
import time
from pathlib import Path

import tenure

_STEP_S = 0.01


def fail() -> None:
    """End badly."""
    raise ValueError("no good")


def environment() -> dict[str, str]:
    """What a task finds in its environment."""
    return dict(os.environ)


def tell(gate: str) -> str:
    """Say how far it is, and wait until somebody lets it go on."""
    tenure.current().progress(0.25, "a quarter", rows=7)
    while not Path(gate).exists():
        time.sleep(_STEP_S)
    return gate
