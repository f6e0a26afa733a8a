"""Time and randomness, as things that are passed in.

No other module reads a clock or draws a random number; a lint rule holds this. All durations and instants are whole
milliseconds. Two kinds of time exist and are never mixed: `now_ms` is the wall clock, for records that people read;
`elapsed_ms` only grows, goes on during a suspend of the host, and is the one that leases and timeouts are judged by.
It is comparable only within one boot of one host, so it is neither sent nor compared between hosts.
"""

from __future__ import annotations

import secrets
import time
from typing import Protocol, final


class Clock(Protocol):
    """What tells the time. `SystemClock` in production, `tenure.testing.ManualClock` in tests."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch, for records; may jump."""
        ...

    def elapsed_ms(self) -> int:
        """Milliseconds since an arbitrary start; never goes back and counts the time a host is suspended."""
        ...

    def sleep_ms(self, duration_ms: int) -> None:
        """Let `duration_ms` pass."""
        ...


class Entropy(Protocol):
    """What draws random values. `SystemEntropy` in production, `tenure.testing.SeededEntropy` in tests."""

    def token(self, size_bytes: int) -> str:
        """`size_bytes` random bytes as lower-case hexadecimal."""
        ...

    def below(self, bound: int) -> int:
        """A random whole number from 0 up to, not including, `bound`."""
        ...


_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@final
class SystemClock:
    """The host's clocks. `elapsed_ms` is CLOCK_BOOTTIME where it exists: `time.monotonic` stops during suspend."""

    def now_ms(self) -> int:
        """See `Clock.now_ms`."""
        return time.time_ns() // 1_000_000

    def elapsed_ms(self) -> int:
        """See `Clock.elapsed_ms`."""
        return time.clock_gettime_ns(_BOOTTIME) // 1_000_000

    def sleep_ms(self, duration_ms: int) -> None:
        """See `Clock.sleep_ms`."""
        time.sleep(duration_ms / 1000)


@final
class SystemEntropy:
    """The operating system's source of randomness."""

    def token(self, size_bytes: int) -> str:
        """See `Entropy.token`."""
        return secrets.token_hex(size_bytes)

    def below(self, bound: int) -> int:
        """See `Entropy.below`."""
        return secrets.randbelow(bound)


_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def sortable_id(now_ms: int, entropy: Entropy) -> str:
    """A 26-character ULID (github.com/ulid/spec): sorts by time, unique by 80 random bits."""
    value = (now_ms << 80) | int(entropy.token(10), 16)
    return "".join(_CROCKFORD[(value >> shift) & 31] for shift in range(125, -1, -5))
