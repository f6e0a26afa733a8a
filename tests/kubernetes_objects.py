"""What a Kubernetes API server checks of an object before it takes it: the published schemas, and rules beside them."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import Any

from tenure.launchers.kubernetes_objects import Object
from tests.fixtures_services import unavailable

_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_QUALIFIED = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
OLDEST = "1.31"
NEWEST = "1.37"


class NotAnObject(Exception):
    """What is wrong with an object, as its API server would say it."""


def check(item: Object, *versions: str) -> None:
    """Raise `NotAnObject` unless an API server of these versions would take it."""
    for version in versions or (OLDEST, NEWEST):
        _check_schema(item, version)
    meta = item["metadata"]
    _check_marks(meta)
    if not _SUBDOMAIN.fullmatch(meta["name"]) or len(meta["name"]) > 253:
        raise NotAnObject(f"metadata.name: Invalid value: {meta['name']!r}")
    match item["kind"]:
        case "Job":
            _check_job(item)
        case "Lease":
            _check_lease(item)
        case "StatefulSet" | "Deployment":
            _check_marks(item["spec"]["template"]["metadata"])
            _check_pod(item["spec"]["template"]["spec"], *item["spec"].get("volumeClaimTemplates", []))
        case _:
            pass


def _check_schema(item: Object, version: str) -> None:
    library = _library()
    try:
        library.validate(item, version, strict=True)
    except library.ValidationError as error:
        raise NotAnObject(f"{version}: {error.message} at {'.'.join(map(str, error.path))}") from None


@cache
def _library() -> Any:
    try:
        return import_module("kubernetes_validate")
    except ImportError:
        unavailable("kubernetes-validate, which carries the published schemas, is not installed")


def read_yaml(written: str) -> list[Object]:
    """The documents of a text."""
    yaml: Any = import_module("yaml")
    return list(yaml.safe_load_all(written))


def _check_marks(meta: Object) -> None:
    labels: dict[str, str] = meta.get("labels") or {}
    annotations: dict[str, str] = meta.get("annotations") or {}
    for key, value in labels.items():
        if not is_label_value(value):
            raise NotAnObject(f"metadata.labels: Invalid value: {value!r}: must be no more than 63 characters")
        _check_key(key)
    for key in annotations:
        _check_key(key)


def is_label_value(text: str) -> bool:
    """Whether a label may have this value."""
    return len(text) <= 63 and _LABEL_VALUE.fullmatch(text) is not None


def _check_key(key: str) -> None:
    if not _QUALIFIED.fullmatch(key) or len(key.rpartition("/")[2]) > 63:
        raise NotAnObject(f"metadata: Invalid key: {key!r}")


def _check_job(job: Object) -> None:
    spec, template = job["spec"], job["spec"]["template"]
    if len(job["metadata"]["name"]) > 63:
        raise NotAnObject("metadata.name: must be no more than 63 characters, for it becomes a label of the pods")
    if template["spec"].get("restartPolicy") not in {"Never", "OnFailure"}:
        raise NotAnObject("spec.template.spec.restartPolicy: must be OnFailure or Never")
    if spec.get("podFailurePolicy"):
        if template["spec"]["restartPolicy"] != "Never":
            raise NotAnObject("spec.podFailurePolicy: only with restartPolicy=Never")
        if spec.get("podReplacementPolicy", "Failed") != "Failed":
            raise NotAnObject("spec.podReplacementPolicy: only Failed with a podFailurePolicy")
        for rule in spec["podFailurePolicy"]["rules"]:
            values = rule.get("onExitCodes", {}).get("values", [])
            if 0 in values and rule["onExitCodes"]["operator"] == "In":
                raise NotAnObject("spec.podFailurePolicy.rules: 0 is no failure")
    _check_marks(template["metadata"])
    _check_pod(template["spec"])


def _check_pod(spec: Object, *claims: Object) -> None:
    volumes = {volume["name"] for volume in spec.get("volumes", [])} | {claim["metadata"]["name"] for claim in claims}
    for container in spec["containers"]:
        mounts = container.get("volumeMounts", [])
        if missing := {mount["name"] for mount in mounts} - volumes:
            raise NotAnObject(f"spec.containers.volumeMounts: no such volume: {missing}")
        if len({mount["mountPath"] for mount in mounts}) < len(mounts):
            raise NotAnObject("spec.containers.volumeMounts: mountPath must be unique")
        for path in (mount.get("subPath", "") for mount in mounts):
            if path.startswith("/") or ".." in path.split("/"):
                raise NotAnObject("spec.containers.volumeMounts.subPath: must be a relative path without ..")
        requests, limits = container["resources"].get("requests", {}), container["resources"].get("limits", {})
        for name in {*requests, *limits}:
            if "/" in name and requests.get(name) != limits.get(name):
                raise NotAnObject(f"spec.containers.resources: {name}: the limit must be what is requested")
    _check_restricted(spec)


def _check_restricted(spec: Object) -> None:
    """The pod security standard `restricted`, which the namespace enforces."""
    shared = spec.get("securityContext", {})
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        own = container.get("securityContext", {})
        wrong = [
            own.get("allowPrivilegeEscalation") is not False and "allowPrivilegeEscalation",
            "ALL" not in own.get("capabilities", {}).get("drop", []) and "capabilities",
            not own.get("runAsNonRoot", shared.get("runAsNonRoot")) and "runAsNonRoot",
            own.get("seccompProfile", shared.get("seccompProfile", {})).get("type") != "RuntimeDefault" and "seccomp",
            own.get("runAsUser", shared.get("runAsUser")) == 0 and "runAsUser",
        ]
        if any(wrong):
            raise NotAnObject(f"violates PodSecurity restricted: {[word for word in wrong if word]}")


def _check_lease(lease: Object) -> None:
    for name in ("acquireTime", "renewTime"):
        value = lease.get("spec", {}).get(name)
        if value is not None and not _MICRO_TIME.fullmatch(value):
            raise NotAnObject(f'parsing time "{value}" as "2006-01-02T15:04:05.000000Z07:00": cannot parse')
