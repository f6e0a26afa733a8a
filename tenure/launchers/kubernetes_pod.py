"""The pod that an executor runs in, as a plain value. It fits the restricted pod security standard.

The broker's address comes in as a file of a projected Secret: no variable, which every program of the pod could read
out of `/proc`, and no `subPath`, which would never be renewed. The root of its file system is read-only; it writes
below its work folder and `/tmp`, both with a limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tenure.launchers.base import ExecutorCommand, LaunchOrder
    from tenure.launchers.kubernetes_options import KubernetesOptions

CONTAINER: Final = "executor"
"""The name of the container that the executor runs in; others may be added by the cluster."""

_FILE_MODE: Final = 0o440
_MIB: Final = 1024 * 1024
_TMP: Final = "/tmp"  # noqa: S108 - a mount of the pod
_ADDRESSES: Final = frozenset({"--broker-url", "--broker-url-file"})
"""Options that say where the broker is; in a pod that is the mounted Secret, whatever the worker was told."""


def executor_pod(order: LaunchOrder, options: KubernetesOptions, executor: ExecutorCommand) -> dict[str, Any]:
    """The `spec` of the pod."""
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "serviceAccountName": options.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": options.grace_s,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": options.run_as_user,
            "runAsGroup": options.run_as_group,
            "fsGroup": options.run_as_group,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(order, options, executor)],
        "volumes": [*_volumes(options)],
    }
    placed: dict[str, Any] = {
        "runtimeClassName": options.runtime_class,
        "priorityClassName": options.priority_class,
        "nodeSelector": dict(options.node_selector),
        "tolerations": list(options.tolerations),
        "imagePullSecrets": [{"name": name} for name in options.image_pull_secrets],
    }
    return {**spec, **{key: value for key, value in placed.items() if value}}


def executor_words(order: LaunchOrder, options: KubernetesOptions, executor: ExecutorCommand) -> list[str]:
    """What follows the program: the arguments, the file with the broker's address, and the ticket."""
    address = f"{options.secret_path}/{options.secret_key}"
    kept = _without_address(executor.arguments)
    words = ["run-assignment", *kept, "--broker-url-file", address, "--ticket", order.ticket.text()]
    return [_verbatim(word) for word in words]


def _verbatim(word: str) -> str:
    # The cluster puts the value of a variable in place of $(NAME), and one $ in place of two.
    return word.replace("$", "$$")


def _without_address(words: tuple[str, ...]) -> Iterator[str]:
    rest = iter(words)
    for word in rest:
        name, equals, _ = word.partition("=")
        if name not in _ADDRESSES:
            yield word
        elif not equals:
            next(rest, None)


def _container(order: LaunchOrder, options: KubernetesOptions, executor: ExecutorCommand) -> dict[str, Any]:
    variables = {"HOME": options.work_path, "TMPDIR": options.work_path, **dict(executor.environment)}
    return {
        "name": CONTAINER,
        "image": options.image,
        "imagePullPolicy": options.image_pull_policy,
        "command": [_verbatim(word) for word in executor.program],
        "args": executor_words(order, options, executor),
        "env": [{"name": name, "value": _verbatim(value)} for name, value in variables.items()],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": _amounts(order, options),
        "volumeMounts": [*_mounts(order, options)],
    }


def _amounts(order: LaunchOrder, options: KubernetesOptions) -> dict[str, Any]:
    memory = options.memory
    if order.memory_bytes is not None:
        memory = f"{-(-order.memory_bytes // _MIB) + options.executor_memory_mib}Mi"
    requests = {"cpu": options.cpu, "memory": memory, "ephemeral-storage": options.ephemeral_storage}
    limits = {"memory": memory, "ephemeral-storage": options.ephemeral_storage}
    if options.cpu_limit is not None:
        limits["cpu"] = options.cpu_limit
    for name, amount in order.resources:
        if known := options.resources.get(name):
            # The cluster takes its extended resources only as limits, with requests that say the same.
            requests[known] = limits[known] = str(amount)
    return {"requests": requests, "limits": limits}


def _volumes(options: KubernetesOptions) -> Iterator[dict[str, Any]]:
    secret = {"name": options.secret_name, "items": [{"key": options.secret_key, "path": options.secret_key}]}
    yield {"name": "credentials", "projected": {"defaultMode": _FILE_MODE, "sources": [{"secret": secret}]}}
    yield {"name": "tmp", "emptyDir": {"sizeLimit": options.tmp_size}}
    if options.work_claim is None:
        yield {"name": "work", "emptyDir": {"sizeLimit": options.work_size}}
    else:
        yield {"name": "work", "persistentVolumeClaim": {"claimName": options.work_claim}}
    if options.artifacts_claim is not None:
        yield {"name": "artifacts", "persistentVolumeClaim": {"claimName": options.artifacts_claim}}


def _mounts(order: LaunchOrder, options: KubernetesOptions) -> Iterator[dict[str, Any]]:
    yield {"name": "credentials", "mountPath": options.secret_path, "readOnly": True}
    yield {"name": "tmp", "mountPath": _TMP}
    work: dict[str, Any] = {"name": "work", "mountPath": options.work_path}
    if options.work_claim is not None:
        # Of this attempt alone: one that was lost may still write where its node cannot be reached.
        work["subPath"] = f"{order.ticket.namespace}/{order.ticket.task_id.lower()}/f{order.ticket.fence}"
    yield work
    if options.artifacts_path is not None:
        yield {"name": "artifacts", "mountPath": options.artifacts_path}
