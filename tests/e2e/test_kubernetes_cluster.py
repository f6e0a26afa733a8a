"""The launcher `kubernetes` on a real cluster; in a namespace of its own, which is deleted afterwards.

`TENURE_TEST_KUBECONFIG` names the kubeconfig of an account that may create namespaces. `TENURE_TEST_KUBERNETES_IMAGE`
is an image with a shell (`busybox` when not given): what is tried is what the cluster says of pods, so no fleet is
needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tenure.clock import SystemClock, SystemEntropy
from tenure.launchers.base import ExecutorCommand, Handle, Launcher, LauncherSettings, Phase, Sighting
from tenure.launchers.catalog import make_launcher
from tenure.launchers.kubernetes_options import KubernetesOptions
from tenure.launchers.kubernetes_premises import premises
from tenure.protocol.worker_messages import Cause
from tests.stand_in import order
from tests.waiting import wait_until

KUBECONFIG = os.environ.get("TENURE_TEST_KUBECONFIG", "")  # noqa: TID251 - where the tester's cluster is
IMAGE = os.environ.get("TENURE_TEST_KUBERNETES_IMAGE", "busybox")  # noqa: TID251 - likewise
OVER = frozenset({Phase.ENDED, Phase.MISSING})
PATIENCE_S = 180.0

pytestmark = [
    pytest.mark.skipif(not KUBECONFIG, reason="TENURE_TEST_KUBECONFIG names no cluster"),
    pytest.mark.timeout(600),
    pytest.mark.slow,
]
Make = Callable[..., Launcher[Any]]


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, Any]]:
    """Those of a namespace that is made ready as `render-launch --example` says."""
    namespace = f"tenure-test-{SystemEntropy().token(4)}"
    given = {"image": IMAGE, "namespace": namespace, "kubeconfig": KUBECONFIG, "cpu": "50m", "memory": "64Mi"}
    config, client, utils = (import_module(f"kubernetes.{name}") for name in ("config", "client", "utils"))
    config.load_kube_config(KUBECONFIG)
    api = client.ApiClient()
    for item in premises(KubernetesOptions.model_validate(given)):
        utils.create_from_dict(api, item)
    yield given
    client.CoreV1Api(api).delete_namespace(namespace)


@pytest.fixture
def make(options: dict[str, Any], tmp_path: Path) -> Iterator[Make]:
    made: list[Launcher[Any]] = []

    def launcher(script: str, **more: Any) -> Launcher[Any]:
        command = ExecutorCommand(("/bin/sh", "-c", script, "executor"))
        given = {**options, **more}
        settings = LauncherSettings(command, tmp_path, SystemClock(), SystemEntropy(), given, writes=True)
        made.append(make_launcher("kubernetes", settings))
        return made[-1]

    yield launcher
    for each in made:
        each.close()


def until(launcher: Launcher[Any], handle: Handle, wanted: Callable[[Sighting], bool], what: str) -> Sighting:
    seen: list[Sighting] = []

    def look() -> bool:
        seen.append(launcher.probe(handle))
        return wanted(seen[-1])

    wait_until(look, what, PATIENCE_S, step_ms=500)
    return seen[-1]


def test_a_launch_runs_once_and_its_end_is_proved(make: Make) -> None:
    launcher = make("test -s /run/tenure/credentials/url && touch /tmp/x $HOME/x && sleep 5")
    plan = launcher.render(order())
    handle = launcher.launch(plan)
    until(launcher, handle, lambda seen: seen.phase is Phase.RUNNING, "it runs")
    assert launcher.launch(plan) == handle
    seen = until(launcher, handle, lambda seen: seen.phase is Phase.ENDED, "it has ended")
    assert (seen.cause, seen.proved) == (None, True)
    assert launcher.launch(plan) == handle
    launcher.clear(handle)
    until(launcher, handle, lambda seen: seen.phase is Phase.MISSING, "it is cleared away")


def test_a_bad_end_is_told(make: Make) -> None:
    launcher = make("exit 3")
    handle = launcher.launch(launcher.render(order()))
    seen = until(launcher, handle, lambda seen: seen.phase is Phase.ENDED, "it has ended")
    assert (seen.cause, seen.proved) == (Cause.EXECUTOR_DIED, True)
    launcher.clear(handle)


def test_what_runs_can_be_ended(make: Make) -> None:
    launcher = make("exec sleep 600", grace_s=1)
    handle = launcher.launch(launcher.render(order()))
    until(launcher, handle, lambda seen: seen.phase is Phase.RUNNING, "it runs")
    launcher.cancel(handle)
    until(launcher, handle, lambda seen: seen.phase in OVER, "it is over")
    launcher.clear(handle)


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ({"image": "registry.invalid/nothing:here"}, Cause.IMAGE_UNAVAILABLE),
        ({"cpu": "10000"}, Cause.UNSCHEDULABLE),
        ({"secret_name": "nothing"}, None),
    ],
)
def test_what_does_not_start_says_why(make: Make, more: dict[str, Any], cause: Cause | None) -> None:
    launcher = make("exit 0", **more)
    handle = launcher.launch(launcher.render(order()))
    if cause is not None:
        until(launcher, handle, lambda seen: seen.cause is cause, "it says why")
    assert launcher.probe(handle).phase is Phase.STARTING
    launcher.cancel(handle)
    until(launcher, handle, lambda seen: seen.phase in OVER, "it is over")
    launcher.clear(handle)
