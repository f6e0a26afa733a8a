"""Waiting for a condition instead of for time."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from tenure.clock import SystemClock

_STEP_MS = 5
T = TypeVar("T")


def wait_until(
    predicate: Callable[[], object], description: str, timeout_s: float = 30.0, step_ms: int = _STEP_MS
) -> None:
    """Return once `predicate` holds; fail with the description when it does not within `timeout_s`.

    The limit is far beyond what a busy machine needs: only a test whose condition never comes true waits so long.
    `step_ms` is the pause between two looks, for looks that cost something.
    """
    clock = SystemClock()
    until_ms = clock.elapsed_ms() + int(timeout_s * 1000)
    while not predicate():
        if clock.elapsed_ms() >= until_ms:
            message = f"waited {timeout_s} s in vain until {description}"
            raise AssertionError(message)
        clock.sleep_ms(step_ms)


def in_thread(call: Callable[[], T]) -> Future[T]:
    """Begin a call that waits for something."""
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(call)
    finally:
        pool.shutdown(wait=False)
