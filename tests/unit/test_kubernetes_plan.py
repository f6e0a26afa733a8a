"""What is created on a cluster for one assignment, checked against the schemas that Kubernetes publishes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tenure.errors import InvalidSettings
from tenure.launchers.base import ExecutorCommand, LauncherSettings, LaunchOrder
from tenure.launchers.kubernetes_launcher import rendering
from tenure.launchers.kubernetes_options import KubernetesOptions
from tenure.launchers.kubernetes_plan import KubernetesPlan
from tenure.launchers.kubernetes_pod import executor_pod
from tenure.protocol.launch import LaunchTicket
from tenure.testing import ManualClock, SeededEntropy
from tests.kubernetes_objects import check, read_yaml

IMAGE = "registry.example/tenure@sha256:" + "0" * 64
EVERYTHING = {
    "image_pull_secrets": "registry",
    "cpu_limit": "2",
    "work_claim": "work",
    "artifacts_claim": "files",
    "artifacts_path": "/srv/files",
    "resources": "gpu=nvidia.com/gpu",
    "runtime_class": "gvisor",
    "priority_class": "low",
    "queue": "site-a",
    "node_selector": "pool=batch",
    "tolerations": ({"key": "batch", "operator": "Exists", "effect": "NoSchedule"},),
    "labels": "team=tides",
    "annotations": "sidecar.istio.io/inject=false",
    "broker_namespace": "broker",
}


def ticket(**other: Any) -> LaunchTicket:
    fields: dict[str, Any] = {
        "namespace": "main",
        "site": "batch",
        "parent": "w1",
        "capability": "cpu",
        "entry": "1-2",
        "world": "world",
        "run": "run",
        "task_id": "01JD" + "A" * 22,
        "attempt": 3,
        "fence": 7,
        "digest": "d" * 64,
        "ttl_ms": 30_000,
    }
    return LaunchTicket(**{**fields, **other})


def rendered(order: LaunchOrder | None = None, *arguments: str, **options: Any) -> KubernetesPlan:
    settings = LauncherSettings(
        ExecutorCommand(("python", "-m", "tenure"), arguments, (("LANG", "C.UTF-8"),)),
        Path("/nowhere"),
        ManualClock(),
        SeededEntropy(),
        {"image": IMAGE, **options},
    )
    return rendering(settings)(order or LaunchOrder(ticket()))


def pod_of(plan: KubernetesPlan) -> dict[str, Any]:
    return dict[str, Any](plan.job["spec"]["template"]["spec"])


def container_of(plan: KubernetesPlan) -> dict[str, Any]:
    (container,) = pod_of(plan)["containers"]
    return dict[str, Any](container)


@pytest.mark.parametrize("options", [{}, EVERYTHING, {"lease": False}], ids=["few", "all", "no lease"])
def test_everything_that_is_shown_is_what_an_api_server_takes(options: dict[str, Any]) -> None:
    order = LaunchOrder(ticket(), memory_bytes=1 << 30, timeout_ms=60_000, resources=(("gpu", 2), ("seat", 1)))
    plan = rendered(order, **options)
    documents = read_yaml(plan.shown_with_premises())
    for document in documents:
        check(document)
    assert documents == [*plan.surroundings, plan.job, *([plan.lease] if plan.lease else [])]
    assert plan == rendered(order, **options)
    kinds = ["Namespace", "ServiceAccount", "ServiceAccount", "Role", "RoleBinding", "NetworkPolicy", "Secret", "Job"]
    assert [document["kind"] for document in documents][:8] == kinds


def test_the_cluster_is_told_to_start_one_pod_once() -> None:
    spec = rendered().job["spec"]
    assert (spec["parallelism"], spec["completions"], spec["backoffLimit"]) == (1, 1, 0)
    assert spec["podReplacementPolicy"] == "Failed"
    assert {rule["action"] for rule in spec["podFailurePolicy"]["rules"]} == {"FailJob"}
    assert spec["template"]["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize(
    ("timeout_ms", "options", "expected"),
    [
        (None, {}, None),
        (60_001, {}, 61 + 900),
        (60_000, {"deadline_slack_s": "30"}, 90),
        (60_000, {"deadline_s": "7200"}, 7200),
        (None, {"deadline_s": 7200}, 7200),
    ],
)
def test_a_job_ends_some_time_after_its_task_should_have(
    timeout_ms: int | None, options: dict[str, Any], expected: int | None
) -> None:
    plan = rendered(LaunchOrder(ticket(), timeout_ms=timeout_ms), **options)
    assert plan.job["spec"].get("activeDeadlineSeconds") == expected


def test_the_container_has_room_for_the_task_and_its_executor() -> None:
    order = LaunchOrder(ticket(), memory_bytes=(1 << 30) + 1, resources=(("gpu", 2), ("seat", 1)))
    amounts = container_of(rendered(order, resources={"gpu": "nvidia.com/gpu"}))["resources"]
    assert amounts["limits"] == {"memory": "1281Mi", "ephemeral-storage": "4Gi", "nvidia.com/gpu": "2"}
    assert amounts["requests"] == {**amounts["limits"], "cpu": "1"}


def test_the_credential_is_a_file_that_is_renewed_and_nothing_else_knows_it() -> None:
    plan = rendered(None, "--allow", "tasks", "--broker-url-file", "/home/me/broker.url", "--broker-url=redis://me")
    container = container_of(plan)
    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "credentials"]
    (volume,) = [volume for volume in pod_of(plan)["volumes"] if volume["name"] == "credentials"]
    assert mount == {"name": "credentials", "mountPath": "/run/tenure/credentials", "readOnly": True}
    assert volume["projected"]["defaultMode"] == 0o440
    assert container["args"] == [
        *("run-assignment", "--allow", "tasks", "--broker-url-file", "/run/tenure/credentials/url"),
        *("--ticket", ticket().text()),
    ]
    assert "/home/me" not in plan.shown()
    assert "redis://" not in plan.shown()
    assert {entry["name"] for entry in container["env"]} == {"HOME", "TMPDIR", "LANG"}
    assert container["command"] == ["python", "-m", "tenure"]


@pytest.mark.parametrize(
    ("word", "written"), [("$(HOME)", "$$(HOME)"), ("$$(HOME)", "$$$$(HOME)"), ("a$$b", "a$$$$b"), ("a$", "a$$")]
)
def test_no_word_is_taken_for_a_variable_of_the_cluster(word: str, written: str) -> None:
    """A cluster puts a variable's value in place of $(NAME), and one $ in place of two, in all of these."""
    executor = ExecutorCommand((word,), ("--allow", word), (("WORD", word),))
    (container,) = executor_pod(LaunchOrder(ticket()), KubernetesOptions(image=IMAGE), executor)["containers"]
    assert container["command"] == [written]
    assert container["args"][2] == written
    assert container["env"][-1] == {"name": "WORD", "value": written}


