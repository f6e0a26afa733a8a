"""Handlers that tell a secret in every way that there is, for the test that looks for it everywhere."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import tenure


def wait_for(gate: str) -> None:
    while not Path(gate).exists():
        time.sleep(0.02)


def tell(name: str, gate: str) -> dict[str, str]:
    run = tenure.current()
    value = run.secret(name)
    sys.stdout.write(f"plain-marker of a call {value}\n")
    sys.stderr.write(f"{value}\n")
    run.logger.info("logged %s", value)
    run.progress(0.5, value, told=value, **{value: 1})
    for piece in (value[:5], value[5:]):
        sys.stdout.write(piece)
        sys.stdout.flush()
    wait_for(gate)
    return {"value": value, value: f"<{value}>"}


async def tell_async(name: str) -> list[str]:
    value = tenure.current().secret(name)
    await asyncio.to_thread(sys.stdout.write, f"{value}\n")
    return [value]


def fail(name: str) -> None:
    value = tenure.current().secret(name)
    raise ValueError(f"plain-marker of a failure: {value}")


def remember(name: str) -> int:
    _KEPT.append(tenure.current().secret(name))
    return len(_KEPT)


def recall() -> str:
    """The task that is run here was given no secret; an earlier one was."""
    sys.stdout.write(f"{_KEPT}\n")
    return " ".join(_KEPT)


_KEPT: list[str] = []
