"""How lease times follow from one number, the lease's ttl. One formula each; worker and coordinator share them.

The worker renews at `t` (its own clock, read *before* the renewal is sent) and must have stopped its process tree by
`t + ttl + grace`. The coordinator replaces it only `ttl + grace + margin` after it last *saw* a renewal (its own
clock), which is later than `t`. So the two never overlap, whatever the hosts' wall clocks say. Source: the trust
window of Gray and Cheriton, "Leases" (SOSP 1989), with the two sides measured on two clocks and never compared.
"""

from __future__ import annotations

from typing import Final

MIN_LEASE_TTL_MS: Final = 1_000
DEFAULT_LEASE_TTL_MS: Final = 30_000
MAX_LEASE_TTL_MS: Final = 30 * 24 * 3_600_000


def grace_ms(ttl_ms: int) -> int:
    """From SIGTERM to SIGKILL, and the most that ending a process tree may take once the lease is over."""
    return 500 + ttl_ms // 20


def margin_ms(ttl_ms: int) -> int:
    """What the coordinator waits on top, for scheduling delays and clock rates that differ."""
    return 250 + ttl_ms // 20


def expiry_ms(ttl_ms: int) -> int:
    """How long after the last seen renewal a lease is expired by the coordinator."""
    return ttl_ms + grace_ms(ttl_ms) + margin_ms(ttl_ms)


def beat_interval_ms(ttl_ms: int) -> int:
    """How often a worker renews: five times per ttl, at least every five seconds and at most every 200 ms."""
    return max(200, min(5_000, ttl_ms // 5))


def broker_timeout_ms(ttl_ms: int) -> int:
    """How long one renewal may wait for the broker, so that two can fail within a ttl."""
    return max(200, min(5_000, ttl_ms // 4))
