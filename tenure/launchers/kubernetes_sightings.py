"""What the objects of a cluster say of an executor: from a Job and its pods to a sighting. Asks nobody.

Only a container that its node reports as terminated proves that the executor's processes are gone. A phase is no proof:
the cluster also sets it for pods of nodes that it has lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

from tenure.launchers.base import Phase, Sighting
from tenure.launchers.kubernetes_objects import part, parts, text
from tenure.launchers.kubernetes_pod import CONTAINER
from tenure.protocol.worker_messages import Cause

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.launchers.kubernetes_objects import Object

_NEVER_PULLED: Final = frozenset({"InvalidImageName", "ErrImageNeverPull"})
_NOT_PULLED: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed"}
)
_NOT_MADE: Final = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_DISRUPTIONS: Final = {
    "PreemptionByScheduler": Cause.PREEMPTED,
    "DeletionByTaintManager": Cause.NODE_GONE,
    "DeletionByPodGC": Cause.NODE_GONE,
    "EvictionByEvictionAPI": Cause.EVICTED,
    "TerminationByKubelet": Cause.EVICTED,
}
_POD_REASONS: Final = {
    "Evicted": Cause.EVICTED,
    "Preempted": Cause.PREEMPTED,
    "Preempting": Cause.PREEMPTED,
    "NodeLost": Cause.NODE_GONE,
    "NodeShutdown": Cause.EVICTED,
    "Shutdown": Cause.EVICTED,
    "Terminated": Cause.EVICTED,
    "DeadlineExceeded": Cause.DEADLINE_EXCEEDED,
    "NodeAffinity": Cause.LAUNCH_REFUSED,
    "UnexpectedAdmissionError": Cause.LAUNCH_REFUSED,
}
_SAYS_LITTLE: Final = frozenset({None, Cause.EXECUTOR_DIED, Cause.EXECUTOR_REMOVED})
"""What is told of the end of a pod of which nothing more can be seen."""
_NEVER_ADMITTED: Final = "OutOf"
"""What begins the reason of a pod that its node had no room for after all."""

_ENDED_PHASES: Final = frozenset({"Succeeded", "Failed"})
_LOST_TRACK: Final = "ContainerStatusUnknown"
_MOST_CHARACTERS: Final = 500


@final
@dataclass(frozen=True, slots=True)
class Past:
    """What the launcher remembers of a launch: whether a pod was seen, and whether one takes too long to terminate.

    `cause` is why the pod is to go, as far as was seen while it still ran: of what was deleted nothing is left to see.
    """

    had_pod: bool = False
    overdue: bool = False
    cause: Cause | None = None


def sighting_of(job: Object | None, pods: Sequence[Object], past: Past) -> Sighting:
    """What is known of the executor. `job` is None when the cluster has none of that name."""
    sighting = _seen_now(job, pods, past)
    if past.cause and sighting.phase in {Phase.ENDED, Phase.MISSING} and sighting.cause in _SAYS_LITTLE:
        return replace(sighting, cause=past.cause)
    return sighting


def _seen_now(job: Object | None, pods: Sequence[Object], past: Past) -> Sighting:
    seen = [_of_pod(pod, past) for pod in pods]
    if alive := [one for one in seen if one.phase in {Phase.RUNNING, Phase.STARTING}]:
        return next((one for one in alive if one.phase is Phase.RUNNING), alive[0])
    if job is None or _is_leaving(job):
        return _of_removed(seen)
    if _condition(job, "Suspended") and not seen:
        return _of_suspended(past)
    if not seen:
        return _without_pod(job, past)
    known = next((one for one in seen if one.cause is not None), seen[0])
    cause = _job_cause(job) or known.cause
    if _condition(job, "Suspended") and cause in {None, Cause.EXECUTOR_DIED}:
        cause = Cause.PREEMPTED
    return Sighting(Phase.ENDED, cause, known.detail, all(one.proved for one in seen))


def is_terminating(pods: Sequence[Object]) -> bool:
    """Whether a pod was told to go and its node has not reported its end."""
    return any(_is_leaving(pod) and not _is_over(pod) for pod in pods)


def _of_removed(seen: Sequence[Sighting]) -> Sighting:
    if not seen:
        return Sighting(Phase.MISSING, Cause.EXECUTOR_REMOVED, "its Job is not there, or is being removed")
    known = next((one for one in seen if one.cause not in {None, Cause.EXECUTOR_DIED}), None)
    cause = known.cause if known else Cause.EXECUTOR_REMOVED
    return Sighting(Phase.ENDED, cause, (known or seen[0]).detail, all(one.proved for one in seen))


def _of_suspended(past: Past) -> Sighting:
    if past.had_pod:
        return Sighting(Phase.ENDED, Cause.PREEMPTED, "its Job was suspended, and its pod taken away")
    return Sighting(Phase.STARTING, Cause.UNSCHEDULABLE, "its Job is suspended, as by a queue that has no room for it")


def _without_pod(job: Object, past: Past) -> Sighting:
    if _condition(job, "Complete"):
        return Sighting(Phase.ENDED, None, "its Job is complete")
    for kind in ("Failed", "FailureTarget"):
        if failed := _condition(job, kind):
            why = text(failed, "message") or text(failed, "reason")
            # The pod that was disrupted is gone already, but the policy has said what it was failed for.
            lost = (past.cause or Cause.EVICTED) if "DisruptionTarget" in why else Cause.EXECUTOR_REMOVED
            cause = _job_cause(job) or lost
            return Sighting(Phase.ENDED, cause, _short("its Job has failed", why))
    return Sighting(Phase.STARTING, None, "its Job has no pod yet")


def _of_pod(pod: Object, past: Past) -> Sighting:
    state = _state(pod)
    if "terminated" in state:
        return _of_terminated(pod, part(state, "terminated"))
    cause = _pod_cause(pod)
    described = _described(pod)
    if _is_over(pod):
        return Sighting(Phase.ENDED, cause or Cause.EXECUTOR_DIED, described)
    if past.overdue:
        return Sighting(Phase.ENDED, Cause.NODE_GONE, _short(described, "its node does not report its end"))
    if "running" in state:
        return Sighting(Phase.RUNNING, cause, described)
    return _of_waiting(pod, part(state, "waiting"), described)


def _of_terminated(pod: Object, ended: Object) -> Sighting:
    reason, code = text(ended, "reason"), ended.get("exitCode")
    detail = _short(_described(pod), f"ended with exit code {code}", reason)
    # The node restarted, or forgot the container: nobody has seen it end.
    proved = reason != _LOST_TRACK
    if reason == "OOMKilled":
        return Sighting(Phase.ENDED, Cause.OOM_KILLED, detail, proved)
    cause = _pod_cause(pod)
    if cause is Cause.NODE_GONE and proved:
        cause = Cause.EVICTED
    if cause is None and code != 0:
        cause = Cause.EXECUTOR_DIED
    return Sighting(Phase.ENDED, cause, detail, proved)


def _of_waiting(pod: Object, waiting: Object, described: str) -> Sighting:
    reason = text(waiting, "reason")
    detail = _short(described, reason, text(waiting, "message"))
    if reason in _NEVER_PULLED:
        return Sighting(Phase.ENDED, Cause.IMAGE_UNAVAILABLE, detail)
    if reason in _NOT_PULLED:
        return Sighting(Phase.STARTING, Cause.IMAGE_UNAVAILABLE, detail)
    if reason in _NOT_MADE:
        return Sighting(Phase.STARTING, Cause.LAUNCH_REFUSED, detail)
    scheduled = _condition_named(pod, "PodScheduled")
    if text(scheduled, "status") == "False":
        why = text(scheduled, "message") or text(scheduled, "reason")
        return Sighting(Phase.STARTING, Cause.UNSCHEDULABLE, _short(described, "no node takes it", why))
    return Sighting(Phase.STARTING, None, detail)


def _pod_cause(pod: Object) -> Cause | None:
    if disrupted := _condition(pod, "DisruptionTarget"):
        return _DISRUPTIONS.get(text(disrupted, "reason"), Cause.EVICTED)
    reason = text(part(pod, "status"), "reason")
    if reason.startswith(_NEVER_ADMITTED):
        return Cause.LAUNCH_REFUSED
    return _POD_REASONS.get(reason)


def _job_cause(job: Object) -> Cause | None:
    failed = _condition(job, "Failed") or _condition(job, "FailureTarget")
    return Cause.DEADLINE_EXCEEDED if text(failed, "reason") == "DeadlineExceeded" else None


def _is_leaving(item: Object) -> bool:
    return bool(text(part(item, "metadata"), "deletionTimestamp"))


def _is_over(pod: Object) -> bool:
    return text(part(pod, "status"), "phase") in _ENDED_PHASES or "terminated" in _state(pod)


def _state(pod: Object) -> Object:
    """Of the executor's own container: what a cluster puts beside it may run on, or end earlier."""
    for status in parts(part(pod, "status"), "containerStatuses"):
        if text(status, "name") == CONTAINER:
            state = part(status, "state")
            return {name: part(state, name) for name, detail in state.items() if detail is not None}
    return {}


def _condition_named(item: Object, kind: str) -> Object:
    for condition in parts(part(item, "status"), "conditions"):
        if text(condition, "type") == kind:
            return condition
    return {}


def _condition(item: Object, kind: str) -> Object:
    """The condition of that type where it holds; empty where it does not."""
    found = _condition_named(item, kind)
    return found if text(found, "status") == "True" else {}


def _described(pod: Object) -> str:
    node = text(part(pod, "spec"), "nodeName")
    name = f"pod {text(part(pod, 'metadata'), 'name')}"
    says = _condition(pod, "DisruptionTarget") or part(pod, "status")
    return _short(f"{name} on node {node}" if node else name, text(says, "message"))


def _short(begin: str, *said: str) -> str:
    return ": ".join(word for word in (begin, *said) if word)[:_MOST_CHARACTERS]
