"""How a part of a fleet ends: on a signal, or with the process that started it.

Parts that `tenure up` starts must not outlive it, however it ends.

Each of them holds the reading end of a pipe whose only writing end is in the owner. The owner never writes: when the
pipe ends, the owner is gone, even by SIGKILL.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from tenure.clock import Clock

_PATIENCE_MS: Final = 10_000

owner_option: Final = click.option(
    "--owner-pipe", type=int, hidden=True, help="File descriptor that ends with the owner."
)


def end_on_signal(stop: threading.Event) -> None:
    """Let Ctrl-C and SIGTERM set `stop`."""

    def ask_to_stop(_: int, __: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask_to_stop)


def log_to_stderr() -> None:
    """Show what a part logs, with its time."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")


def end_with_owner(pipe: int | None, end: Callable[[], None], clock: Clock) -> None:
    """Call `end` once the owner is gone, and make sure of it when that is not enough. Without a pipe: no owner."""
    if pipe is None:
        return
    # Grandchildren hold only what they need, and must not inherit it.
    os.set_inheritable(pipe, False)  # noqa: FBT003
    threading.Thread(target=_watch, args=(pipe, end, clock), name="owner", daemon=True).start()


def _watch(pipe: int, end: Callable[[], None], clock: Clock) -> None:
    while os.read(pipe, 1):
        pass
    end()
    clock.sleep_ms(_PATIENCE_MS)
    os.kill(os.getpid(), signal.SIGKILL)