def test_an_attempt_has_a_folder_of_its_own_on_a_claim() -> None:
    mounts = container_of(rendered(work_claim="work"))["volumeMounts"]
    paths = [mount.get("subPath") for mount in mounts if mount["name"] == "work"]
    assert paths == [f"main/{ticket().task_id.lower()}/f7"]


def test_a_pod_carries_no_label_of_the_queue_that_its_job_waits_in() -> None:
    plan = rendered(queue="site-a")
    name = "kueue.x-k8s.io/queue-name"
    assert plan.job["metadata"]["labels"][name] == "site-a"
    assert name not in plan.job["spec"]["template"]["metadata"]["labels"]


@pytest.mark.parametrize("name", ["_run", "run.", "r" * 64])
def test_names_that_are_no_labels_are_found_in_full_among_the_annotations(name: str) -> None:
    meta = rendered(LaunchOrder(ticket(run=name))).job["metadata"]
    assert meta["labels"]["tenure/run"].startswith("sha256-")
    assert meta["annotations"]["tenure/run"] == name
    assert meta["annotations"]["tenure/digest"] == "sha256:" + "d" * 64
    assert meta["labels"]["tenure/fence"] == "7"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"image": None}, "image"),
        ({"image": "two words"}, "an image looks like registry.example/tenure@sha256"),
        ({"imagee": "x"}, "has no option 'imagee'"),
        ({"namespace": "Site_A"}, "small letters"),
        ({"memory": "lots"}, "an amount such as 500m, 2 or 4Gi"),
        ({"secret_path": "run/../x"}, "an absolute path inside the pod"),
        ({"work_path": "/run//tenure/credentials"}, "different folders"),
        ({"artifacts_path": "/srv"}, "go together"),
        ({"labels": "team"}, "key=value,key=value"),
        ({"labels": {"team": "a b"}}, "a label has at most 63"),
        ({"queue": "q" * 64}, "at most 63 characters"),
        ({"deadline_s": "0"}, "must be at least 1"),
        ({"deadline_s": True}, "true and false mean nothing there"),
        ({"ttl_after_finished_s": False}, "true and false mean nothing there"),
        ({"image_pull_policy": "Sometimes"}, "'Always', 'IfNotPresent' or 'Never'"),
    ],
)
def test_an_option_that_cannot_be_is_refused_with_what_it_looks_like(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        rendered(**options)
    assert said in str(refused.value)


def test_every_option_is_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "launchers.md").read_text()
    section = page.partition("\n## Kubernetes\n")[2].partition("\n## ")[0]
    assert [name for name in KubernetesOptions.model_fields if f"`{name}`" not in section] == []
