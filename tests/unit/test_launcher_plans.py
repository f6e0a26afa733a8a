"""What the launchers `rq` and `ray` would start, read from their plans, and what they make of what they are told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tenure.errors import InvalidSettings
from tenure.launchers.base import ExecutorCommand, Phase, Sighting
from tenure.launchers.kubernetes_options import KubernetesOptions
from tenure.launchers.local_plan import LocalOptions
from tenure.launchers.options import read_options
from tenure.launchers.ray_plan import RayOptions
from tenure.launchers.ray_plan import render as render_ray
from tenure.launchers.ray_sighting import sighting_of as ray_sighting
from tenure.launchers.rq_launcher import create as create_rq
from tenure.launchers.rq_plan import RqOptions
from tenure.launchers.rq_plan import render as render_rq
from tenure.launchers.rq_sighting import sighting_of as rq_sighting
from tenure.protocol.launch import launch_name
from tenure.protocol.worker_messages import Cause
from tests.stand_in import StandIn, order

EXECUTOR = ExecutorCommand(("tenure",), ("--allow", "tasks"), (("PATH", "/usr/bin"),))
TASK = "01JD0000000000000000000000"


def test_rq_is_asked_for_one_start_and_nothing_else() -> None:
    plan = render_rq(order(TASK), EXECUTOR, RqOptions(redis_url="redis://h", queue="muscle"))
    shown = json.loads(plan.shown())

    assert shown["job_id"] == plan.name == launch_name(TASK, 1, "w1")
    assert shown["args"][0][:4] == ["tenure", "run-assignment", "--allow", "tasks"]
    assert shown["args"][1] == {"PATH": "/usr/bin"}
    assert (shown["unique"], shown["retry"], shown["result_ttl"], shown["job_timeout"]) == (True, None, 0, -1)
    assert (shown["serializer"], shown["queue"]) == ("json", "muscle")


def test_ray_is_asked_for_one_start_and_nothing_else() -> None:
    plan = render_ray(order(TASK), EXECUTOR, RayOptions())
    shown = json.loads(plan.shown())

    assert shown["actor"]["name"] == shown["group"]["name"] == plan.name
    assert (shown["actor"]["max_restarts"], shown["actor"]["max_task_retries"]) == (0, 0)
    assert shown["retry_exceptions"] is False
    assert shown["group"]["bundles"] == [{"CPU": 1.0}]
    assert shown["arguments"][1] == {"PATH": "/usr/bin"}


def test_what_a_task_reserves_is_reserved_by_rays_names() -> None:
    wanted = order(TASK, memory_bytes=10**9, resources=(("gpus", 2), ("licences", 1), ("desk", 3)))
    request = render_ray(wanted, EXECUTOR, RayOptions(resources={"gpus": "GPU", "desk": "desks"})).request()

    assert request["group"]["bundles"] == [{"CPU": 1.0, "GPU": 2, "desks": 3, "memory": 10**9}]
    reserved = {name: request["actor"][name] for name in ("num_cpus", "num_gpus", "memory", "resources")}
    assert reserved == {"num_cpus": 1.0, "num_gpus": 2, "memory": 10**9, "resources": {"desks": 3}}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (RqOptions, {}),
        (RqOptions, {"redis_url": "redis://h", "redis_url_file": "/f"}),
        (RqOptions, {"redis_url": "redis://h", "secret-word": "1"}),
        (RqOptions, {"redis_url": "redis://h", "record_ttl_s": "soon"}),
        (RayOptions, {"variables": {"PATH": "secret-word"}}),
        (RayOptions, {"variables": {"RAY_AUTH_TOKEN": "soon"}}),
        (RayOptions, {"variables": {"RAY_REDIS_PASSWORD": "soon"}}),
        (RayOptions, {"address": "local"}),
        (RayOptions, {"address": ""}),
        (RayOptions, {"placement_timeout_s": "0"}),
        (RayOptions, {"cpus": True}),
        (LocalOptions, {"grace": True}),
    ],
)
def test_options_that_cannot_be_are_refused_without_their_values(kind: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings) as refused:
        read_options(kind, "it", options)
    assert "soon" not in str(refused.value)
    assert "message" not in str(refused.value)  # nobody sent one


def test_a_wrong_value_does_not_drag_all_options_behind_it() -> None:
    with pytest.raises(InvalidSettings) as refused:
        read_options(RayOptions, "ray", {"placement_timeout_s": "0"})
    assert "placement_timeout_s: " in refused.value.message
    assert "linger_s" not in str(refused.value)


def test_a_list_is_called_a_list() -> None:
    with pytest.raises(InvalidSettings, match="tolerations: it must be a list"):
        read_options(KubernetesOptions, "kubernetes", {"tolerations": 1})
    assert not read_options(
        KubernetesOptions, "kubernetes", {"image": "x", "lease": False}
    ).lease  # yes or no is meant there


def test_a_secret_of_ray_is_named_by_its_file() -> None:
    """Its variables stand on a command line for a moment."""
    named = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": "/run/credentials/ray"}
    assert RayOptions(variables=named).variables == named
    with pytest.raises(InvalidSettings, match="RAY_AUTH_TOKEN_PATH"):
        read_options(RayOptions, "ray", {"variables": {"RAY_AUTH_TOKEN": "word"}})


def test_options_may_be_words() -> None:
    assert read_options(RayOptions, "ray", {"cpus": "0.5", "linger_s": "30"}) == RayOptions(cpus=0.5, linger_s=30)


def test_a_password_belongs_into_a_file_of_ones_own(tmp_path: Path) -> None:
    settings = StandIn(tmp_path).settings
    with pytest.raises(InvalidSettings) as refused:
        create_rq(settings({"redis_url": "redis://:word@h"}))
    assert "word@" not in str(refused.value)

    file = tmp_path / "url"
    file.write_text("redis://:word@h\n")
    file.chmod(0o644)
    with pytest.raises(InvalidSettings, match="open to others"):
        create_rq(settings({"redis_url_file": str(file)}))


def test_rqs_url_is_not_called_the_brokers(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("http://h\n")
    file.chmod(0o600)
    for options in ({"redis_url": "redis://h?x=1"}, {"redis_url": "h"}, {"redis_url_file": str(file)}):
        with pytest.raises(InvalidSettings, match=r"^The RQ URL "):
            create_rq(StandIn(tmp_path).settings(options))


@pytest.mark.parametrize(
    ("status", "failure", "seen"),
    [
        ("queued", "", (Phase.STARTING, None, False)),
        ("started", "", (Phase.RUNNING, None, False)),
        ("finished", "", (Phase.ENDED, None, True)),
        ("stopped", "", (Phase.ENDED, Cause.EXECUTOR_REMOVED, True)),
        ("canceled", "", (Phase.ENDED, Cause.EXECUTOR_REMOVED, False)),
        ("failed", "Work-horse terminated; waitpid returned 9 (signal 9); ", (Phase.ENDED, Cause.EXECUTOR_DIED, True)),
        ("failed", "Moved to FailedJobRegistry, due to AbandonedJobError", (Phase.ENDED, Cause.EXECUTOR_DIED, False)),
        ("failed", "tenure.errors.LaunchRefused: no", (Phase.ENDED, Cause.LAUNCH_REFUSED, True)),
        ("failed", "rq.timeouts.JobTimeoutException: x", (Phase.ENDED, Cause.DEADLINE_EXCEEDED, False)),
        ("failed", "", (Phase.ENDED, Cause.EXECUTOR_DIED, False)),
        ("dancing", "", (Phase.UNKNOWN, None, False)),
    ],
)
def test_what_rq_says(status: str, failure: str, seen: tuple[Phase, Cause | None, bool]) -> None:
    assert summary(rq_sighting(status, failure, "w")) == seen


@pytest.mark.parametrize(
    ("found", "seen"),
    [
        ({"seen": "answered", "code": None}, (Phase.RUNNING, None, False)),
        ({"seen": "answered", "code": 0}, (Phase.ENDED, None, True)),
        ({"seen": "answered", "code": -9}, (Phase.ENDED, Cause.EXECUTOR_DIED, True)),
        ({"seen": "silent", "answered": False}, (Phase.STARTING, None, False)),
        ({"seen": "silent", "answered": True}, (Phase.RUNNING, None, False)),
        ({"seen": "absent", "group": False}, (Phase.MISSING, None, False)),
        ({"seen": "absent", "group": True}, (Phase.ENDED, Cause.EXECUTOR_DIED, False)),
        (("OutOfMemoryError", "…"), (Phase.ENDED, Cause.OOM_KILLED, True)),
        (("NodeDiedError", "…"), (Phase.ENDED, Cause.NODE_GONE, False)),
        (("ActorDiedError", "The actor died because its node has died."), (Phase.ENDED, Cause.NODE_GONE, False)),
        (("ActorDiedError", "it was killed by `ray.kill`."), (Phase.ENDED, Cause.EXECUTOR_REMOVED, False)),
        (("ActorDiedError", "Worker exit type: SYSTEM_ERROR"), (Phase.ENDED, Cause.EXECUTOR_DIED, True)),
        (("ActorDiedError", "…"), (Phase.ENDED, Cause.EXECUTOR_DIED, False)),
        (("ActorUnavailableError", "…"), (Phase.UNKNOWN, None, False)),
        (("RaySystemError", "…"), (Phase.UNKNOWN, None, False)),
    ],
)
def test_what_ray_says(found: dict[str, Any] | tuple[str, str], seen: tuple[Phase, Cause | None, bool]) -> None:
    asked = {"seen": "raised", "kind": found[0], "text": found[1]} if isinstance(found, tuple) else found
    assert summary(ray_sighting(asked)) == seen


HEAD = (
    "The actor died unexpectedly before finishing this task.\n\tclass_name: Executor\n\tactor_id: 97cfaf\n\tpid: 12\n"
)
EXIT = f"{HEAD}The actor is dead because its worker process has died. Worker exit type: "
CRASHED = "Worker unexpectedly exits with a connection error code 2. End of file"
GUESSED = (
    f"SYSTEM_ERROR Worker exit detail: {CRASHED}. Some common causes include: (1) the process was killed by the OOM"
)
GROUPED = "Destroying worker since its placement group was removed"
REMOVED = f"INTENDED_SYSTEM_EXIT Worker exit detail: {GROUPED}. Placement group id: ebac, bundle index: 0"
LOW = "1 worker(s) were killed due to the node running low on memory"
IN_INIT = "The actor died because of an error raised in its creation task, \x1b[36mray::x:Executor.__init__()\x1b[39m\n"
NO_PROGRAM = "there is no program 'x'. Install tenure here"


@pytest.mark.parametrize(
    ("kind", "text", "cause", "detail"),
    [
        (
            "ActorDiedError",
            EXIT + GUESSED,
            Cause.EXECUTOR_DIED,
            f"the Ray worker of its actor died: SYSTEM_ERROR: {CRASHED}",
        ),
        (
            "ActorDiedError",
            EXIT + REMOVED,
            Cause.EXECUTOR_REMOVED,
            f"its actor was removed: INTENDED_SYSTEM_EXIT: {GROUPED}",
        ),
        ("OutOfMemoryError", f"{LOW}.\nOOM kill reason", Cause.OOM_KILLED, f"Ray's memory monitor killed it: {LOW}"),
        (
            "ActorDiedError",
            f"{IN_INIT}  File 'x', line 1\ntenure.errors.LaunchRefused: {NO_PROGRAM}",
            Cause.LAUNCH_REFUSED,
            f"it could not be started there: {NO_PROGRAM}",
        ),
        ("ActorDiedError", HEAD, Cause.EXECUTOR_DIED, "the Ray worker of its actor died"),
    ],
)
def test_rays_reason_is_one_sentence_of_ours(kind: str, text: str, cause: Cause, detail: str) -> None:
    seen = ray_sighting({"seen": "raised", "kind": kind, "text": text})
    assert (seen.cause, seen.detail) == (cause, detail)


def test_a_long_reason_of_rays_is_cut_at_its_end_and_at_a_word() -> None:
    text = f"{EXIT}SYSTEM_ERROR Worker exit detail: {'longish ' * 100}"
    detail = ray_sighting({"seen": "raised", "kind": "ActorDiedError", "text": text}).detail

    assert detail.startswith("the Ray worker of its actor died: SYSTEM_ERROR: longish")
    assert detail.endswith(" longish …")
    assert len(detail) <= 300


@pytest.mark.parametrize(
    ("failure", "detail"),
    [
        ("Traceback\ntenure.errors.LaunchError: the executor ended with signal 9", "the executor ended with signal 9"),
        ("Traceback\nrq.exceptions.DeserializationError", "start RQ workers with --serializer json"),
    ],
)
def test_rqs_reason_names_no_class_of_ours_and_says_what_helps(failure: str, detail: str) -> None:
    seen = rq_sighting("failed", failure, "w")
    assert seen.detail.endswith(detail)
    assert "tenure.errors" not in seen.detail
    assert seen.proved


def summary(sighting: Sighting) -> tuple[Phase, Cause | None, bool]:
    return sighting.phase, sighting.cause, sighting.proved


@pytest.mark.parametrize("module", ["rq_plan", "rq_sighting", "rq_launcher", "rq_job", "ray_plan", "ray_launcher"])
def test_no_launchers_module_loads_its_library(module: str) -> None:
    script = f"import sys, tenure.launchers.{module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"rq", "ray"} & set(done.stdout.split())
