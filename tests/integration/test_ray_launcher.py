"""The launcher `ray` on a real cluster of one node, with a program that stands in for the executor."""

from __future__ import annotations

import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tenure.errors import LaunchRefused, SubstrateUnreachable
from tenure.launchers.base import Handle, Launcher, Phase, Sighting
from tenure.launchers.catalog import make_launcher
from tenure.protocol.worker_messages import Cause
from tests.ray_cluster import CPUS, RayCluster, ray_cluster, start_cluster
from tests.stand_in import StandIn, is_alive, order, wait_for_end, wait_for_phase, wait_for_sighting

# The first test of a process starts the cluster.
pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("launcher ray")]


@pytest.fixture
def cluster() -> RayCluster:
    return ray_cluster()


@pytest.fixture
def stand_in(tmp_path: Path) -> Generator[StandIn]:
    stand_in = StandIn(tmp_path)
    yield stand_in
    stand_in.end()


@pytest.fixture
def launcher(cluster: RayCluster, stand_in: StandIn) -> Generator[Launcher[Any]]:
    launcher = make_launcher("ray", stand_in.settings(cluster.options(), ("GIVEN", "yes")))
    yield launcher
    launcher.close()


def started(launcher: Launcher[Any], stand_in: StandIn) -> tuple[Handle, int, psutil.Process]:
    """A launch that runs: its handle, the executor's process, and the Ray worker that has started it."""
    handle = launcher.launch(launcher.render(order()))
    pid = stand_in.wait_for_start()
    wait_for_phase(launcher, handle, Phase.RUNNING)
    worker = psutil.Process(pid).parent()
    assert worker is not None
    return handle, pid, worker


def over(launcher: Launcher[Any], handle: Handle) -> Sighting:
    """The end, of which nothing may be left on the cluster."""
    seen = wait_for_phase(launcher, handle, Phase.ENDED)
    launcher.clear(handle)
    wait_for_phase(launcher, handle, Phase.MISSING)
    return seen


def test_a_killed_ray_worker_takes_its_executor_along_and_its_end_is_proved(
    launcher: Launcher[Any], stand_in: StandIn
) -> None:
    handle, pid, worker = started(launcher, stand_in)
    worker.kill()
    wait_for_end(pid)

    seen = over(launcher, handle)
    assert (seen.cause, seen.proved) == (Cause.EXECUTOR_DIED, True)
    assert seen.detail.startswith("the Ray worker of its actor died: SYSTEM_ERROR: Worker unexpectedly exits")
    assert "OOM" not in seen.detail  # one of Ray's guesses
    assert len(stand_in.notes()) == 1


@pytest.mark.slow
def test_a_ray_worker_that_exits_takes_its_executor_along(launcher: Launcher[Any], stand_in: StandIn) -> None:
    """Ray answers SIGTERM with `sys.exit` in its worker."""
    handle, pid, worker = started(launcher, stand_in)
    worker.send_signal(signal.SIGTERM)
    wait_for_end(pid)

    seen = over(launcher, handle)
    assert (seen.cause, seen.proved) == (Cause.EXECUTOR_DIED, True)
    assert len(stand_in.notes()) == 1


@pytest.mark.slow
def test_a_placement_group_that_somebody_removes_ends_the_executor(
    cluster: RayCluster, launcher: Launcher[Any], stand_in: StandIn
) -> None:
    handle, pid, _ = started(launcher, stand_in)
    cluster.remove_group(handle.name)
    wait_for_end(pid)

    seen = over(launcher, handle)
    assert (seen.cause, seen.proved) == (Cause.EXECUTOR_REMOVED, True)
    assert "placement group was removed" in seen.detail
    assert len(stand_in.notes()) == 1


def test_what_has_no_room_is_refused_and_leaves_nothing(cluster: RayCluster, stand_in: StandIn) -> None:
    options = cluster.options(cpus=CPUS + 1, placement_timeout_s=1)
    launcher = make_launcher("ray", stand_in.settings(options))
    plan = launcher.render(order())
    handle = Handle(launcher="ray", name=plan.name, address="tenure")

    with pytest.raises(LaunchRefused, match="no node had room"):
        launcher.launch(plan)
    assert launcher.probe(handle).phase is Phase.MISSING
    launcher.close()
    assert not stand_in.notes()


