"""Waiting for a condition instead of for time."""

from collections.abc import Callable

from tenure.clock import SystemClock

_STEP_MS = 5


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
