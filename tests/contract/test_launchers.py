"""What every launcher does: the definition of `tenure.launchers.base.Launcher`, on every substrate that is here."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.clock import SystemClock, SystemEntropy
from tenure.launchers.base import Handle, Launcher, LauncherSettings, Phase
from tenure.launchers.catalog import make_launcher
from tenure.protocol.worker_messages import Cause
from tests.fixtures_launchers import LAUNCHERS, LauncherBench, Premises, open_bench
from tests.launcher_folder import installed
from tests.stand_in import StandIn, order, wait_for_end, wait_for_phase, wait_for_sighting

NOWHERE = "redis://:password@127.0.0.1:1"
OVER = frozenset({Phase.ENDED, Phase.MISSING})
DIED = frozenset({Cause.EXECUTOR_DIED, Cause.EXECUTOR_REMOVED})

Again = Callable[[], Launcher[Any]]
Monkey = pytest.MonkeyPatch


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    (tmp_path / "stand_in").mkdir()
    return StandIn(tmp_path / "stand_in")


@pytest.fixture(params=[*LAUNCHERS, "folder"])
def name(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: Monkey) -> str:
    """Every launcher, that of the example in `examples/launcher` included."""
    if request.param == "folder":
        monkeypatch.setattr(sys, "path", [*sys.path, *installed(tmp_path_factory.mktemp("installed"))])
    return str(request.param)


@pytest.fixture
def bench(name: str, stand_in: StandIn, tmp_path: Path, monkeypatch: Monkey) -> Iterator[LauncherBench]:
    """The substrate, on which a program stands in for executors."""
    monkeypatch.setenv("HOST_SECRET", "not for executors")
    (tmp_path / "bench").mkdir()
    with open_bench(name, Premises(tmp_path / "bench", NOWHERE, stand_in.command().program)) as bench:
        yield bench
        # What still runs ends by itself.
        stand_in.end()


@pytest.fixture
def again(name: str, bench: LauncherBench, stand_in: StandIn, tmp_path: Path) -> Iterator[Again]:
    """One more launcher on the same substrate, as a worker has one after its restart."""
    private = tmp_path / "private"
    private.mkdir()
    made: list[Launcher[Any]] = []

    def make() -> Launcher[Any]:
        command = stand_in.command(("GIVEN", "yes"))
        settings = LauncherSettings(command, private, SystemClock(), SystemEntropy(), bench.options, writes=True)
        made.append(make_launcher(name, settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def launcher(again: Again) -> Launcher[Any]:
    return again()


def test_rendering_is_pure(name: str, launcher: Launcher[Any], again: Again, stand_in: StandIn) -> None:
    """The same order gives the same plan, whoever renders it, and nothing is started."""
    wanted = order(memory_bytes=64 * 1024 * 1024, timeout_ms=60_000)
    plan = launcher.render(wanted)

    assert launcher.name == name
    assert plan == launcher.render(wanted) == again().render(wanted)
    assert plan.name == wanted.ticket.name
    assert wanted.ticket.task_id in plan.shown()
    assert plan.shown() == again().render(wanted).shown()
    assert "password" not in plan.shown()
    assert launcher.render(order()) != plan
    assert stand_in.notes() == []


def test_a_plan_is_started_once_however_often_it_is_launched(
    launcher: Launcher[Any], again: Again, stand_in: StandIn
) -> None:
    """Also by the next agent of the worker, and also when it is over."""
    plan = launcher.render(order())
    handle = launcher.launch(plan)

    assert (handle.launcher, handle.name) == (launcher.name, plan.name)
    assert launcher.launch(plan) == handle
    stand_in.wait_for_start()
    assert again().launch(plan) == handle
    stand_in.end()
    wait_for_sighting(launcher, handle, lambda seen: seen.phase in OVER, "it is over")
    assert launcher.launch(plan) == handle
    assert again().launch(plan) == handle
    assert launcher.probe(handle).phase in OVER
    assert len(stand_in.notes()) == 1


def test_its_phases_are_seen(launcher: Launcher[Any], stand_in: StandIn) -> None:
    """Running while it runs, and an end without a cause when it has ended in good order."""
    handle = launcher.launch(launcher.render(order()))
    pid = stand_in.wait_for_start()

    wait_for_phase(launcher, handle, Phase.RUNNING)
    stand_in.end()
    wait_for_end(pid)
    assert wait_for_phase(launcher, handle, Phase.ENDED).cause is None


def test_a_bad_end_has_a_cause(launcher: Launcher[Any], stand_in: StandIn) -> None:
    """An executor that ends with another code than 0."""
    handle = launcher.launch(launcher.render(order()))
    stand_in.wait_for_start()
    stand_in.end(3)

    seen = wait_for_phase(launcher, handle, Phase.ENDED)
    assert seen.cause is Cause.EXECUTOR_DIED
    assert seen.detail


def test_a_killed_executor_is_over_soon(launcher: Launcher[Any], stand_in: StandIn) -> None:
    """By SIGKILL, so that it can say nothing itself."""
    handle = launcher.launch(launcher.render(order()))
    os.kill(stand_in.wait_for_start(), signal.SIGKILL)

    seen = wait_for_sighting(launcher, handle, lambda seen: seen.phase in OVER, "it is over")
    assert seen.cause in DIED
    assert seen.proved


def test_what_runs_is_ended_by_force(launcher: Launcher[Any], stand_in: StandIn) -> None:
    """And asking again changes nothing, nor does asking when it is over."""
    handle = launcher.launch(launcher.render(order()))
    pid = stand_in.wait_for_start()
    wait_for_phase(launcher, handle, Phase.RUNNING)

    launcher.cancel(handle)
    launcher.cancel(handle)
    wait_for_sighting(launcher, handle, lambda seen: seen.phase in OVER, "it is over")
    wait_for_end(pid)
    launcher.cancel(handle)
    assert launcher.probe(handle).phase in OVER
    assert len(stand_in.notes()) == 1


def test_what_waits_never_starts_once_it_is_cancelled(
    bench: LauncherBench, launcher: Launcher[Any], stand_in: StandIn
) -> None:
    """It is starting, not running, while the substrate has no room for it."""
    if not bench.queues:
        pytest.skip("on this substrate nothing waits")
    bench.hold()
    first, second = (launcher.launch(launcher.render(order())) for _ in range(2))

    assert launcher.probe(first).phase is Phase.STARTING
    launcher.cancel(first)
    wait_for_sighting(launcher, first, lambda seen: seen.phase in OVER, "it is over")
    bench.let_go()
    stand_in.wait_for_start()
    wait_for_phase(launcher, second, Phase.RUNNING)
    assert len(stand_in.notes()) == 1


def test_nothing_is_left_of_what_is_cleared_away(launcher: Launcher[Any], stand_in: StandIn) -> None:
    """And clearing again changes nothing."""
    handle = launcher.launch(launcher.render(order()))
    stand_in.wait_for_start()
    stand_in.end()
    wait_for_phase(launcher, handle, Phase.ENDED)

    launcher.clear(handle)
    wait_for_phase(launcher, handle, Phase.MISSING)
    launcher.clear(handle)


def test_a_handle_of_nothing_is_missing(name: str, launcher: Launcher[Any]) -> None:
    """It can be cancelled and cleared away like any other."""
    handle = Handle(launcher=name, name=order().ticket.name)

    assert launcher.probe(handle).phase is Phase.MISSING
    launcher.cancel(handle)
    launcher.clear(handle)
    assert launcher.probe(handle).phase is Phase.MISSING


def test_a_handle_is_good_after_a_restart(launcher: Launcher[Any], again: Again, stand_in: StandIn) -> None:
    """Written down and read again, it names the same executor for another launcher."""
    handle = launcher.launch(launcher.render(order()))
    pid = stand_in.wait_for_start()
    launcher.close()
    read = Handle.model_validate_json(handle.model_dump_json())
    later = again()

    assert read == handle
    wait_for_phase(later, read, Phase.RUNNING)
    later.cancel(read)
    wait_for_sighting(later, read, lambda seen: seen.phase in OVER, "it is over")
    wait_for_end(pid)


def test_an_executor_gets_the_environment_that_it_was_given(
    bench: LauncherBench, launcher: Launcher[Any], stand_in: StandIn
) -> None:
    """And nothing of the worker's, nor of the substrate's own."""
    launcher.launch(launcher.render(order()))
    stand_in.wait_for_start()

    # LC_CTYPE is what Python sets by itself where no locale is given.
    found = stand_in.notes()[0]["environment"].keys() - {"LC_CTYPE"}
    assert found <= {"GIVEN"} | bench.environment
