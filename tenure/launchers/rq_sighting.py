"""What RQ's record of a job says about its executor, as a sighting.

A record is proof only where the RQ worker has waited for its work-horse, or the job itself for its executor: both end
with the process that they belong to. Everything else in a record is hearsay.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Final

from tenure.launchers.base import Phase, Sighting
from tenure.protocol.worker_messages import Cause

_PHASES: Final = MappingProxyType(
    {
        "created": Phase.STARTING,
        "queued": Phase.STARTING,
        "deferred": Phase.STARTING,
        "scheduled": Phase.STARTING,
        "rate_limited": Phase.STARTING,
        "ready_to_enqueue": Phase.STARTING,
        "started": Phase.RUNNING,
    }
)

_SIGNS: Final = (
    # What RQ's worker, its registry and our own function write; the first sign that the text holds counts.
    ("tenure.errors.LaunchRefused", Cause.LAUNCH_REFUSED, True),
    ("tenure.errors.LaunchError", Cause.EXECUTOR_DIED, True),
    # Its work-horse could not read what to call.
    ("DeserializationError", Cause.LAUNCH_REFUSED, True),
    ("waitpid returned", Cause.EXECUTOR_DIED, True),
    ("AbandonedJobError", Cause.EXECUTOR_DIED, False),
    ("JobTimeoutException", Cause.DEADLINE_EXCEEDED, False),
)
_HINTS: Final = MappingProxyType(
    {"DeserializationError": "the RQ worker cannot read its jobs: start RQ workers with --serializer json"}
)
_OWN_CLASS: Final = re.compile(r"tenure\.errors\.\w+: ")
_MOST_TEXT: Final = 500


def sighting_of(status: str, failure: str, worker: str) -> Sighting:
    """What a job in that status says. `failure` is the text that RQ keeps of a failed one, `worker` who has run it."""
    if phase := _PHASES.get(status):
        return Sighting(phase, detail=f"RQ says {status}" + (f", at its worker {worker}" if worker else ""))
    match status:
        case "finished":
            return Sighting(Phase.ENDED, detail="RQ says finished", proved=True)
        case "stopped":
            return Sighting(Phase.ENDED, Cause.EXECUTOR_REMOVED, "stopped by a command of RQ", proved=True)
        case "canceled":
            # It may have been taken out of the queue, or marked while a work-horse had it already.
            return Sighting(Phase.ENDED, Cause.EXECUTOR_REMOVED, "cancelled at RQ")
        case "failed":
            return _failed(failure)
        case _:
            return Sighting(Phase.UNKNOWN, detail=f"RQ says {status[:80]!r}, which is not known here")


def _failed(failure: str) -> Sighting:
    lines = failure.strip().splitlines()
    detail = _OWN_CLASS.sub("", lines[-1] if lines else "RQ says failed, and nothing else", count=1)[:_MOST_TEXT]
    for sign, cause, proved in _SIGNS:
        if sign in failure:
            return Sighting(Phase.ENDED, cause, _HINTS.get(sign, detail), proved=proved)
    return Sighting(Phase.ENDED, Cause.EXECUTOR_DIED, detail)
