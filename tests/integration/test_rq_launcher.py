"""The launcher `rq` on a real RQ worker and a real server, with a program that stands in for the executor."""

from __future__ import annotations

import os
import signal
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest
import redis

from tenure.errors import LaunchRefused, SubstrateUnreachable
from tenure.launchers.base import ExecutorCommand, Phase, Sighting
from tenure.launchers.catalog import make_launcher
from tenure.protocol.worker_messages import Cause
from tests.rq_fleet import QUEUE, RqFleet, start_rq_fleet
from tests.stand_in import StandIn, is_alive, order, wait_for_end, wait_for_phase, wait_for_sighting
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from tenure.launchers.base import Launcher


@pytest.fixture
def fleet(tmp_path: Path) -> Generator[RqFleet]:
    fleet = start_rq_fleet(tmp_path)
    yield fleet
    fleet.close()


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    return StandIn(tmp_path)


@pytest.fixture
def launcher(fleet: RqFleet, stand_in: StandIn) -> Generator[Launcher[Any]]:
    launcher = make_launcher("rq", stand_in.settings(fleet.options(), ("GIVEN", "yes")))
    yield launcher
    launcher.close()


@pytest.mark.parametrize("kind", ["rq.Worker", "rq.worker.SpawnWorker", "rq.SimpleWorker"])
def test_an_executor_runs_once_with_nothing_of_the_rq_workers_environment(
    fleet: RqFleet, launcher: Launcher[Any], stand_in: StandIn, kind: str
) -> None:
    if "Spawn" in kind and version("rq").startswith("2."):
        pytest.skip("the SpawnWorker of RQ 2 does not work with the Redis library that Tenure needs")
    fleet.start_worker(kind)
    plan = launcher.render(order())
    handle = launcher.launch(plan)
    stand_in.wait_for_start()

    assert wait_for_phase(launcher, handle, Phase.RUNNING).detail
    assert launcher.launch(plan) == handle
    stand_in.end()
    assert wait_for_phase(launcher, handle, Phase.ENDED).cause is None
    assert launcher.launch(plan) == handle
    assert launcher.probe(handle).phase is Phase.ENDED

    (note,) = stand_in.notes()
    # LC_CTYPE is what Python sets by itself where no locale is given.
    assert {name: value for name, value in note["environment"].items() if name != "LC_CTYPE"} == {"GIVEN": "yes"}
    assert note["argv"][2:4] == ["run-assignment", "--option"]
    launcher.clear(handle)
    assert launcher.probe(handle).phase is Phase.MISSING
    assert not [key for key in fleet.server.admin_list("KEYS", "*") if plan.name.encode() in bytes(str(key), "utf8")]


def test_a_queued_job_is_launched_once_and_cancelled_without_a_start(
    fleet: RqFleet, launcher: Launcher[Any], stand_in: StandIn
) -> None:
    plan = launcher.render(order())
    handle = launcher.launch(plan)
    launcher.launch(plan)
    other = launcher.launch(launcher.render(order()))

    assert fleet.server.admin("LLEN", f"rq:queue:{QUEUE}") == 2
    assert launcher.probe(handle).phase is Phase.STARTING
    launcher.cancel(handle)
    launcher.cancel(handle)
    assert launcher.probe(handle) == Sighting(Phase.ENDED, Cause.EXECUTOR_REMOVED, "cancelled at RQ")

    fleet.start_worker()
    stand_in.wait_for_start()
    assert stand_in.notes()[0]["argv"][-1].count(other.name.split("-")[1].upper()) == 1


def test_a_killed_work_horse_takes_its_executor_along_and_its_end_is_proved(
    fleet: RqFleet, launcher: Launcher[Any], stand_in: StandIn
) -> None:
    worker = fleet.start_worker()
    handle = launcher.launch(launcher.render(order()))
    pid = stand_in.wait_for_start()

    os.kill(fleet.horse(worker), signal.SIGKILL)
    wait_for_end(pid)

    seen = wait_for_phase(launcher, handle, Phase.ENDED)
    assert (seen.cause, seen.proved) == (Cause.EXECUTOR_DIED, True)
    assert "waitpid returned 9" in seen.detail
    launcher.launch(launcher.render(order()))
    stand_in.wait_for_start(2)


@pytest.mark.slow
def test_an_executor_lives_on_when_its_rq_worker_is_killed_and_nothing_is_said_of_its_end(
    fleet: RqFleet, launcher: Launcher[Any], stand_in: StandIn
) -> None:
    worker = fleet.start_worker()
    handle = launcher.launch(launcher.render(order()))
    pid = stand_in.wait_for_start()
    horse = fleet.horse(worker)

    worker.kill()
    worker.wait()
    assert is_alive(pid)
    assert launcher.probe(handle).phase is Phase.RUNNING
    os.kill(horse, signal.SIGKILL)
    wait_for_end(pid)
    assert launcher.probe(handle).phase is Phase.RUNNING  # RQ's record; the lease knows better

    fleet.start_worker()
    launcher.launch(launcher.render(order()))
    stand_in.wait_for_start(2)
    assert launcher.probe(handle).phase in {Phase.RUNNING, Phase.ENDED}


