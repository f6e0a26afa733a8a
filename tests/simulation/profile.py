"""What may go wrong in one history: which kinds of faults, and how often. Drawn from the seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from tests.simulation.dice import Dice

COORDINATOR: Final = ("coordinator_crash", "coordinator_pause", "stale_coordinator", "disk_full")
WORKER: Final = (
    "agent_crash",
    "agent_pause",
    "agent_stall",
    "host_suspend",
    "child_pause",
    "child_death",
    "runner_death",
    "drain",
)
NETWORK: Final = ("store_away", "partition", "lost_request", "lost_reply", "late", "duplicate", "clock_jump")
BROKER: Final = (
    "flush",
    "group_lost",
    "stream_deleted",
    "evicted_heartbeat",
    "failover",
    "split",
    "broker_restart",
    "broker_emptied",
    "broker_full",
)
PEOPLE: Final = ("copy", "twin", "liar", "client_crash", "site_revoked")
LAUNCHER: Final = (
    "executor_crash",
    "executor_drained",
    "second_executor",
    "second_end",
    "false_end",
    "unproved_end",
    "parent_crash",
    "parent_forgets",
)

KINDS: Final = (*COORDINATOR, *WORKER, *NETWORK, *BROKER, *PEOPLE, *LAUNCHER)
"""Every kind of fault, by the name that is used to switch it off."""

_SELDOM: Final = ("published",) * 3, ("publish",) * 3
"""Named so often because an aim at them often meets nothing."""
_MET_AT_FIRST: Final = ("an epoch", "ensure_streams", "state", "unsettled", *_SELDOM[0])
_MET_ALWAYS: Final = (
    "a commit",
    "pending",
    "post",
    "receive",
    "settle",
    "sites.heartbeats",
    "sites.waiting",
    *_SELDOM[1],
)
START_POINTS: Final = tuple(f"{when} {what}" for what in _MET_AT_FIRST for when in ("before", "after"))
"""Where a coordinator can be killed on its way up; see `coordinator.py`."""
WORK_POINTS: Final = tuple(f"{when} {what}" for what in _MET_ALWAYS for when in ("before", "after"))
"""Where it can be killed at any time."""

TIMED: Final = frozenset(KINDS) - {"lost_request", "lost_reply", "late", "duplicate", "liar"}
"""Kinds that strike at planned times; the others strike single messages, or are there all the time."""


@final
@dataclass(frozen=True, slots=True)
class Profile:
    """The faults of one history."""

    kinds: frozenset[str]
    per_mille: int
    """How often a message is struck by each of the message faults."""
    strikes: tuple[tuple[int, str], ...]
    """When which timed fault strikes."""
    quiet_ms: int
    """From when on nothing goes wrong any more."""

    def has(self, kind: str) -> bool:
        """Whether that may happen."""
        return kind in self.kinds


def draw_profile(dice: Dice, without: frozenset[str], only: tuple[str, ...] = ()) -> Profile:
    """One history in sixteen has no fault at all; the others have a handful of kinds, each several times.

    In some of them everything strikes within a few seconds, for what holds against one fault may not hold against two.
    """
    wanted = 0 if dice.below(16) == 0 else dice.pick((1, 2, 3, 4, 5, 6, 8))
    chosen = list(only) or [dice.pick(KINDS) for _ in range(wanted)]
    quiet_ms = dice.between(6_000, 14_000)
    worst_ms = dice.between(200, quiet_ms) if dice.chance(400) else -1
    strikes = [
        (_when(dice, worst_ms, quiet_ms), kind) for kind in chosen if kind in TIMED for _ in range(dice.pick((1, 2, 3)))
    ]
    per_mille = dice.pick((5, 20, 60))
    kinds = frozenset(chosen) - without
    kept = tuple(sorted((when, kind) for when, kind in strikes if kind not in without))
    return Profile(kinds=kinds, per_mille=per_mille, strikes=kept, quiet_ms=quiet_ms)


def _when(dice: Dice, worst_ms: int, quiet_ms: int) -> int:
    if worst_ms < 0:
        return dice.between(200, quiet_ms)
    return min(max(200, worst_ms + dice.between(-1_500, 1_500)), quiet_ms)
