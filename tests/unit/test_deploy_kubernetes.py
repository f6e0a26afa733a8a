"""The fleet for a cluster in deploy/kubernetes, checked against the schemas that Kubernetes publishes."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tenure.launchers.kubernetes_options import KubernetesOptions
from tenure.launchers.options import read_options
from tests.kubernetes_objects import check, read_yaml

BASE = Path(__file__).parents[2] / "deploy" / "kubernetes"
FOLDERS = (BASE, BASE / "launcher")


def documents(folder: Path) -> list[dict[str, Any]]:
    (chosen,) = read_yaml((folder / "kustomization.yaml").read_text())
    return [found for name in chosen["resources"] for found in read_yaml((folder / name).read_text())]


def specs(folder: Path) -> dict[str, dict[str, Any]]:
    """The pods, by what makes them."""
    return {
        f"{item['kind']} {item['metadata']['name']}": item["spec"]["template"]["spec"]
        for item in documents(folder)
        if item["kind"] in {"Deployment", "StatefulSet"}
    }


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_an_api_server_takes_all_of_it_and_nothing_is_left_out(folder: Path) -> None:
    for item in documents(folder):
        check(item)
    (chosen,) = read_yaml((folder / "kustomization.yaml").read_text())
    assert {path.name for path in folder.glob("*.yaml")} == {"kustomization.yaml", *chosen["resources"]}
    assert {item["metadata"].get("namespace", chosen["namespace"]) for item in documents(folder)} == {
        chosen["namespace"]
    }
    images = {container["image"] for spec in specs(folder).values() for container in spec["containers"]}
    assert images == {image["name"] for image in chosen["images"]}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_address_is_a_file_for_every_part(folder: Path) -> None:
    for spec in specs(folder).values():
        (container,) = spec["containers"]
        assert any(mount["mountPath"] == "/run/tenure/credentials" for mount in container["volumeMounts"])
        (source,) = [volume["projected"] for volume in spec["volumes"] if volume["name"] == "credentials"]
        assert source["defaultMode"] == 0o440
        assert {entry["value"] for entry in container["env"]} == {"/run/tenure/credentials/url"}


def test_only_the_broker_holds_the_secret_by_which_one_may_do_everything() -> None:
    """So that a worker's may be exchanged for a site's. The launcher's is of its own namespace."""
    held = {
        name: source["secret"]["name"]
        for name, spec in specs(BASE).items()
        for volume in spec["volumes"]
        for source in volume.get("projected", {}).get("sources", [])
    }
    assert held == {
        "StatefulSet broker": "tenure-broker",
        "StatefulSet coordinator": "tenure-coordinator",
        "Deployment worker": "tenure-worker",
    }
    page = (BASE / "kustomization.yaml").read_text()
    assert "for part in broker coordinator worker; do" in page


def test_only_the_launcher_may_ask_the_cluster() -> None:
    tokens = {name: spec["automountServiceAccountToken"] for folder in FOLDERS for name, spec in specs(folder).items()}
    assert [name for name, has_one in tokens.items() if has_one] == ["StatefulSet launcher"]


def test_a_worker_has_more_time_to_end_than_it_gives_its_tasks() -> None:
    spec = specs(BASE)["Deployment worker"]
    (container,) = spec["containers"]
    drain = container["args"][container["args"].index("--drain-for") + 1]
    assert drain == "5m"
    assert spec["terminationGracePeriodSeconds"] > 300


def test_there_is_one_coordinator_and_one_launcher_with_a_disk_each() -> None:
    for item in (*documents(BASE), *documents(BASE / "launcher")):
        if item["metadata"]["name"] in {"coordinator", "launcher", "broker"} and item["kind"] == "StatefulSet":
            assert item["spec"]["replicas"] == 1
            assert item["spec"]["volumeClaimTemplates"]


def test_the_launchers_own_file_is_one_that_it_takes() -> None:
    table = tomllib.loads((BASE / "launcher" / "launcher.toml").read_text())["kubernetes"]
    options = read_options(KubernetesOptions, "kubernetes", table)
    (chosen,) = read_yaml((BASE / "launcher" / "kustomization.yaml").read_text())
    assert options.namespace == chosen["namespace"]
    spec = specs(BASE / "launcher")["StatefulSet launcher"]
    assert spec["serviceAccountName"] == options.launcher_account
