"""What is made of what a cluster says of a Job and its pods."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.launchers.base import Phase
from tenure.launchers.kubernetes_objects import Object
from tenure.launchers.kubernetes_sightings import Past, is_terminating, sighting_of
from tenure.protocol.worker_messages import Cause

NEVER = Past()
LEAVING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def job(*conditions: tuple[str, str], **meta: str) -> Object:
    listed = [{"type": kind, "status": "True", "reason": reason} for kind, reason in conditions]
    return {"metadata": {"name": "j", "uid": "u", **meta}, "status": {"conditions": listed}}


def pod(phase: str = "Running", meta: dict[str, str] | None = None, **status: Any) -> Object:
    state: Object = {"running": {}} if phase == "Running" else {}
    known: Object = {"phase": phase, "containerStatuses": [{"name": "executor", "state": state}], **status}
    return {"metadata": {"name": "p", **(meta or {})}, "spec": {"nodeName": "n1"}, "status": known}


def ended(code: int = 1, reason: str = "Error", phase: str = "Failed", **status: Any) -> Object:
    terminated = {"exitCode": code, "reason": reason}
    return pod(phase, None, containerStatuses=[{"name": "executor", "state": {"terminated": terminated}}], **status)


def waiting(reason: str) -> Object:
    state = {"waiting": {"reason": reason, "message": "back-off"}}
    return pod("Pending", None, containerStatuses=[{"name": "executor", "state": state}])


def disrupted(reason: str) -> list[Object]:
    return [{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "why"}]


ENDS: dict[str, tuple[Object, Cause | None, bool]] = {
    "well": (ended(0, "Completed", "Succeeded"), None, True),
    "badly": (ended(3), Cause.EXECUTOR_DIED, True),
    "killed": (ended(137), Cause.EXECUTOR_DIED, True),
    "out of memory": (ended(137, "OOMKilled"), Cause.OOM_KILLED, True),
    "evicted": (ended(137, reason="Error", conditions=disrupted("TerminationByKubelet")), Cause.EVICTED, True),
    "evicted, the old way": (pod("Failed", None, reason="Evicted", containerStatuses=[]), Cause.EVICTED, False),
    "evicted by the API": (ended(143, conditions=disrupted("EvictionByEvictionAPI")), Cause.EVICTED, True),
    "preempted": (ended(143, conditions=disrupted("PreemptionByScheduler")), Cause.PREEMPTED, True),
    "its node is gone": (pod("Failed", None, conditions=disrupted("DeletionByPodGC")), Cause.NODE_GONE, False),
    "its node came back": (ended(143, conditions=disrupted("DeletionByTaintManager")), Cause.EVICTED, True),
    "nobody saw it end": (ended(137, "ContainerStatusUnknown"), Cause.EXECUTOR_DIED, False),
    "never admitted": (pod("Failed", None, reason="OutOfcpu", containerStatuses=[]), Cause.LAUNCH_REFUSED, False),
    "failed for no reason": (pod("Failed", None, containerStatuses=[]), Cause.EXECUTOR_DIED, False),
    "an image of no name": (waiting("InvalidImageName"), Cause.IMAGE_UNAVAILABLE, False),
}


@pytest.mark.parametrize(("seen", "cause", "proved"), ENDS.values(), ids=ENDS.keys())
def test_an_end_has_a_cause_and_is_proved_by_a_terminated_container_alone(
    seen: Object,
    cause: Cause | None,
    proved: bool,  # noqa: FBT001 - a column of the table
) -> None:
    sighting = sighting_of(job(), [seen], NEVER)
    assert (sighting.phase, sighting.cause, sighting.proved) == (Phase.ENDED, cause, proved)


STARTS: dict[str, tuple[list[Object], Cause | None]] = {
    "no pod yet": ([], None),
    "no status yet": ([{"metadata": {"name": "p"}}], None),
    "no room": (
        [pod("Pending", None, conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}])],
        Cause.UNSCHEDULABLE,
    ),
    "pulling": ([waiting("ContainerCreating")], None),
    "not pulled": ([waiting("ErrImagePull")], Cause.IMAGE_UNAVAILABLE),
    "not pulled again": ([waiting("ImagePullBackOff")], Cause.IMAGE_UNAVAILABLE),
    "no secret": ([waiting("CreateContainerConfigError")], Cause.LAUNCH_REFUSED),
}


@pytest.mark.parametrize(("pods", "cause"), STARTS.values(), ids=STARTS.keys())
def test_what_has_not_started_says_why(pods: list[Object], cause: Cause | None) -> None:
    sighting = sighting_of(job(), pods, NEVER)
    assert (sighting.phase, sighting.cause, sighting.proved) == (Phase.STARTING, cause, False)


def test_it_runs_as_long_as_one_of_its_pods_does() -> None:
    assert sighting_of(job(), [ended(), pod()], NEVER).phase is Phase.RUNNING
    assert sighting_of(job(("Failed", "x")), [pod()], NEVER).phase is Phase.RUNNING
    assert sighting_of(None, [pod()], NEVER).phase is Phase.RUNNING


def test_the_end_of_two_pods_is_proved_when_both_are() -> None:
    assert sighting_of(job(), [ended(), ended(0)], NEVER).proved
    assert not sighting_of(job(), [ended(), ended(137, "ContainerStatusUnknown")], NEVER).proved


def test_a_deadline_of_the_job_is_its_cause() -> None:
    for kind in ("Failed", "FailureTarget"):
        late = job((kind, "DeadlineExceeded"))
        assert sighting_of(late, [ended(143)], NEVER).cause is Cause.DEADLINE_EXCEEDED
        assert sighting_of(late, [], NEVER).cause is Cause.DEADLINE_EXCEEDED
        assert sighting_of(late, [], NEVER).phase is Phase.ENDED


@pytest.mark.parametrize("found", [None, job(**LEAVING)], ids=["not there", "being removed"])
def test_what_somebody_has_removed_is_missing_and_not_proved_gone(found: Object | None) -> None:
    sighting = sighting_of(found, [], Past(had_pod=True))
    assert (sighting.phase, sighting.cause, sighting.proved) == (Phase.MISSING, Cause.EXECUTOR_REMOVED, False)


def test_what_was_removed_is_proved_gone_while_its_pod_can_still_be_seen() -> None:
    sighting = sighting_of(job(**LEAVING), [ended(143)], NEVER)
    assert (sighting.phase, sighting.cause, sighting.proved) == (Phase.ENDED, Cause.EXECUTOR_REMOVED, True)
    assert sighting_of(None, [ended(137, "OOMKilled")], NEVER).cause is Cause.OOM_KILLED


def test_a_job_without_pods_that_is_over_has_ended() -> None:
    assert sighting_of(job(("Complete", "")), [], NEVER).cause is None
    assert sighting_of(job(("Complete", "")), [], NEVER).phase is Phase.ENDED
    assert sighting_of(job(("Failed", "BackoffLimitExceeded")), [], NEVER).cause is Cause.EXECUTOR_REMOVED


def test_a_disrupted_pod_that_is_gone_already_is_known_by_what_its_job_says() -> None:
    failed = job(("Failed", "PodFailurePolicy"))
    failed["status"]["conditions"][0]["message"] = (
        "Pod a/b has condition DisruptionTarget matching FailJob rule at index 0"
    )
    sighting = sighting_of(failed, [], Past(had_pod=True))
    assert (sighting.phase, sighting.cause, sighting.proved) == (Phase.ENDED, Cause.EVICTED, False)


@pytest.mark.parametrize(
    ("found", "pods", "cause"),
    [
        (job(("Complete", "")), [], Cause.PREEMPTED),
        (job(("Failed", "BackoffLimitExceeded")), [], Cause.PREEMPTED),
        (None, [], Cause.PREEMPTED),
        (job(), [ended(143)], Cause.PREEMPTED),
        (job(), [ended(0)], Cause.PREEMPTED),
        (job(), [ended(137, "OOMKilled")], Cause.OOM_KILLED),
        (job(("Failed", "DeadlineExceeded")), [], Cause.DEADLINE_EXCEEDED),
        (job(), [pod()], None),
    ],
)
def test_what_was_seen_of_a_pod_while_it_ran_says_why_it_is_gone(
    found: Object | None, pods: list[Object], cause: Cause | None
) -> None:
    assert sighting_of(found, pods, Past(had_pod=True, cause=Cause.PREEMPTED)).cause is cause


def test_the_policy_of_a_job_says_less_than_its_pod_did() -> None:
    failed = job(("Failed", "PodFailurePolicy"))
    failed["status"]["conditions"][0]["message"] = "Pod a/b has condition DisruptionTarget matching FailJob rule"
    assert sighting_of(failed, [], Past(had_pod=True, cause=Cause.PREEMPTED)).cause is Cause.PREEMPTED


def test_a_queue_holds_a_job_back_before_it_has_run_and_preempts_it_afterwards() -> None:
    held = job(("Suspended", "JobSuspended"))
    assert sighting_of(held, [], NEVER).phase is Phase.STARTING
    taken = sighting_of(held, [], Past(had_pod=True))
    assert (taken.phase, taken.cause, taken.proved) == (Phase.ENDED, Cause.PREEMPTED, False)
    for code in (0, 143):
        seen = sighting_of(held, [ended(code)], Past(had_pod=True))
        assert (seen.phase, seen.cause, seen.proved) == (Phase.ENDED, Cause.PREEMPTED, True)
    assert sighting_of(held, [ended(137, "OOMKilled")], Past(had_pod=True)).cause is Cause.OOM_KILLED


def test_a_node_that_never_reports_the_end_of_a_pod_counts_as_gone_in_time() -> None:
    lost = pod("Running", LEAVING, conditions=disrupted("DeletionByTaintManager"))
    assert is_terminating([lost])
    assert sighting_of(job(), [lost], NEVER).phase is Phase.RUNNING
    late = sighting_of(job(), [lost], Past(had_pod=True, overdue=True))
    assert (late.phase, late.cause, late.proved) == (Phase.ENDED, Cause.NODE_GONE, False)
    assert not is_terminating([pod(), ended()])


def test_containers_that_the_cluster_adds_say_nothing_of_the_executor() -> None:
    mesh: Object = {"name": "mesh", "state": {"running": {}}}
    both = ended(0, "Completed")
    both["status"] = {"phase": "Running", "containerStatuses": [mesh, *both["status"]["containerStatuses"]]}
    assert sighting_of(job(), [both], NEVER).phase is Phase.ENDED
    both["status"]["containerStatuses"] = [{"name": "mesh", "state": {"terminated": {"exitCode": 0}}}]
    assert sighting_of(job(), [both], NEVER).phase is Phase.STARTING


def test_an_answer_that_makes_no_sense_is_no_end() -> None:
    odd: Object = {"metadata": "x", "status": {"conditions": [1, {"type": 2}], "containerStatuses": "none"}}
    assert sighting_of(odd, [], NEVER).phase is Phase.STARTING
    assert sighting_of(job(), [odd], NEVER).phase is Phase.STARTING


def test_details_stay_short() -> None:
    assert (
        len(sighting_of(job(), [ended(conditions=[{**disrupted("x")[0], "message": "m" * 9000}])], NEVER).detail) <= 500
    )
