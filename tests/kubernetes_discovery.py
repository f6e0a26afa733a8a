"""What an API server says of itself, as far as `kubectl` asks before it sends anything."""

from __future__ import annotations

from tenure.launchers.kubernetes_objects import Object

_KINDS = {
    "v1": {"Namespace": False, "Pod": True, "Secret": True, "Service": True, "ServiceAccount": True},
    "apps/v1": {"Deployment": True, "StatefulSet": True},
    "batch/v1": {"Job": True},
    "coordination.k8s.io/v1": {"Lease": True},
    "networking.k8s.io/v1": {"NetworkPolicy": True},
    "rbac.authorization.k8s.io/v1": {"Role": True, "RoleBinding": True},
}
"""Kinds by their version, and whether they belong to a namespace."""


def discovered(path: str) -> Object | None:
    """The answer to a question about the server; None when the path is about something else."""
    words = path.strip("/").split("/")
    if words == ["api"]:
        return {"kind": "APIVersions", "versions": ["v1"]}
    if words == ["apis"]:
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in _KINDS if "/" in name]}
    version = "/".join(words[1:])
    if words[0] in {"api", "apis"} and version in _KINDS:
        found = [_resource(kind, namespaced=namespaced) for kind, namespaced in _KINDS[version].items()]
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": found}
    return None


def _group(version: str) -> Object:
    said = {"groupVersion": version, "version": version.partition("/")[2]}
    return {"name": version.partition("/")[0], "versions": [said], "preferredVersion": said}


def _resource(kind: str, *, namespaced: bool) -> Object:
    plural = "networkpolicies" if kind == "NetworkPolicy" else f"{kind.lower()}s"
    verbs = ["create", "delete", "get", "list", "patch"]
    return {"name": plural, "singularName": kind.lower(), "namespaced": namespaced, "kind": kind, "verbs": verbs}
