"""What Ray says of an executor's actor, as a sighting.

Ray's reasons come as classes of errors and, for an actor that has died, as text. The end is proved where the raylet
that owned the Ray worker reports its exit: the executor ends with it. It is not proved where only the head has decided,
as for a node that went silent.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from tenure.launchers.base import Phase, Sighting
from tenure.launchers.on_site import ending
from tenure.protocol.worker_messages import Cause

_KINDS: Final = MappingProxyType(
    {
        "OutOfMemoryError": (Cause.OOM_KILLED, True),
        "NodeDiedError": (Cause.NODE_GONE, False),
        "ActorPlacementGroupRemoved": (Cause.EXECUTOR_REMOVED, False),
        "TaskPlacementGroupRemoved": (Cause.EXECUTOR_REMOVED, False),
        "ActorUnschedulableError": (Cause.UNSCHEDULABLE, True),
        "TaskUnschedulableError": (Cause.UNSCHEDULABLE, True),
        "RuntimeEnvSetupError": (Cause.LAUNCH_REFUSED, True),
        "WorkerCrashedError": (Cause.EXECUTOR_DIED, True),
    }
)

_SIGNS: Final = (
    # The first that Ray's text holds counts.
    ("LaunchRefused", Cause.LAUNCH_REFUSED, True),
    ("running low on memory", Cause.OOM_KILLED, True),
    ("placement group was removed", Cause.EXECUTOR_REMOVED, True),
    ("ray.kill", Cause.EXECUTOR_REMOVED, False),
    ("node has died", Cause.NODE_GONE, False),
    ("its node", Cause.NODE_GONE, False),
    ("Worker exit type:", Cause.EXECUTOR_DIED, True),
)
_MOST_TEXT: Final = 600


def sighting_of(found: dict[str, Any]) -> Sighting:
    """What an answer to `probe` says; see `RaySide.probe`."""
    match found:
        case {"seen": "answered", "code": code}:
            return _answered(code)
        case {"seen": "silent", "answered": True}:
            return Sighting(Phase.RUNNING, detail="its actor does not answer just now")
        case {"seen": "silent"}:
            return Sighting(Phase.STARTING, detail="its actor has not answered yet")
        case {"seen": "absent", "group": has_group}:
            return _absent(has_group=bool(has_group))
        case {"seen": "raised", "kind": str(kind), "text": str(text)}:
            return _raised(kind, text)
        case _:
            return Sighting(Phase.UNKNOWN, detail="an answer that is not known here")


def _answered(code: int | None) -> Sighting:
    if code is None:
        return Sighting(Phase.RUNNING)
    cause = Cause.EXECUTOR_DIED if code else None
    return Sighting(Phase.ENDED, cause, f"the executor ended with {ending(code)}", proved=True)


def _absent(*, has_group: bool) -> Sighting:
    if has_group:
        return Sighting(Phase.ENDED, Cause.EXECUTOR_DIED, "its placement group is there, and no actor in it")
    return Sighting(Phase.MISSING, detail="Ray has no actor of that name")


def _raised(kind: str, text: str) -> Sighting:
    detail = f"{kind}: {' '.join(text.split())}"
    if known := _KINDS.get(kind):
        return Sighting(Phase.ENDED, known[0], detail[:_MOST_TEXT], proved=known[1])
    for sign, cause, proved in _SIGNS:
        if sign in text:
            # The reason stands at the end of Ray's text, after what the actor was called.
            return Sighting(Phase.ENDED, cause, _around(detail, sign), proved=proved)
    if kind in {"ActorDiedError", "RayActorError"}:
        return Sighting(Phase.ENDED, Cause.EXECUTOR_DIED, detail[:_MOST_TEXT])
    # ActorUnavailableError and whatever else says nothing about the actor.
    return Sighting(Phase.UNKNOWN, detail=detail[:_MOST_TEXT])


def _around(detail: str, sign: str) -> str:
    start = max(detail.find(sign) - 200, 0)
    return ("… " if start else "") + detail[start : start + _MOST_TEXT]
