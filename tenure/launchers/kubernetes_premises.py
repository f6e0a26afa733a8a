"""What must be on a cluster before the first launch, for people to read, change and apply.

The launcher's account may create, see and delete Jobs, see pods, and keep Leases, all in one namespace. It may not read
Secrets; but whoever may create Jobs there can mount every Secret of the namespace, so nothing else belongs into it.
Executors have no right at all on the cluster, and reach the broker and the name service only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tenure.launchers.kubernetes_labels import EXECUTOR, ROLE

if TYPE_CHECKING:
    from tenure.launchers.kubernetes_options import KubernetesOptions

_RBAC: Final = "rbac.authorization.k8s.io"
_PLACE_OF: Final = "kubernetes.io/metadata.name"


def premises(options: KubernetesOptions) -> tuple[dict[str, Any], ...]:
    """The namespace, two accounts, the launcher's rights, the network's limits, and a Secret to be filled in."""
    return (
        _namespace(options),
        _account(options, options.launcher_account),
        _account(options, options.service_account),
        _role(options),
        _role_binding(options),
        _network_policy(options),
        _secret(options),
    )


def _meta(options: KubernetesOptions, name: str) -> dict[str, Any]:
    return {"name": name, "namespace": options.namespace, "labels": {"app.kubernetes.io/name": "tenure"}}


def _namespace(options: KubernetesOptions) -> dict[str, Any]:
    level = "pod-security.kubernetes.io/enforce"
    labels = {"app.kubernetes.io/name": "tenure", level: "restricted", f"{level}-version": "latest"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": options.namespace, "labels": labels}}


def _account(options: KubernetesOptions, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _meta(options, name),
        "automountServiceAccountToken": False,
    }


def _role(options: KubernetesOptions) -> dict[str, Any]:
    rules = [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "get", "delete"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    ]
    if options.lease:
        verbs = ["create", "patch", "delete"]
        rules.append({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs})
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "Role",
        "metadata": _meta(options, options.launcher_account),
        "rules": rules,
    }


def _role_binding(options: KubernetesOptions) -> dict[str, Any]:
    account = {"kind": "ServiceAccount", "name": options.launcher_account, "namespace": options.namespace}
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": _meta(options, options.launcher_account),
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": options.launcher_account},
        "subjects": [account],
    }


def _network_policy(options: KubernetesOptions) -> dict[str, Any]:
    name_service = {
        "to": [
            {
                "namespaceSelector": {"matchLabels": {_PLACE_OF: "kube-system"}},
                "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
            }
        ],
        "ports": [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")],
    }
    broker: dict[str, Any] = {"ports": [{"protocol": "TCP", "port": options.broker_port}]}
    if options.broker_namespace is not None:
        broker["to"] = [{"namespaceSelector": {"matchLabels": {_PLACE_OF: options.broker_namespace}}}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _meta(options, options.service_account),
        "spec": {
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": "tenure", ROLE: EXECUTOR}},
            "policyTypes": ["Ingress", "Egress"],
            "egress": [name_service, broker],
        },
    }


def _secret(options: KubernetesOptions) -> dict[str, Any]:
    # Obviously no address, so that nobody takes it for one; the real one is best made from a file by kubectl.
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _meta(options, options.secret_name),
        "type": "Opaque",
        "stringData": {options.secret_key: "REPLACE-WITH-THE-ADDRESS-OF-THE-BROKER"},
    }
