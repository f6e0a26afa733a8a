"""How much a launcher asks of an API server while nothing happens, by how many launches it has in hand."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tenure.launchers.base import LauncherSettings, Phase
from tenure.launchers.kubernetes_cluster import Answer
from tenure.launchers.kubernetes_launcher import KubernetesLauncher
from tenure.launchers.kubernetes_options import KubernetesOptions
from tenure.launchers.kubernetes_plan import LEASE_S
from tenure.launchers.options import read_options
from tenure.testing import ManualClock, SeededEntropy
from tests.stand_in import StandIn, order

QUICKEST_PROBE_MS = 250
PROBE_SHARE_MS = 10
RUNNING: dict[str, Any] = {"phase": "Running", "containerStatuses": [{"name": "executor", "state": {"running": {}}}]}


@dataclass
class CountingCluster:
    """An API server on which everything runs; it notes when it was asked, and when each Lease was renewed."""

    clock: ManualClock
    asked_ms: list[int] = field(default_factory=list[int])
    renewed_ms: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def create_job(self, namespace: str, job: dict[str, Any]) -> Answer:
        return self._answer({"metadata": {"uid": f"{namespace}-{job['metadata']['name']}"}})

    def read_job(self, namespace: str, name: str) -> Answer:
        return self._answer({"metadata": {"name": name, "namespace": namespace}, "spec": {}, "status": {"active": 1}})

    def delete_job(self, namespace: str, name: str, *, waits_for_pods: bool) -> Answer:
        raise AssertionError("nothing is cleared away here")

    def list_pods(self, namespace: str, selector: str) -> Answer:
        return self._answer({"items": [{"metadata": {"name": selector, "namespace": namespace}, "status": RUNNING}]})

    def create_lease(self, namespace: str, lease: dict[str, Any]) -> Answer:
        return self.patch_lease(namespace, lease["metadata"]["name"], lease)

    def patch_lease(self, namespace: str, name: str, change: dict[str, Any]) -> Answer:
        self.renewed_ms[name].append(self.clock.elapsed_ms())
        return self._answer({"namespace": namespace, **change})

    def delete_lease(self, namespace: str, name: str) -> Answer:
        raise AssertionError("nothing is cleared away here")

    def close(self) -> None:
        pass

    def _answer(self, body: dict[str, Any]) -> Answer:
        self.asked_ms.append(self.clock.elapsed_ms())
        return Answer(200, body)


def watched(tmp_path: Path, launches: int, minutes: int, **more: object) -> CountingCluster:
    """Look after so many launches for so long, as often as a worker asks about that many (`launch_rounds.py`)."""
    clock = ManualClock()
    cluster = CountingCluster(clock)
    options = read_options(KubernetesOptions, "kubernetes", {"image": "tenure", **more})
    settings = LauncherSettings(StandIn(tmp_path).command(), tmp_path, clock, SeededEntropy(1), writes=True)
    launcher = KubernetesLauncher(cluster, settings, options)
    handles = [launcher.launch(launcher.render(order())) for _ in range(launches)]
    cluster.asked_ms.clear()
    step_ms = max(QUICKEST_PROBE_MS, PROBE_SHARE_MS * launches)
    for _ in range(minutes * 60_000 // step_ms):
        clock.advance_ms(step_ms)
        assert {launcher.probe(handle).phase for handle in handles} == {Phase.RUNNING}
    return cluster


def rate(cluster: CountingCluster) -> float:
    """Requests in a second, from the second look at a launch on: the first is made at once."""
    begun_ms = cluster.asked_ms[0]
    later = [asked_ms for asked_ms in cluster.asked_ms if asked_ms > begun_ms]
    return len(later) * 1000 / (cluster.clock.elapsed_ms() - begun_ms)


@pytest.mark.parametrize("launches", [2, 20, 50, 67, 100, 200])
def test_up_to_200_launches_ask_at_most_20_times_in_a_second(tmp_path: Path, launches: int) -> None:
    """Renewing the Leases counts, too: it was left out once, and 50 launches asked 25 times."""
    assert rate(watched(tmp_path, launches, 3)) <= 20


@pytest.mark.parametrize("launches", [300, 1_000, 2_990, 4_096])
def test_more_launches_ask_more_often_so_that_their_leases_are_renewed_in_time(tmp_path: Path, launches: int) -> None:
    """As many as a worker may have. With 2,990 a look comes once in a minute, when a Lease of 40 s had run out."""
    cluster = watched(tmp_path, launches, 3)
    assert 20 < rate(cluster) <= launches / 10
    gaps_ms = [later - before for times in cluster.renewed_ms.values() for before, later in pairwise(times)]
    assert max(gaps_ms) < LEASE_S * 1000
    assert len(cluster.renewed_ms) == launches


def test_without_leases_a_third_less_is_asked(tmp_path: Path) -> None:
    assert rate(watched(tmp_path, 300, 2, lease=False)) <= 20
