"""What Ray says of an executor's actor, as a sighting.

Ray's reasons come as classes of errors and, for an actor that has died, as text. The end is proved where the raylet
that owned the Ray worker reports its exit: the executor ends with it. It is not proved where only the head has decided,
as for a node that went silent.
"""

from __future__ import annotations

import re
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

_MEANINGS: Final = MappingProxyType(
    {
        Cause.EXECUTOR_DIED: "the Ray worker of its actor died",
        Cause.EXECUTOR_REMOVED: "its actor was removed",
        Cause.LAUNCH_REFUSED: "it could not be started there",
        Cause.NODE_GONE: "its node is gone",
        Cause.OOM_KILLED: "Ray's memory monitor killed it",
        Cause.UNSCHEDULABLE: "Ray finds no place for it",
    }
)
_PREAMBLE: Final = re.compile(r"\s+\w+: |The actor died unexpectedly before finishing this task|\s*$")
"""How the lines begin that stand before Ray's reason: what the actor was called, and where it was."""
_EXIT: Final = re.compile(r".*?Worker exit type: (\w+) Worker exit detail: ")
_BESIDE: Final = re.compile(
    r"\s*(Some common causes include|There are some potential root causes|Placement group id:).*"
)
"""What follows the reason: Ray's guesses at what is behind it, and its own ids."""
_RAISED: Final = "raised in its creation task"
_OWN_CLASS: Final = re.compile(r"tenure\.errors\.\w+: ")
_MOST_TEXT: Final = 300


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
    if known := _KINDS.get(kind):
        return _ended(known[0], text, proved=known[1])
    for sign, cause, proved in _SIGNS:
        if sign in text:
            return _ended(cause, text, proved=proved)
    if kind in {"ActorDiedError", "RayActorError"}:
        return _ended(Cause.EXECUTOR_DIED, text, proved=False)
    # ActorUnavailableError and whatever else says nothing about the actor.
    return Sighting(Phase.UNKNOWN, detail=_cut(f"Ray does not know how it is: {_reason(text) or kind}"))


def _ended(cause: Cause, text: str, *, proved: bool) -> Sighting:
    reason = _last_line(text) if _RAISED in text else _reason(text)
    detail = f"{_MEANINGS[cause]}: {reason}" if reason else _MEANINGS[cause]
    return Sighting(Phase.ENDED, cause, _cut(detail), proved=proved)


def _reason(text: str) -> str:
    """Ray's reason in its own words."""
    line = next((each for each in text.splitlines() if not _PREAMBLE.match(each)), "")
    return _BESIDE.sub("", _EXIT.sub(r"\1: ", line)).strip().rstrip(".")


def _last_line(text: str) -> str:
    """What was raised: it stands below the traceback."""
    return _OWN_CLASS.sub("", (text.strip().splitlines() or [""])[-1]).strip()


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 2].rpartition(" ")[0] + " …"