def test_a_job_whose_rq_worker_was_stopped_cold_has_ended_and_nothing_is_proved(
    fleet: RqFleet, launcher: Launcher[Any], stand_in: StandIn
) -> None:
    """RQ's record says that it runs, until another RQ worker cleans up after a while."""
    worker = fleet.start_worker()
    handle = launcher.launch(launcher.render(order()))
    pid = stand_in.wait_for_start()

    def has_ended() -> bool:
        worker.terminate()  # one that follows the first by less than a second does not count
        return worker.poll() is not None

    wait_until(has_ended, "the RQ worker has ended", step_ms=300)
    wait_for_end(pid)
    seen = wait_for_phase(launcher, handle, Phase.ENDED)
    assert (seen.cause, seen.proved) == (None, False)
    assert "has left" in seen.detail


def test_an_executor_that_was_killed_alone_is_proved_dead(
    fleet: RqFleet, launcher: Launcher[Any], stand_in: StandIn
) -> None:
    fleet.start_worker()
    handle = launcher.launch(launcher.render(order()))
    os.kill(stand_in.wait_for_start(), signal.SIGKILL)

    seen = wait_for_phase(launcher, handle, Phase.ENDED)
    assert (seen.cause, seen.proved) == (Cause.EXECUTOR_DIED, True)
    assert seen.detail == "the executor ended with signal 9"


@pytest.mark.slow
def test_an_executor_that_could_not_reach_the_fleet_has_ended_without_a_word(
    fleet: RqFleet, launcher: Launcher[Any], stand_in: StandIn
) -> None:
    stand_in.end(3)
    fleet.start_worker()
    handle = launcher.launch(launcher.render(order()))

    seen = wait_for_phase(launcher, handle, Phase.ENDED)
    assert (seen.cause, seen.proved) == (Cause.EXECUTOR_DIED, True)
    assert "exit code 3" in seen.detail


def test_a_stopped_job_is_killed_and_cancel_may_be_repeated(
    fleet: RqFleet, launcher: Launcher[Any], stand_in: StandIn
) -> None:
    fleet.start_worker()
    handle = launcher.launch(launcher.render(order()))
    pid = stand_in.wait_for_start()

    launcher.cancel(handle)
    wait_for_end(pid)
    seen = wait_for_phase(launcher, handle, Phase.ENDED)
    assert (seen.cause, seen.proved) == (Cause.EXECUTOR_REMOVED, True)
    launcher.cancel(handle)
    launcher.clear(handle)
    launcher.clear(handle)
    launcher.cancel(handle)
    assert launcher.probe(handle).phase is Phase.MISSING


def test_cancelling_again_and_again_spares_the_rq_worker(
    fleet: RqFleet, launcher: Launcher[Any], stand_in: StandIn
) -> None:
    """A worker of RQ that is told to end a job which has just ended kills its own process group."""
    worker = fleet.start_worker()
    handle = launcher.launch(launcher.render(order()))
    pid = stand_in.wait_for_start()

    def over() -> bool:
        launcher.cancel(handle)
        return launcher.probe(handle).phase is Phase.ENDED

    wait_until(over, "it is over")
    wait_for_end(pid)
    launcher.launch(launcher.render(order()))
    assert is_alive(stand_in.wait_for_start(2))
    assert worker.poll() is None


def test_what_rq_has_started_is_not_stopped_before_it_has_begun(fleet: RqFleet, launcher: Launcher[Any]) -> None:
    """Until then there may be no work-horse, and the worker of RQ would kill its own process group instead."""
    handle = launcher.launch(launcher.render(order()))
    connection: Any = redis.Redis(host="127.0.0.1", port=fleet.server.port)
    key = f"rq:job:{handle.name}"
    connection.hset(key, mapping={"status": "started", "worker_name": "muscle"})
    commands = connection.pubsub(ignore_subscribe_messages=True)
    commands.subscribe("rq:pubsub:muscle")
    wait_until(lambda: commands.subscribed, "it listens")

    launcher.cancel(handle)
    connection.hset(key, "meta", '{"tenure_begun": true}')
    connection.publish("rq:pubsub:muscle", "begun")
    launcher.cancel(handle)
    launcher.cancel(handle)
    connection.publish("rq:pubsub:muscle", "end")

    heard: list[bytes] = []
    wait_until(lambda: _heard(commands, heard) == b"end", "all is heard")
    assert heard[0] == b"begun"
    assert len(heard) == 3
    connection.close()


