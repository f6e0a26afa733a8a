"""What a cluster does to pods by itself, on a whole fleet: a task's code runs once per attempt, whatever it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

import tenure
from tenure.protocol.client_messages import Explain, Query
from tenure.protocol.launch import launch_name
from tenure.protocol.worker_messages import Cause
from tests.fault.instrument import Instrument, check
from tests.fixtures_launchers import Premises
from tests.fixtures_parity import PARENT, PATIENCE_S, Parity, open_fleet_of_nobody
from tests.launcher_kubernetes import KubernetesBench, open_double
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def parity(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parity]:
    folder = tmp_path_factory.mktemp("kubernetes")
    (folder / "bench").mkdir()
    with open_fleet_of_nobody(folder) as fleet, open_double(Premises(folder / "bench", fleet.url)) as bench:
        parity = Parity("kubernetes", fleet, bench, folder)
        parity.start_parent()
        yield parity


@pytest.fixture
def instrument(tmp_path: Path) -> Iterator[Instrument]:
    instrument = Instrument(tmp_path / "marks")
    yield instrument
    instrument.close()


def cluster_of(parity: Parity) -> KubernetesBench:
    return cast("KubernetesBench", parity.bench)


def explained(parity: Parity, task_id: str) -> str:
    return "\n".join(str(line["text"]) for line in parity.fleet.client.ask(Explain(task_id=task_id)).rows)


def launch_of(task_id: str, fence: int) -> str:
    return launch_name(task_id, fence, PARENT)


def test_a_pod_that_is_started_twice_runs_the_task_once(parity: Parity, instrument: Instrument) -> None:
    kubelet, api = cluster_of(parity).kubelet, cluster_of(parity).api
    instrument.hold()
    handle = parity.work(instrument, 0)
    parity.wait_for_start(instrument, handle)
    (lease,) = parity.leases(handle)
    name = launch_of(handle.task_id, lease["fence"])

    kubelet.start_second(name)
    second = f"{name}-2"

    def has_ended() -> bool:
        pod = api.get("Pod", second)
        return pod is not None and pod["status"]["phase"] == "Succeeded"

    wait_until(has_ended, "the second pod has ended in good order", PATIENCE_S)
    assert len(instrument.executions()) == 1
    instrument.let_go()
    assert handle.result(PATIENCE_S) == 1
    assert len(instrument.executions()) == 1
    assert len(parity.leases(handle)) == 1


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("OOMKilled", Cause.OOM_KILLED),
        ("Evicted", Cause.EVICTED),
        ("Preempted", Cause.PREEMPTED),
        *(
            pytest.param(reason, cause, marks=pytest.mark.slow)
            for reason, cause in {
                "Drained": Cause.EVICTED,
                "Tainted": Cause.EVICTED,
                "DeadlineExceeded": Cause.DEADLINE_EXCEEDED,
                "Suspended": Cause.PREEMPTED,
            }.items()
        ),
    ],
)
def test_a_pod_that_the_cluster_ends_costs_one_attempt_and_says_why(
    parity: Parity, instrument: Instrument, reason: str, cause: Cause
) -> None:
    instrument.hold()
    handle = parity.work(instrument, 0, lease_ttl="30s", retry=tenure.Retry(lost=1))
    parity.wait_for_start(instrument, handle)
    (lease,) = parity.leases(handle)
    cluster_of(parity).kubelet.end_container(launch_of(handle.task_id, lease["fence"]), reason)
    wait_until(lambda: parity.leases(handle)[0]["state"] == "RELEASED", "its lease is released", PATIENCE_S)
    instrument.let_go()

    assert handle.result(PATIENCE_S) == 1
    first, second = parity.leases(handle)
    assert (first["cause"], second["attempt"], second["state"]) == (cause, 2, "COMPLETED")
    assert first["ended_at_ms"] - first["bound_at_ms"] < first["ttl_ms"]
    (directive,) = parity.fleet.client.ask(Query(what="directives", where=(("task_id", handle.task_id),))).rows
    assert directive["reason"] == cause
    assert f"gone ({cause}: " in explained(parity, handle.task_id)
    assert not check(instrument.executions(), parity.records, [handle.task_id]).problems()


def test_a_job_that_somebody_deletes_costs_one_attempt_and_says_so(parity: Parity, instrument: Instrument) -> None:
    instrument.hold()
    handle = parity.work(instrument, 0, lease_ttl="30s", retry=tenure.Retry(lost=1))
    parity.wait_for_start(instrument, handle)
    (lease,) = parity.leases(handle)
    api = cluster_of(parity).api
    with api.lock:
        job = api.get("Job", launch_of(handle.task_id, lease["fence"]))
        assert job is not None
        job["metadata"]["deletionTimestamp"] = "2026-01-01T00:05:00Z"
        api.put(job)
    wait_until(lambda: parity.leases(handle)[0]["state"] == "RELEASED", "its lease is released", PATIENCE_S)
    instrument.let_go()
    assert handle.result(PATIENCE_S) == 1
    assert [row["cause"] for row in parity.leases(handle)] == [Cause.EXECUTOR_REMOVED, None]


def test_nothing_is_left_on_the_cluster(parity: Parity, instrument: Instrument) -> None:
    handle = parity.work(instrument, 0)
    assert handle.result(PATIENCE_S) == 1
    api = cluster_of(parity).api
    for kind in ("Job", "Lease", "Pod"):
        wait_until(lambda: not api.of(kind), f"no {kind} is left", PATIENCE_S)  # noqa: B023 - called before the next
    assert api.asked("PATCH", "Job") == []
