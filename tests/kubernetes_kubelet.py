"""A double of what makes a cluster live: job controller, garbage collector, and nodes that really run containers.

A container is a process of this machine, started with the words, the variables and the files of its pod. One thread
does everything, a step at a time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil

from tenure.clock import SystemClock
from tenure.launchers.kubernetes_objects import Object
from tests.kubernetes_api import ApiServer

_STEP_S = 0.01
_DISRUPTED: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "Preempted": ("PreemptionByScheduler", "node-1: preempting to accommodate a higher priority pod"),
        "Drained": ("EvictionByEvictionAPI", "Eviction API: evicting"),
        "Tainted": ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"),
    }
)
"""Who takes a pod away whose node goes on reporting: it gets a condition first, and is deleted then."""
IMAGE_ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
)
"""What the image says: where programs are, and tasks."""


@dataclass
class Container:
    """One running executor."""

    process: subprocess.Popen[bytes]
    ended_as: str = ""
    kill_at_ms: int | None = None


@dataclass
class Kubelet:
    """The life of one cluster.

    Args:
        api: where its objects are.
        folder: where volumes are kept.
        secrets: the content of Secrets: name, key, text.
        grace_ms: how long a container may take to end, whatever its pod says.
    """

    api: ApiServer
    folder: Path
    secrets: dict[str, dict[str, str]] = field(default_factory=dict[str, "dict[str, str]"])
    grace_ms: int = 10_000
    gone_after_ms: int = 400
    """How long a pod that has terminated is still shown after its removal was asked for."""
    has_room: bool = True
    has_image: bool = True
    clock: SystemClock = field(default_factory=SystemClock)
    containers: dict[str, Container] = field(default_factory=dict[str, Container])
    lost_nodes: set[str] = field(default_factory=set[str])
    """Pods whose nodes do not report any more."""
    _started_jobs: dict[str, int] = field(default_factory=dict[str, int])
    """How many pods each Job has had, by its uid."""
    _gone_at_ms: dict[str, int] = field(default_factory=dict[str, int])
    _over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def living(self) -> Generator[Kubelet]:
        thread = threading.Thread(target=self._live, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._over.set()
            thread.join()
            for container in self.containers.values():
                kill_tree(container.process)

    # --- what a test may do to it ---

    def pod_of(self, launch: str) -> Object | None:
        """The first pod of a launch."""
        return next((pod for pod in self.api.of("Pod") if pod["metadata"]["labels"]["tenure/launch"] == launch), None)

    def start_second(self, launch: str) -> None:
        """Start one more pod of the Job, as a cluster may that thinks the first one lost."""
        with self.api.lock:
            job = self.api.get("Job", launch)
            assert job is not None
            self._make_pod(job)

    def end_container(self, launch: str, reason: str) -> None:
        """End it for that reason. Only the kernel (`OOMKilled`) kills at once; everybody else lets it end by itself.

        The node (`Evicted`) deletes nothing, and tells the cluster when the container is gone, not before. The
        scheduler (`Preempted`), the API (`Drained`) and the taint manager (`Tainted`) say why, and delete the pod. The
        Job's deadline (`DeadlineExceeded`) and its queue (`Suspended`) delete the pod and say why at the Job alone.
        """
        with self.api.lock:
            pod, job = self.pod_of(launch), self.api.get("Job", launch)
            assert pod is not None
            assert job is not None
            container = self.containers[pod["metadata"]["name"]]
            container.ended_as = reason
            if reason == "OOMKilled":
                kill_tree(container.process)
            elif reason == "Evicted":
                self._tell_to_end(pod, container)
            elif reason in _DISRUPTED:
                _disrupt(pod, *_DISRUPTED[reason])
                self._want_gone(pod)
            else:
                self._end_job(job, reason)

    def lose_node(self, launch: str) -> None:
        """Its node falls silent: the executor runs on, and the cluster wants the pod gone."""
        with self.api.lock:
            pod = self.pod_of(launch)
            assert pod is not None
            self.lost_nodes.add(pod["metadata"]["name"])
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:05:00Z"
            _disrupt(pod, "DeletionByTaintManager", "node is unreachable")
            self.api.put(pod)

    # --- its life ---

    def _live(self) -> None:
        while not self._over.wait(_STEP_S):
            with self.api.lock:
                for job in self.api.of("Job"):
                    self._control(job)
                for pod in self.api.of("Pod"):
                    self._run(pod)

    def _control(self, job: Object) -> None:
        meta, pods = job["metadata"], self._pods_of(job)
        if meta.get("deletionTimestamp"):
            for pod in pods:
                self._want_gone(pod)
            if not pods:
                self.api.remove("Job", meta["name"])
            return
        if job["spec"].get("suspend") or job["status"].get("conditions"):
            self._fail_late(job, pods)
            return
        if meta["uid"] not in self._started_jobs:
            self._make_pod(job)
            return
        phases = {pod["status"]["phase"] for pod in pods}
        if not pods or phases <= {"Failed", "Succeeded"}:
            self._finish(job, "Complete" if phases == {"Succeeded"} else "Failed")

    def _finish(self, job: Object, kind: str) -> None:
        reason = "CompletionsReached" if kind == "Complete" else "PodFailurePolicy"
        job["status"]["conditions"] = [{"type": kind, "status": "True", "reason": reason, "message": "it is over"}]
        self.api.put(job)

    def _end_job(self, job: Object, reason: str) -> None:
        """Its deadline is over, or a queue has taken its room back: what runs of it is deleted."""
        said = {"type": "FailureTarget", "reason": reason, "message": "Job was active longer than specified deadline"}
        if reason == "Suspended":
            job["spec"]["suspend"] = True
            said = {"type": "Suspended", "reason": "JobSuspended", "message": "Job suspended"}
        job["status"]["conditions"] = [{"status": "True", **said}]
        self.api.put(job)
        for pod in self._pods_of(job):
            self._want_gone(pod)

    def _fail_late(self, job: Object, pods: list[Object]) -> None:
        """What is to fail has failed when none of its pods runs any more."""
        (said, *more) = job["status"].get("conditions") or [{"type": ""}]
        runs = any(pod["status"]["phase"] == "Running" for pod in pods)
        if said["type"] == "FailureTarget" and not more and not runs:
            job["status"]["conditions"].append({**said, "type": "Failed"})
            self.api.put(job)

    def _pods_of(self, job: Object) -> list[Object]:
        uid = job["metadata"]["uid"]
        return [pod for pod in self.api.of("Pod") if pod["metadata"]["ownerReferences"][0]["uid"] == uid]

    def _make_pod(self, job: Object) -> None:
        meta, template = job["metadata"], job["spec"]["template"]
        number = self._started_jobs[meta["uid"]] = self._started_jobs.get(meta["uid"], 0) + 1
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"], "controller": True}
        labels = {**template["metadata"]["labels"], "batch.kubernetes.io/job-name": meta["name"]}
        self.api.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"{meta['name']}-{number}", "labels": labels, "ownerReferences": [owner]},
                "spec": dict(template["spec"]),
                "status": {"phase": "Pending"},
            }
        )

    def _run(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        if self.api.get("Job", pod["metadata"]["ownerReferences"][0]["name"]) is None:
            self._want_gone(pod)
        if name in self.lost_nodes:
            return
        container = self.containers.get(name)
        if container is not None:
            self._look_after(pod, container)
        elif pod["status"]["phase"] == "Pending" and not pod["metadata"].get("deletionTimestamp"):
            self._place(pod)
        if pod["metadata"].get("deletionTimestamp") and name not in self.containers:
            self._take_away(pod)

    def _place(self, pod: Object) -> None:
        if not self.has_room:
            said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes fit"}
            pod["status"] = {"phase": "Pending", "conditions": [said]}
        elif not self.has_image:
            pod["status"] = {"phase": "Pending", **_state("waiting", reason="ImagePullBackOff", message="not found")}
        else:
            pod["spec"]["nodeName"] = "node-1"
            try:
                self.containers[pod["metadata"]["name"]] = Container(self._start(pod))
                pod["status"] = {"phase": "Running", **_state("running", startedAt="2026-01-01T00:00:01Z")}
            except OSError as error:
                failed = _state("terminated", exitCode=128, reason="StartError", message=str(error))
                pod["status"] = {"phase": "Failed", **failed}
        self.api.put(pod)

    def _start(self, pod: Object) -> subprocess.Popen[bytes]:
        (container,) = pod["spec"]["containers"]
        places = {mount["mountPath"]: self._volume(pod, mount) for mount in container["volumeMounts"]}
        command = [_read(word) for word in container["command"]]
        words = [*command, *(_inside(word, places) for word in container["args"])]
        given = {entry["name"]: _inside(entry["value"], places) for entry in container["env"]}
        return subprocess.Popen(
            words,
            env={**IMAGE_ENVIRONMENT, **given},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _volume(self, pod: Object, mount: dict[str, Any]) -> Path:
        (volume,) = [volume for volume in pod["spec"]["volumes"] if volume["name"] == mount["name"]]
        path = Path(self.folder, pod["metadata"]["name"], mount["name"])
        if claim := volume.get("persistentVolumeClaim"):
            path = Path(self.folder, "claims", claim["claimName"], mount.get("subPath", ""))
        path.mkdir(parents=True, exist_ok=True)
        for source in volume.get("projected", {}).get("sources", []):
            for item in source["secret"]["items"]:
                file = path / item["path"]
                file.write_text(self.secrets[source["secret"]["name"]][item["key"]])
                file.chmod(volume["projected"]["defaultMode"])
        return path

    def _tell_to_end(self, pod: Object, container: Container) -> None:
        if container.kill_at_ms is None:
            grace_ms = min(self.grace_ms, pod["spec"]["terminationGracePeriodSeconds"] * 1000)
            container.kill_at_ms = self.clock.elapsed_ms() + grace_ms
            container.process.send_signal(signal.SIGTERM)

    def _look_after(self, pod: Object, container: Container) -> None:
        if pod["metadata"].get("deletionTimestamp"):
            self._tell_to_end(pod, container)
        if container.kill_at_ms is not None and self.clock.elapsed_ms() >= container.kill_at_ms:
            kill_tree(container.process)
        code = container.process.poll()
        if code is None:
            return
        del self.containers[pod["metadata"]["name"]]
        kill_tree(container.process)
        exit_code = 128 - code if code < 0 else code
        reason = "OOMKilled" if container.ended_as == "OOMKilled" else "Error" if exit_code else "Completed"
        status: Object = {
            "phase": "Failed" if exit_code else "Succeeded",
            "conditions": pod["status"].get("conditions", []),
            **_state("terminated", exitCode=exit_code, reason=reason),
        }
        pod["status"] = status
        if container.ended_as == "Evicted":
            # However well the container ends, the pod has failed.
            status.update(phase="Failed", reason="Evicted", message="The node was low on resource: memory.")
            _disrupt(pod, "TerminationByKubelet", "The node was low on resource: memory.")
        self.api.put(pod)

    def _want_gone(self, pod: Object) -> None:
        if not pod["metadata"].get("deletionTimestamp"):
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:05:00Z"
            self.api.put(pod)

    def _take_away(self, pod: Object) -> None:
        name, now_ms = pod["metadata"]["name"], self.clock.elapsed_ms()
        if now_ms >= self._gone_at_ms.setdefault(name, now_ms + self.gone_after_ms):
            self.api.remove("Pod", name)


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """End a container: nothing of it is left, whatever sessions its processes have begun.

    Its first process goes first, as in a real one: it may not live to tell that others have died.
    """
    with suppress(psutil.NoSuchProcess):
        first = psutil.Process(process.pid)
        first.suspend()
        for one in (first, *first.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                one.kill()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _state(kind: str, **said: Any) -> Object:
    return {"containerStatuses": [{"name": "executor", "state": {kind: said}, "restartCount": 0}]}


def _disrupt(pod: Object, reason: str, message: str) -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    pod["status"].setdefault("conditions", []).append(condition)


def _read(word: str) -> str:
    """A word as a container gets it: of two $ only one is left. No word of ours names a variable."""
    assert "$(" not in word.replace("$$", "")
    return word.replace("$$", "$")


def _inside(written: str, places: dict[str, Path]) -> str:
    """A path of the pod, as the path on this machine that stands for it."""
    word = _read(written)
    for mount, path in places.items():
        if mount != "/tmp" and (word == mount or word.startswith(f"{mount}/")):  # noqa: S108 - no path of a pod's own
            return f"{path}{word.removeprefix(mount)}"
    return word
