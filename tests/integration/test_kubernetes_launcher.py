"""The launcher `kubernetes` and an API server that does not always do what it is asked, over real HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from tenure.clock import SystemClock
from tenure.errors import InvalidSettings, LaunchRefused, SubstrateUnreachable, WritesDisabled
from tenure.launchers.base import Launcher, LauncherSettings, Phase
from tenure.launchers.catalog import make_launcher
from tenure.protocol.worker_messages import Cause
from tenure.testing import ManualClock
from tests.fixtures_launchers import Premises
from tests.kubernetes_api import TOKEN, ApiServer, Fault
from tests.kubernetes_kubelet import Kubelet
from tests.launcher_kubernetes import KubernetesBench, open_double
from tests.stand_in import StandIn, is_alive, order, wait_for_end, wait_for_phase, wait_for_sighting
from tests.waiting import wait_until

A_WHOLE_SECOND_MS = 1_700_000_000_000
OVER = frozenset({Phase.ENDED, Phase.MISSING})
REMOVALS_BY_OTHERS = {
    "Drained": Cause.EVICTED,
    "Tainted": Cause.EVICTED,
    "Preempted": Cause.PREEMPTED,
    "DeadlineExceeded": Cause.DEADLINE_EXCEEDED,
    "Suspended": Cause.PREEMPTED,
}
"""Why the double of a cluster takes a pod away, and what is told of it: what can be seen before its end."""
REMOVALS = {"OOMKilled": Cause.OOM_KILLED, "Evicted": Cause.EVICTED, **REMOVALS_BY_OTHERS}
"""Those that its node decides are told with its end."""


@dataclass(frozen=True)
class Cluster:
    """The doubles, and launchers on them."""

    api: ApiServer
    kubelet: Kubelet
    bench: KubernetesBench
    stand_in: StandIn
    settings: LauncherSettings

    @contextmanager
    def launcher(self, **options: Any) -> Generator[Launcher[Any]]:
        launcher = make_launcher("kubernetes", replace(self.settings, options={**self.settings.options, **options}))
        try:
            yield launcher
        finally:
            launcher.close()

    def fail(
        self, method: str, kind: str, how: Literal["answer", "cut", "garbage", "hang", "lost"], status: int = 500
    ) -> None:
        self.api.faults.append(Fault(method, kind, how, status))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    for name in ("stand_in", "bench"):
        (tmp_path / name).mkdir()
    stand_in = StandIn(tmp_path / "stand_in")
    with open_double(Premises(tmp_path / "bench", "redis://:password@127.0.0.1:1", ())) as bench:
        settings = replace(stand_in.settings(dict(bench.options)), writes=True)
        yield Cluster(bench.api, bench.kubelet, bench, stand_in, settings)
        stand_in.end()


@pytest.fixture
def launcher(cluster: Cluster) -> Iterator[Launcher[Any]]:
    with cluster.launcher() as launcher:
        yield launcher


def test_the_cluster_gets_just_what_is_rendered_and_a_second_launch_finds_it(
    cluster: Cluster, launcher: Launcher[Any]
) -> None:
    plan = launcher.render(order(memory_bytes=1 << 26, timeout_ms=60_000))
    handle = launcher.launch(plan)
    assert (handle.name, handle.address) == (plan.name, "tenure")
    (posted,) = cluster.api.asked("POST", "Job")
    assert posted.json == plan.job
    assert launcher.launch(plan) == handle
    assert len(cluster.api.of("Job")) == 1
    lease = cluster.api.get("Lease", plan.name)
    assert lease is not None
    assert lease["metadata"]["ownerReferences"][0]["uid"] == cluster.api.of("Job")[0]["metadata"]["uid"]
    assert "password" not in json.dumps([request.body.decode() for request in cluster.api.requests])


@pytest.mark.parametrize("how", ["lost", "cut", "garbage"])
def test_a_launch_whose_answer_is_lost_is_found_by_its_name(
    cluster: Cluster, launcher: Launcher[Any], how: Literal["lost", "cut", "garbage"]
) -> None:
    cluster.fail("POST", "Job", how)
    handle = launcher.launch(launcher.render(order()))
    cluster.stand_in.wait_for_start()
    assert launcher.probe(handle).phase is Phase.RUNNING
    assert len(cluster.api.asked("POST", "Job")) == 1


@pytest.mark.parametrize("status", [429, 500, 503, 504])
def test_a_launch_that_may_have_been_done_is_unknown_and_can_be_tried_again(
    cluster: Cluster, launcher: Launcher[Any], status: int
) -> None:
    plan = launcher.render(order())
    cluster.fail("POST", "Job", "answer", status)
    with pytest.raises(SubstrateUnreachable, match=f"answered {status}"):
        launcher.launch(plan)
    launcher.launch(plan)
    cluster.stand_in.wait_for_start()


@pytest.mark.parametrize("status", [400, 401, 403, 422])
def test_what_the_cluster_does_not_take_is_refused(cluster: Cluster, launcher: Launcher[Any], status: int) -> None:
    cluster.fail("POST", "Job", "answer", status)
    with pytest.raises(LaunchRefused, match=f"answered {status}"):
        launcher.launch(launcher.render(order()))
    assert not cluster.api.of("Job")


def test_a_launch_that_is_refused_because_it_is_there_is_found(cluster: Cluster, launcher: Launcher[Any]) -> None:
    """A quota is looked at before the name, and may be used up by what an earlier try has made."""
    plan = launcher.render(order())
    cluster.fail("POST", "Job", "lost")
    handle = launcher.launch(plan)
    cluster.fail("POST", "Job", "answer", 403)
    assert launcher.launch(plan) == handle
    assert len(cluster.api.of("Job")) == 1


def test_a_namespace_that_is_not_there_is_refused(cluster: Cluster) -> None:
    with (
        cluster.launcher(namespace="elsewhere") as launcher,
        pytest.raises(LaunchRefused, match="Create the namespace"),
    ):
        launcher.launch(launcher.render(order()))


def test_a_job_of_somebody_else_under_that_name_is_not_taken_for_ours(
    cluster: Cluster, launcher: Launcher[Any]
) -> None:
    plan = launcher.render(order())
    cluster.api.put({"kind": "Job", "metadata": {"name": plan.name}, "spec": {"suspend": True}, "status": {}})
    with pytest.raises(LaunchRefused, match="none of this launch"):
        launcher.launch(plan)


def test_a_server_that_does_not_answer_is_waited_for_so_long_and_no_longer(cluster: Cluster) -> None:
    with cluster.launcher(timeout_s="1.5") as launcher:
        plan = launcher.render(order())
        for method, kind in (("POST", "Job"), ("GET", "Job"), ("GET", "Job"), ("DELETE", "Job")):
            cluster.fail(method, kind, "hang")
        clock = SystemClock()
        begun_ms = clock.elapsed_ms()
        with pytest.raises(SubstrateUnreachable, match="no answer"):
            launcher.launch(plan)
        handle = launcher.launch(plan)
        assert launcher.probe(handle).phase is Phase.UNKNOWN
        with pytest.raises(SubstrateUnreachable, match="may still run"):
            launcher.cancel(handle)
        assert clock.elapsed_ms() - begun_ms < 25_000


SIGN_IN = """#!/bin/sh
while [ -e "{folder}/away" ]; do sleep 0.05; done
echo '{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",'
echo '"status": {{"token": "{token}", "expirationTimestamp": "2020-01-01T00:00:00Z"}}}}'
"""


def test_a_program_that_signs_in_is_waited_for_so_long_and_no_longer(cluster: Cluster, tmp_path: Path) -> None:
    """Its token has always run out, so it is asked before each request, as one of a cloud is every few minutes."""
    program, away = tmp_path / "sign_in", tmp_path / "away"
    program.write_text(SIGN_IN.format(folder=tmp_path, token=TOKEN))
    program.chmod(0o755)
    asked = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program), "interactiveMode": "Never"}
    kubeconfig = cluster.api.kubeconfig(tmp_path, {"exec": asked})
    with cluster.launcher(kubeconfig=kubeconfig, timeout_s="2") as launcher:
        handle = launcher.launch(launcher.render(order()))
        cluster.stand_in.wait_for_start()
        away.touch()
        clock = SystemClock()
        begun_ms = clock.elapsed_ms()
        try:
            with pytest.raises(SubstrateUnreachable, match="may still run"):
                launcher.cancel(handle)
            assert launcher.probe(handle).phase is Phase.UNKNOWN
            assert clock.elapsed_ms() - begun_ms < 30_000
        finally:
            away.unlink()
        wait_for_phase(launcher, handle, Phase.RUNNING)


@pytest.mark.parametrize("status", [401, 403, 410, 429, 500])
@pytest.mark.parametrize("kind", ["Job", "Pod"])
def test_a_cluster_that_cannot_be_asked_says_nothing_of_the_executor(
    cluster: Cluster, launcher: Launcher[Any], kind: str, status: int
) -> None:
    handle = launcher.launch(launcher.render(order()))
    cluster.stand_in.wait_for_start()
    cluster.fail("GET", kind, "answer", status)
    assert launcher.probe(handle).phase is Phase.UNKNOWN
    assert launcher.probe(handle).phase is Phase.RUNNING


@pytest.mark.parametrize("how", ["lost", "cut", "garbage"])
@pytest.mark.parametrize("kind", ["Job", "Pod"])
def test_an_answer_that_breaks_off_says_nothing_of_the_executor(
    cluster: Cluster, launcher: Launcher[Any], kind: str, how: Literal["lost", "cut", "garbage"]
) -> None:
    handle = launcher.launch(launcher.render(order()))
    cluster.stand_in.wait_for_start()
    cluster.fail("GET", kind, how)
    assert launcher.probe(handle).phase is Phase.UNKNOWN


@pytest.mark.parametrize(("reason", "cause"), REMOVALS.items())
def test_what_the_cluster_ends_is_seen_with_its_cause_and_its_proof(
    cluster: Cluster, launcher: Launcher[Any], reason: str, cause: Cause
) -> None:
    handle = launcher.launch(launcher.render(order()))
    pid = cluster.stand_in.wait_for_start()
    cluster.kubelet.end_container(handle.name, reason)
    seen = wait_for_phase(launcher, handle, Phase.ENDED)
    assert (seen.cause, seen.proved) == (cause, True)
    assert not is_alive(pid)
    assert len(cluster.stand_in.notes()) == 1
    was_told = bool(list(cluster.stand_in.folder.glob("*.drained")))
    assert was_told == (reason != "OOMKilled")


@pytest.mark.parametrize(("reason", "cause"), {**REMOVALS_BY_OTHERS, "Tainted": Cause.NODE_GONE}.items())
def test_why_a_pod_goes_is_kept_when_it_is_gone_before_the_next_look(
    cluster: Cluster, reason: str, cause: Cause
) -> None:
    """A cluster takes a pod away as soon as its end is counted; a worker with many launches looks seldom."""
    clock = ManualClock(A_WHOLE_SECOND_MS)
    cluster.kubelet.gone_after_ms = 0
    slow = replace(cluster, settings=replace(cluster.settings, clock=clock))
    with slow.launcher() as launcher:
        handle = launcher.launch(launcher.render(order()))
        pid = cluster.stand_in.wait_for_start()
        os.kill(pid, signal.SIGSTOP)
        cluster.kubelet.end_container(handle.name, reason)
        clock.advance_ms(1_000)
        assert launcher.probe(handle).phase is Phase.RUNNING
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: not cluster.api.of("Pod"), "its pod is gone")
        wait_until(lambda: bool(cluster.api.of("Job")[0]["status"].get("conditions")), "its Job says that it is over")
        clock.advance_ms(1_000)
        seen = launcher.probe(handle)
    assert (seen.phase, seen.cause, seen.proved) == (Phase.ENDED, cause, False)


def test_a_node_that_falls_silent_proves_nothing(cluster: Cluster) -> None:
    clock = ManualClock(A_WHOLE_SECOND_MS)
    quiet = replace(cluster, settings=replace(cluster.settings, clock=clock))
    with quiet.launcher() as launcher:
        handle = launcher.launch(launcher.render(order()))
        pid = cluster.stand_in.wait_for_start()
        cluster.kubelet.lose_node(handle.name)
        assert launcher.probe(handle).phase is Phase.RUNNING
        clock.advance_ms(91_000)
        seen = launcher.probe(handle)
        assert (seen.phase, seen.cause, seen.proved) == (Phase.ENDED, Cause.NODE_GONE, False)
        assert is_alive(pid)


def test_a_job_that_somebody_deletes_is_seen_to_be_gone(cluster: Cluster, launcher: Launcher[Any]) -> None:
    handle = launcher.launch(launcher.render(order()))
    pid = cluster.stand_in.wait_for_start()
    cluster.api.remove("Job", handle.name)
    seen = wait_for_sighting(launcher, handle, lambda seen: seen.phase in OVER, "it is over")
    assert seen.cause is Cause.EXECUTOR_REMOVED
    wait_for_end(pid)
    last = wait_for_phase(launcher, handle, Phase.MISSING)
    assert (last.cause, last.proved) == (Cause.EXECUTOR_REMOVED, False)


def test_an_image_that_cannot_be_pulled_is_named_as_the_reason(cluster: Cluster, launcher: Launcher[Any]) -> None:
    cluster.kubelet.has_image = False
    handle = launcher.launch(launcher.render(order()))
    seen = wait_for_sighting(launcher, handle, lambda seen: seen.cause is not None, "a reason is seen")
    assert (seen.phase, seen.cause) == (Phase.STARTING, Cause.IMAGE_UNAVAILABLE)


def test_a_cancelled_launch_is_seen_to_its_end(cluster: Cluster, launcher: Launcher[Any]) -> None:
    handle = launcher.launch(launcher.render(order()))
    cluster.stand_in.wait_for_start()
    wait_for_phase(launcher, handle, Phase.RUNNING)
    launcher.cancel(handle)
    seen = wait_for_phase(launcher, handle, Phase.ENDED)
    assert (seen.cause, seen.proved) == (Cause.EXECUTOR_REMOVED, True)
    assert list(cluster.stand_in.folder.glob("*.drained"))
    launcher.clear(handle)
    wait_until(lambda: not cluster.api.of("Pod"), "its pods are gone")
    assert not cluster.api.of("Lease")


def test_a_lease_shows_when_the_executor_was_last_seen(cluster: Cluster) -> None:
    clock = ManualClock(A_WHOLE_SECOND_MS)
    timed = replace(cluster, settings=replace(cluster.settings, clock=clock))
    with timed.launcher() as launcher:
        handle = launcher.launch(launcher.render(order()))
        cluster.stand_in.wait_for_start()

        def renewed() -> str:
            lease = cluster.api.get("Lease", handle.name)
            assert lease is not None
            # Some versions of the client write the zone in another way.
            return str(lease["spec"]["renewTime"]).replace("+00:00", "Z")

        assert renewed() == "2023-11-14T22:13:20.000001Z"
        clock.advance_ms(9_000)
        launcher.probe(handle)
        assert renewed() == "2023-11-14T22:13:20.000001Z"
        clock.advance_ms(1_000)
        launcher.probe(handle)
        assert renewed() == "2023-11-14T22:13:30.000001Z"
        (patched,) = cluster.api.asked("PATCH", "Lease")
        assert re.fullmatch(r'\{"spec": ?\{"renewTime": ?"[^"]+"\}\}', patched.body.decode())


def test_a_lease_that_could_not_be_made_is_made_later_and_one_that_may_not_be_is_done_without(cluster: Cluster) -> None:
    clock = ManualClock(A_WHOLE_SECOND_MS)
    timed = replace(cluster, settings=replace(cluster.settings, clock=clock))
    with timed.launcher() as launcher:
        cluster.fail("POST", "Lease", "answer", 500)
        handle = launcher.launch(launcher.render(order()))
        assert not cluster.api.of("Lease")
        clock.advance_ms(10_000)
        launcher.probe(handle)
        assert cluster.api.of("Lease")
        cluster.api.allows_leases = False
        other = launcher.launch(launcher.render(order()))
        launcher.probe(other)
        launcher.clear(other)
        assert cluster.api.get("Job", other.name) is None
        assert not cluster.api.get("Lease", other.name)


def test_many_launches_are_asked_about_in_turn(cluster: Cluster) -> None:
    clock = ManualClock(A_WHOLE_SECOND_MS)
    timed = replace(cluster, settings=replace(cluster.settings, clock=clock))
    with timed.launcher(lease=False) as launcher:
        cluster.kubelet.has_room = False
        handles = [launcher.launch(launcher.render(order())) for _ in range(20)]
        for _ in range(10):
            assert {launcher.probe(handle).phase for handle in handles} == {Phase.STARTING}
            clock.advance_ms(290)
        assert len(cluster.api.asked("GET", "Job")) == 20
        clock.advance_ms(100)
        launcher.probe(handles[0])
        assert len(cluster.api.asked("GET", "Job")) == 21
        launcher.cancel(handles[1])
        launcher.probe(handles[1])
        assert len(cluster.api.asked("GET", "Job")) == 22


def test_nothing_is_written_where_writing_was_not_allowed(cluster: Cluster) -> None:
    reading = replace(cluster, settings=replace(cluster.settings, writes=False))
    with cluster.launcher() as writer, reading.launcher() as launcher:
        handle = writer.launch(writer.render(order()))
        before = len([request for request in cluster.api.requests if request.method != "GET"])
        for forbidden in (
            lambda: launcher.launch(launcher.render(order())),
            lambda: launcher.cancel(handle),
            lambda: launcher.clear(handle),
        ):
            with pytest.raises(WritesDisabled, match="--enable-writes"):
                forbidden()
        assert launcher.probe(handle).phase in {Phase.STARTING, Phase.RUNNING}
        assert len([request for request in cluster.api.requests if request.method != "GET"]) == before


def opened(folder: Path) -> str:
    """What is said where a cluster is looked for, in a process whose home and first folder of modules this is."""
    script = (
        "from tenure.launchers.kubernetes_cluster import open_cluster\n"
        "from tenure.launchers.kubernetes_options import KubernetesOptions\n"
        "from tenure.errors import UsageError\n"
        "try: open_cluster(KubernetesOptions(image='a'))\n"
        "except UsageError as error: print(error.code, error)\n"
    )
    environment = {"PYTHONPATH": f"{folder}:{Path(__file__).parents[2]}", "HOME": str(folder)}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_a_client_that_is_not_installed_is_named(tmp_path: Path) -> None:
    (tmp_path / "kubernetes.py").write_text("raise ImportError('not here')")
    said = opened(tmp_path)
    assert said.startswith("missing_extra")
    assert "pip install 'tenure[kubernetes]'" in said


def test_outside_a_cluster_and_without_a_kubeconfig_none_is_known(tmp_path: Path) -> None:
    said = opened(tmp_path)
    assert said.startswith("invalid_settings no Kubernetes cluster is known")


def test_what_could_not_be_cleared_away_is_said_and_can_be_tried_again(
    cluster: Cluster, launcher: Launcher[Any]
) -> None:
    handle = launcher.launch(launcher.render(order()))
    for kind in ("Job", "Lease"):
        cluster.fail("DELETE", kind, "answer", 500)
        with pytest.raises(SubstrateUnreachable, match=f"the {kind} .* may be left"):
            launcher.clear(handle)
    launcher.clear(handle)
    assert not cluster.api.of("Job")
    assert not cluster.api.of("Lease")


def test_a_cluster_that_is_not_known_is_said_before_anything_is_asked(cluster: Cluster, tmp_path: Path) -> None:
    for path, said in ((tmp_path / "none", "kubeconfig"), (tmp_path / "odd", "kubeconfig")):
        (tmp_path / "odd").write_text("{token: s3cret")
        with pytest.raises(InvalidSettings, match=said) as refused, cluster.launcher(kubeconfig=str(path)):
            pass
        assert "s3cret" not in str(refused.value)