def _heard(commands: Any, heard: list[bytes]) -> bytes:
    while (message := commands.get_message()) is not None:
        heard.append(message["data"])
    return heard[-1] if heard else b""


def test_a_work_horse_passes_sigterm_on(fleet: RqFleet, launcher: Launcher[Any], stand_in: StandIn) -> None:
    worker = fleet.start_worker()
    handle = launcher.launch(launcher.render(order()))
    pid = stand_in.wait_for_start()

    os.kill(fleet.horse(worker), signal.SIGTERM)
    wait_for_phase(launcher, handle, Phase.ENDED)
    assert (stand_in.folder / f"{pid}.drained").exists()


@pytest.mark.slow
def test_a_flushed_queue_is_missing_and_the_executor_that_runs_is_not_touched(
    fleet: RqFleet, launcher: Launcher[Any], stand_in: StandIn
) -> None:
    fleet.start_worker()
    handle = launcher.launch(launcher.render(order()))
    waiting = launcher.launch(launcher.render(order()))
    pid = stand_in.wait_for_start()

    fleet.server.admin("FLUSHALL")
    assert launcher.probe(handle).phase is Phase.MISSING
    assert launcher.probe(waiting).phase is Phase.MISSING
    assert is_alive(pid)
    launcher.cancel(waiting)
    stand_in.end()
    wait_for_end(pid)
    assert len(stand_in.notes()) == 1


def test_a_program_that_is_not_there_is_a_refusal(fleet: RqFleet, stand_in: StandIn) -> None:
    settings = stand_in.settings(fleet.options())
    launcher = make_launcher(
        "rq", type(settings)(ExecutorCommand(("not-here",)), settings.folder, settings.clock, settings.entropy,
                             fleet.options())
    )  # fmt: skip
    fleet.start_worker()
    handle = launcher.launch(launcher.render(order()))

    seen = wait_for_sighting(launcher, handle, lambda seen: seen.phase is Phase.ENDED, "it has ended")
    assert (seen.cause, seen.proved) == (Cause.LAUNCH_REFUSED, True)
    assert "there is no program 'not-here'" in seen.detail
    launcher.close()


def test_a_worker_that_reads_pickle_cannot_start_it(fleet: RqFleet, launcher: Launcher[Any], stand_in: StandIn) -> None:
    fleet.start_worker("rq.Worker", "--serializer", "pickle")
    handle = launcher.launch(launcher.render(order()))

    seen = wait_for_phase(launcher, handle, Phase.ENDED)
    assert (seen.cause, seen.proved) == (Cause.LAUNCH_REFUSED, True)
    assert seen.detail.endswith("start RQ workers with --serializer json")
    assert not stand_in.notes()


def test_a_server_that_is_down_is_unreachable_and_says_nothing_of_executors(
    fleet: RqFleet, launcher: Launcher[Any]
) -> None:
    plan = launcher.render(order())
    handle = launcher.launch(plan)
    fleet.server.stop()

    assert launcher.probe(handle).phase is Phase.UNKNOWN
    for call in (lambda: launcher.launch(plan), lambda: launcher.cancel(handle), lambda: launcher.clear(handle)):
        with pytest.raises(SubstrateUnreachable):
            call()


def test_a_full_server_refuses_and_nothing_is_left_of_the_job(fleet: RqFleet, launcher: Launcher[Any]) -> None:
    fleet.server.admin("CONFIG", "SET", "maxmemory", "1")
    plan = launcher.render(order())
    with pytest.raises(LaunchRefused):
        launcher.launch(plan)
    fleet.server.admin("CONFIG", "SET", "maxmemory", "0")
    assert fleet.server.admin("LLEN", f"rq:queue:{QUEUE}") == 0
    launcher.launch(plan)
    wait_until(lambda: fleet.server.admin("LLEN", f"rq:queue:{QUEUE}") == 1, "it is queued")


def test_what_is_refused_was_never_in_the_queue(fleet: RqFleet, stand_in: StandIn) -> None:
    """An RQ worker would have taken it at once, and a refusal says that nothing was started."""
    rights = ("resetchannels", "&*", "+@all", "~rq:job:*", "~rq:queue*", "~rq:registry*", "%R~rq:tenure:*")
    fleet.server.admin("ACL", "SETUSER", "limited", "reset", "on", "nopass", *rights)
    options = fleet.options(redis_url=fleet.server.url.replace("redis://", "redis://limited@"))
    launcher = make_launcher("rq", stand_in.settings(options))
    with pytest.raises(LaunchRefused, match="rights"):
        launcher.launch(launcher.render(order()))
    assert "cmdstat_rpush" not in str(fleet.server.admin("INFO", "commandstats"))
    launcher.close()
