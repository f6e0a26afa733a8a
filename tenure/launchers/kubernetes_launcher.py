"""The launcher `kubernetes`: one Job per assignment.

The cluster starts the executor and is asked about it; it decides nothing. What was sent and not answered is unknown,
and is looked up by its name, which is the same however often a launch is tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, final

from tenure.errors import LaunchRefused, SubstrateUnreachable, WritesDisabled
from tenure.launchers.base import Handle, Phase, Sighting
from tenure.launchers.kubernetes_cluster import open_cluster
from tenure.launchers.kubernetes_labels import DIGEST, LAUNCH
from tenure.launchers.kubernetes_objects import part, parts, text
from tenure.launchers.kubernetes_options import KubernetesOptions
from tenure.launchers.kubernetes_plan import KubernetesPlan, render
from tenure.launchers.kubernetes_sightings import Past, is_terminating, sighting_of
from tenure.launchers.options import read_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.clock import Clock
    from tenure.launchers.base import LauncherSettings, LaunchOrder
    from tenure.launchers.kubernetes_cluster import Answer, Cluster
    from tenure.launchers.kubernetes_objects import Object
    from tenure.protocol.worker_messages import Cause

_NAME: Final = "kubernetes"
_GONE: Final = 404
_TAKEN: Final = 409
_REFUSALS: Final = frozenset({400, 401, 403, 404, 405, 413, 415, 422})
_RENEWED_EVERY_MS: Final = 10_000
_SHORTEST_PAUSE_MS: Final = 250
_LONGEST_PAUSE_MS: Final = 30_000
"""A look may come as late as twice that, when the worker asks just too soon; a Lease lasts longer, see `LEASE_S`."""
_PAUSE_PER_LAUNCH_MS: Final = 150
"""Between two looks at one launch, for each launch in hand.

