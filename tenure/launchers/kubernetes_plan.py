"""What is created on a cluster for one assignment: a Job, and a Lease that shows when its worker last saw it.

Made without the cluster's library and without asking anybody. The cluster is told never to start a pod again by
itself: no retries, a failed or disrupted pod fails the Job, and no pod replaces one that still terminates. It may start
a second one all the same; the coordinator refuses that one, because its executor draws a nonce of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from tenure.launchers.kubernetes_labels import launch_annotations, launch_labels
from tenure.launchers.kubernetes_pod import CONTAINER, executor_pod
from tenure.launchers.kubernetes_premises import premises
from tenure.launchers.yaml_text import yaml_text

if TYPE_CHECKING:
    from tenure.launchers.base import ExecutorCommand, LaunchOrder
    from tenure.launchers.kubernetes_options import KubernetesOptions

LEASE_S: Final = 90
"""For how long an observer takes a Lease as fresh; says nothing of the task's own lease.

More than the time between two looks at one launch, which is a minute where a worker has thousands.
"""

_QUEUE: Final = "kueue.x-k8s.io/queue-name"


@final
@dataclass(frozen=True, slots=True)
class KubernetesPlan:
    """The manifests of one launch; `lease` is None where none is wanted."""

    name: str
    namespace: str
    job: dict[str, Any]
    lease: dict[str, Any] | None
    surroundings: tuple[dict[str, Any], ...]

    def shown(self) -> str:
        """See `Plan.shown`."""
        return yaml_text([self.job] if self.lease is None else [self.job, self.lease])

    def shown_with_premises(self) -> str:
        """The plan after everything that must be on the cluster before the first launch."""
        return f"{yaml_text(self.surroundings)}---\n{self.shown()}"


def render(order: LaunchOrder, options: KubernetesOptions, executor: ExecutorCommand) -> KubernetesPlan:
    """The manifests for this order."""
    labels = {**options.labels, **launch_labels(order.ticket)}
    annotations = {**options.annotations, **launch_annotations(order.ticket)}
    marks: dict[str, Any] = {"labels": labels, "annotations": annotations}
    meta: dict[str, Any] = {"name": order.ticket.name, "namespace": options.namespace, **marks}
    # Not on the pod: Kueue would queue that one, too.
    queue = {} if options.queue is None else {_QUEUE: options.queue}
    spec = _job_spec(order, options)
    spec["template"] = {"metadata": marks, "spec": executor_pod(order, options, executor)}
    job: dict[str, Any] = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**meta, "labels": {**labels, **queue}},
        "spec": spec,
    }
    return KubernetesPlan(
        order.ticket.name, options.namespace, job, _lease(order, meta) if options.lease else None, premises(options)
    )


def _job_spec(order: LaunchOrder, options: KubernetesOptions) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [
                {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                {
                    "action": "FailJob",
                    "onExitCodes": {"containerName": CONTAINER, "operator": "NotIn", "values": [0]},
                },
            ]
        },
    }
    if (deadline_s := _deadline_s(order, options)) is not None:
        spec["activeDeadlineSeconds"] = deadline_s
    if options.ttl_after_finished_s is not None:
        spec["ttlSecondsAfterFinished"] = options.ttl_after_finished_s
    return spec


def _deadline_s(order: LaunchOrder, options: KubernetesOptions) -> int | None:
    if options.deadline_s is not None or order.timeout_ms is None:
        return options.deadline_s
    return -(-order.timeout_ms // 1000) + options.deadline_slack_s


def _lease(order: LaunchOrder, meta: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": meta,
        "spec": {
            "holderIdentity": order.ticket.parent,
            "leaseDurationSeconds": LEASE_S,
        },
    }