@pytest.mark.slow
def test_a_program_that_is_not_there_is_a_refusal(cluster: RayCluster, stand_in: StandIn) -> None:
    settings = stand_in.settings(cluster.options())
    command = type(settings.executor)(("not-here",))
    launcher = make_launcher(
        "ray", type(settings)(command, settings.folder, settings.clock, settings.entropy, settings.options)
    )
    handle = launcher.launch(launcher.render(order()))

    seen = over(launcher, handle)
    assert (seen.cause, seen.proved) == (Cause.LAUNCH_REFUSED, True)
    assert "there is no program 'not-here'" in seen.detail
    launcher.close()


@pytest.mark.slow
def test_an_executor_that_nobody_clears_away_gives_its_place_back(cluster: RayCluster, stand_in: StandIn) -> None:
    launcher = make_launcher("ray", stand_in.settings(cluster.options(linger_s=1)))
    handle, _, worker = started(launcher, stand_in)
    stand_in.end()
    wait_for_end(worker.pid)

    wait_for_sighting(
        launcher, handle, lambda seen: seen.phase is Phase.ENDED and "placement group" in seen.detail, "it has left"
    )
    launcher.close()


@pytest.mark.slow
def test_an_executor_outlives_the_process_that_speaks_with_ray(launcher: Launcher[Any], stand_in: StandIn) -> None:
    """That process is the launcher's only connection; the next one finds the executor by its name."""
    handle, pid, _ = started(launcher, stand_in)
    # Other tests may have left a child that has ended and that nobody has asked about.
    children = [each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE]
    speaking = next(each for each in children if "launchers.ray_side" in " ".join(each.cmdline()))
    speaking.kill()

    assert launcher.probe(handle).phase is Phase.UNKNOWN
    with pytest.raises(SubstrateUnreachable):
        launcher.cancel(handle)
    wait_for_phase(launcher, handle, Phase.RUNNING)
    assert is_alive(pid)
    stand_in.end()
    assert over(launcher, handle) == Sighting(Phase.ENDED, detail="the executor ended with exit code 0", proved=True)


def test_a_cluster_that_is_not_there_is_unreachable(stand_in: StandIn) -> None:
    launcher = make_launcher("ray", stand_in.settings({"address": "127.0.0.1:1"}))
    plan = launcher.render(order())
    handle = Handle(launcher="ray", name=plan.name)

    assert launcher.probe(handle).phase is Phase.UNKNOWN
    for call in (lambda: launcher.launch(plan), lambda: launcher.cancel(handle), lambda: launcher.clear(handle)):
        with pytest.raises(SubstrateUnreachable):
            call()
    launcher.close()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_cluster_that_loses_its_head_is_unreachable_and_the_launcher_lives_on(stand_in: StandIn) -> None:
    """Ray ends every process that was connected to the head; only the one that speaks with it was."""
    cluster = start_cluster()
    launcher = make_launcher("ray", stand_in.settings(cluster.options()))
    try:
        handle, _, _ = started(launcher, stand_in)
        cluster.gcs().kill()
        wait_for_sighting(launcher, handle, lambda seen: seen.phase is Phase.UNKNOWN, "it is unknown")
        with pytest.raises(SubstrateUnreachable):
            launcher.cancel(handle)
    finally:
        launcher.close()
        cluster.close()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_memory_that_runs_low_has_its_cause(stand_in: StandIn) -> None:
    """Ray's own monitor kills the worker; its threshold is as low as can be, so that little is enough."""
    cluster = start_cluster(RAY_memory_usage_threshold="0.01", RAY_memory_monitor_refresh_ms="100")
    launcher = make_launcher("ray", stand_in.settings(cluster.options()))
    try:
        handle = launcher.launch(launcher.render(order()))
        seen = wait_for_phase(launcher, handle, Phase.ENDED)
        assert (seen.cause, seen.proved) == (Cause.OOM_KILLED, True)
        assert len(stand_in.notes()) <= 1
    finally:
        launcher.close()
        cluster.close()


def test_the_raylets_environment_does_not_reach_an_executor(launcher: Launcher[Any], stand_in: StandIn) -> None:
    """It holds a secret, and Ray hands it to every worker."""
    _, pid, worker = started(launcher, stand_in)

    assert b"raylet-secret" in Path(f"/proc/{worker.pid}/environ").read_bytes()
    assert b"raylet-secret" not in Path(f"/proc/{pid}/environ").read_bytes()
