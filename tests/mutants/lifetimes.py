"""Mutants of what is held against the time that a worker still has."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import mutant

_LIFETIME: Final = "workers/lifetime.py"

MUTANTS: Final = (
    mutant(
        "outlasting_task_offered",
        "no task is given to a worker that it may outlast",
        "coordinator/fleet.py",
        "timeout_ms <= self.remaining_ms:\n",
        "self.remaining_ms > 0:\n",
    ),
    mutant(
        "remaining_time_frozen",
        "each heartbeat says anew how long a worker still has",
        "coordinator/heartbeats.py",
        "    worker.remaining_ms = beat.remaining_ms\n",
        "",
    ),
    mutant(
        "outlasting_task_started",
        "a worker gives back unstarted what may outlast it",
        _LIFETIME,
        "or now_ms + timeout_ms <= self.ends_ms",
        "or now_ms <= self.ends_ms",
    ),
    mutant(
        "no_farewell",
        "what still runs is ended before the wall, with time to tell it",
        _LIFETIME,
        "ends_ms=wall_ms - farewell_ms",
        "ends_ms=wall_ms",
    ),
    mutant(
        "no_notice",
        "a worker that is about to end takes nothing more",
        _LIFETIME,
        "remaining_ms <= self._lifetime.notice_ms",
        "remaining_ms < 0",
    ),
    mutant(
        "busy_is_idle",
        "a worker that has something in hand is not idle",
        _LIFETIME,
        "if in_hand or deeds != self._deeds",
        "if deeds != self._deeds",
    ),
    mutant(
        "endless_drain",
        "what runs when a worker is asked to end has only so long",
        _LIFETIME,
        "now_ms - self._asked_ms >= drain_ms",
        "now_ms < 0",
    ),
)