A look is two requests, and a third every 10 s for the Lease. So up to 200 launches make at most 20 requests in a
second, and more of them at most one for every ten, for the longest pause holds for all.
"""

_OVERDUE_MS: Final = 60_000
"""How long after its grace a pod may still be called terminating before its node counts as gone."""


@dataclass(slots=True)
class _Memory:
    """What was seen of one launch before."""

    alive: Sighting | None = None
    """The newest sighting, while it was one of something that starts or runs."""
    seen_at_ms: int = 0
    had_pod: bool = False
    cause: Cause | None = None
    """Why its pod is to go, as seen while it ran."""
    terminating_since_ms: int | None = None
    lease_at_ms: int | None = None
    lease_to_make: Object | None = None


@final
class KubernetesLauncher:
    """See `Launcher`."""

    def __init__(self, cluster: Cluster, settings: LauncherSettings, options: KubernetesOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._executor = settings.executor
        self._clock: Clock = settings.clock
        self._writes = settings.writes
        self._memories: dict[str, _Memory] = {}

    @property
    def name(self) -> str:
        """See `Launcher.name`."""
        return _NAME

    def render(self, order: LaunchOrder) -> KubernetesPlan:
        """See `Launcher.render`."""
        return render(order, self._options, self._executor)

    def launch(self, plan: KubernetesPlan) -> Handle:
        """See `Launcher.launch`. Raises `WritesDisabled` where the cluster may not be changed."""
        self._require_writes()
        handle = Handle(launcher=_NAME, name=plan.name, address=plan.namespace)
        answer = self._cluster.create_job(plan.namespace, plan.job)
        if not answer.is_done:
            answer = self._looked_up(plan, answer)
        self._show(plan, answer)
        return handle

    def probe(self, handle: Handle) -> Sighting:
        """See `Launcher.probe`. What has just been seen to start or to run is taken to do so still.

        So many launches do not keep the API server busy: each is asked about in its turn.
        """
        memory, now_ms = self._memory(handle.name), self._clock.elapsed_ms()
        if memory.alive is not None and now_ms - memory.seen_at_ms < self._pause_ms():
            return memory.alive
        sighting = self._look(handle)
        is_alive = sighting.phase in {Phase.STARTING, Phase.RUNNING}
        memory.alive, memory.seen_at_ms = (sighting if is_alive else None), now_ms
        if is_alive:
            self._renew(handle)
        return sighting

    def cancel(self, handle: Handle) -> None:
        """See `Launcher.cancel`. The Job stays until its pods are gone, so that their end can still be seen."""
        self._require_writes()
        self._memory(handle.name).alive = None
        answer = self._cluster.delete_job(self._place(handle), handle.name, waits_for_pods=True)
        if not answer.is_done and answer.status != _GONE:
            raise SubstrateUnreachable(f"the Job {handle.name} may still run: {answer.said()}", "It is tried again")

    def clear(self, handle: Handle) -> None:
        """See `Launcher.clear`."""
        self._require_writes()
        job = self._cluster.delete_job(self._place(handle), handle.name, waits_for_pods=False)
        if not job.is_done and job.status != _GONE:
            raise SubstrateUnreachable(f"the Job {handle.name} may be left on the cluster: {job.said()}")
        if self._options.lease:
            lease = self._cluster.delete_lease(self._place(handle), handle.name)
            # Where it may not be deleted, none was made.
            if not lease.is_done and lease.status not in _REFUSALS:
                raise SubstrateUnreachable(f"the Lease {handle.name} may be left on the cluster: {lease.said()}")
        self._memories.pop(handle.name, None)

    def close(self) -> None:
        """See `Launcher.close`."""
        self._cluster.close()

    def _look(self, handle: Handle) -> Sighting:
        place = self._place(handle)
        job = self._cluster.read_job(place, handle.name)
        if not job.is_done and job.status != _GONE:
            return Sighting(Phase.UNKNOWN, detail=job.said())
        pods = self._cluster.list_pods(place, f"{LAUNCH}={handle.name}")
        if not pods.is_done:
            return Sighting(Phase.UNKNOWN, detail=pods.said())
        if "items" not in pods.body or (job.is_done and not part(job.body, "metadata")):
            return Sighting(Phase.UNKNOWN, detail="what answers is no API server of Kubernetes")
        found = parts(pods.body, "items")
        sighting = sighting_of(job.body if job.is_done else None, found, self._past(handle.name, found))
        if sighting.phase is Phase.RUNNING:
            self._memory(handle.name).cause = sighting.cause
        return sighting

    def _pause_ms(self) -> int:
        return min(_LONGEST_PAUSE_MS, max(_SHORTEST_PAUSE_MS, _PAUSE_PER_LAUNCH_MS * len(self._memories)))

    def _place(self, handle: Handle) -> str:
        return handle.address or self._options.namespace

    def _require_writes(self) -> None:
        if not self._writes:
            raise WritesDisabled(
                "this worker may not change the cluster", "Start it with --enable-writes, or see `render-launch`"
            )

    def _looked_up(self, plan: KubernetesPlan, answer: Answer) -> Answer:
        """The Job as it is, when creating it was not answered with yes."""
        found = self._cluster.read_job(plan.namespace, plan.name)
        # A quota is looked at before the name, and may be used up by what an earlier try has made.
        is_made = found.is_done and bool(part(found.body, "metadata")) and _is_launch_of(plan, found.body)
        if answer.status in _REFUSALS and not is_made:
            raise LaunchRefused(f"the cluster does not take {plan.name}: {answer.said()}", _remedy(answer.status))
        if found.is_done and not _is_launch_of(plan, found.body):
            raise LaunchRefused(
                f"the cluster has a Job {plan.name} that is none of this launch", "Delete it, or use another namespace"
            )
        is_there = found.is_done or (answer.status == _TAKEN and answer.reason == "AlreadyExists")
        if not is_there or found.status == _GONE:
            raise SubstrateUnreachable(f"it is unknown whether {plan.name} was created: {answer.said()}")
        return found

    def _show(self, plan: KubernetesPlan, job: Answer) -> None:
        """Make the Lease, which is for observers alone: where that fails, the next probe tries again."""
        if plan.lease is None:
            return
        lease = dict(plan.lease)
        if uid := text(part(job.body, "metadata"), "uid"):
            # So that it goes with its Job, whoever takes that away.
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": plan.name, "uid": uid}
            lease["metadata"] = {**plan.lease["metadata"], "ownerReferences": [owner]}
        self._memory(plan.name).lease_to_make = lease
        self._renew(Handle(launcher=_NAME, name=plan.name, address=plan.namespace))

    def _renew(self, handle: Handle) -> None:
        memory, now_ms = self._memory(handle.name), self._clock.elapsed_ms()
        is_due = memory.lease_at_ms is None or now_ms - memory.lease_at_ms >= _RENEWED_EVERY_MS
        if not (self._options.lease and self._writes and is_due):
            return
        memory.lease_at_ms, now = now_ms, self._micro_time()
        if (lease := memory.lease_to_make) is not None:
            times = {"acquireTime": now, "renewTime": now}
            made = self._cluster.create_lease(self._place(handle), {**lease, "spec": {**lease["spec"], **times}})
            if not made.is_done and made.status != _TAKEN:
                return
            memory.lease_to_make = None
            if made.is_done:
                return
        self._cluster.patch_lease(self._place(handle), handle.name, {"spec": {"renewTime": now}})

    def _past(self, name: str, pods: list[Object]) -> Past:
        memory, now_ms = self._memory(name), self._clock.elapsed_ms()
        memory.had_pod = memory.had_pod or bool(pods)
        if not is_terminating(pods):
            memory.terminating_since_ms = None
            return Past(memory.had_pod, cause=memory.cause)
        if memory.terminating_since_ms is None:
            memory.terminating_since_ms = now_ms
        overdue_ms = self._options.grace_s * 1000 + _OVERDUE_MS
        return Past(memory.had_pod, now_ms - memory.terminating_since_ms > overdue_ms, memory.cause)

    def _memory(self, name: str) -> _Memory:
        return self._memories.setdefault(name, _Memory())

    def _micro_time(self) -> str:
        """The time as a Lease holds it: always with six digits, or its own server refuses it."""
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        # Not 0: some clients leave such a fraction out where they read and write it again.
        whole = now.replace(microsecond=now.microsecond or 1, tzinfo=None)
        return f"{whole.isoformat(timespec='microseconds')}Z"


def create(settings: LauncherSettings) -> KubernetesLauncher:
    """The launcher; nothing is connected yet. Raises `MissingExtra`, `InvalidSettings`."""
    options = read_options(KubernetesOptions, _NAME, settings.options)
    return KubernetesLauncher(open_cluster(options), settings, options)


def rendering(settings: LauncherSettings) -> Callable[[LaunchOrder], KubernetesPlan]:
    """The launcher's `render` alone, which needs no library and no cluster. Raises `InvalidSettings`."""
    options = read_options(KubernetesOptions, _NAME, settings.options)
    return lambda order: render(order, options, settings.executor)


def _is_launch_of(plan: KubernetesPlan, job: Object) -> bool:
    metadata = part(job, "metadata")
    # An answer that broke off says nothing against it: the name holds the task's id and the fence.
    return not metadata or text(part(metadata, "annotations"), DIGEST) == plan.job["metadata"]["annotations"][DIGEST]


def _remedy(status: int) -> str:
    match status:
        case 401 | 403:
            return "See the Role of `tenure workers render-launch --launcher kubernetes --example`, and quotas"
        case 404:
            return "Create the namespace, see `tenure workers render-launch --launcher kubernetes --example`"
        case _:
            return "See `tenure workers render-launch --launcher kubernetes`"
