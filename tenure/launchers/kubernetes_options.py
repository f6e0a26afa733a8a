"""What the Kubernetes launcher may be told: one frozen value, checked once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, final

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from tenure.launchers.options import LauncherOptions

_MAX_SECONDS: Final = 366 * 86_400


def _like(pattern: str, expected: str) -> AfterValidator:
    """Refuse a text that does not match, and say what it should look like."""
    compiled = re.compile(pattern)

    def check(given: str) -> str:
        if not compiled.fullmatch(given):
            raise ValueError(expected)
        return given

    return AfterValidator(check)


def _words(given: object) -> object:
    """A list may be one text on a command line: its words are separated by commas."""
    return tuple(word.strip() for word in given.split(",") if word.strip()) if isinstance(given, str) else given


def _pairs(given: object) -> object:
    """A table may be one text on a command line: key=value,key=value."""
    if not isinstance(given, str):
        return given
    pairs = [word.partition("=") for word in given.split(",") if word.strip()]
    if not all(equals for _, equals, _ in pairs):
        raise ValueError("it looks like key=value,key=value")
    return {key.strip(): value.strip() for key, _, value in pairs}


def _inside_pod(path: str) -> str:
    parts = path.split("/")
    if not path.startswith("/") or path == "/" or ":" in path or ".." in parts:
        raise ValueError("it is an absolute path inside the pod, without .. and :")
    return "/" + "/".join(part for part in parts if part)


DnsLabel = Annotated[
    str,
    _like(
        r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
        "it has 1 to 63 small letters, digits and -, and begins and ends with a letter or digit",
    ),
]
_DNS_NAME: Final = _like(
    r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*",
    "it has small letters, digits, - and ., and begins and ends with a letter or digit",
)
DnsName = Annotated[str, Field(max_length=253), _DNS_NAME]
QueueName = Annotated[str, Field(max_length=63), _DNS_NAME]
LabelKey = Annotated[
    str,
    _like(
        r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?",
        "a key looks like name or example.org/name",
    ),
]
LabelValue = Annotated[
    str,
    _like(
        r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?",
        "a label has at most 63 letters, digits, -, _ and ., and begins and ends with a letter or digit",
    ),
]
Quantity = Annotated[
    str, _like(r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?", "it is an amount such as 500m, 2 or 4Gi")
]
ImageName = Annotated[
    str, _like(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,499}", "an image looks like registry.example/tenure@sha256:...")
]
SecretKey = Annotated[str, _like(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,252}", "a key has letters, digits, -, _ and .")]
PodPath = Annotated[str, AfterValidator(_inside_pod)]
Seconds = Annotated[int, Field(ge=1, le=_MAX_SECONDS)]
Identity = Annotated[int, Field(ge=1, le=2**31 - 1)]
Port = Annotated[int, Field(ge=1, le=65_535)]
Names = Annotated[tuple[DnsName, ...], BeforeValidator(_words)]
Labels = Annotated[dict[LabelKey, LabelValue], BeforeValidator(_pairs)]
Texts = Annotated[dict[LabelKey, str], BeforeValidator(_pairs)]
ResourceNames = Annotated[dict[str, LabelKey], BeforeValidator(_pairs)]


@final
class KubernetesOptions(LauncherOptions):
    """Settings of one launcher; `--launcher-option key=value` and the keys of the launcher's file are these fields."""

    image: ImageName
    """The image that executors run; best named by its digest."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    image_pull_secrets: Names = ()

    namespace: DnsLabel = "tenure"
    """The cluster's namespace that executors run in. Whoever may create Jobs there can read every Secret in it."""
    service_account: DnsName = "tenure-executor"
    """The account of executors; no token of it is mounted."""
    launcher_account: DnsName = "tenure-launcher"
    """The account that the launcher itself may run as; only what `--example` prints is about it."""
    kubeconfig: Path | None = None
    """How the cluster is reached; None: as a pod inside it, else by the default kubeconfig."""
    context: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    timeout_s: Annotated[float, Field(gt=0, le=120)] = 10.0
    """How long the API server may take to answer."""

    secret_name: DnsName = "tenure-broker"  # noqa: S105 - the name of a Secret, no secret
    """The Secret that holds the broker's address; it is mounted as a file."""
    secret_key: SecretKey = "url"  # noqa: S105 - the name of a key
    secret_path: PodPath = "/run/tenure/credentials"  # noqa: S105 - where it is mounted

    cpu: Quantity = "1"
    cpu_limit: Quantity | None = None
    memory: Quantity = "1Gi"
    """What a task gets that asks for no memory."""
    executor_memory_mib: Annotated[int, Field(ge=32, le=65_536)] = 256
    """What is added to the memory that a task asks for, so that its own limit is met before the container's."""
    ephemeral_storage: Quantity = "4Gi"
    tmp_size: Quantity = "1Gi"
    work_size: Quantity = "2Gi"
    """The room below `work_path`, where task folders are; without a claim it is the node's disk."""
    work_path: PodPath = "/var/lib/tenure"
    work_claim: DnsName | None = None
    """A PersistentVolumeClaim in place of the node's disk; each task gets a folder of its own in it."""
    artifacts_claim: DnsName | None = None
    """The PersistentVolumeClaim of a store that is a folder; mounted whole at `artifacts_path`."""
    artifacts_path: PodPath | None = None
    resources: ResourceNames = Field(default_factory=dict[str, str])
    """Which of the resources that tasks reserve the cluster knows, and as what: {gpu = "nvidia.com/gpu"}."""

    deadline_s: Seconds | None = None
    """The longest life of a Job; None: the task's timeout and `deadline_slack_s`, and no end without a timeout."""
    deadline_slack_s: Seconds = 900
    """For waiting, pulling the image, fetching inputs and telling the result."""
    ttl_after_finished_s: Annotated[int, Field(ge=0, le=_MAX_SECONDS)] | None = 86_400
    """When the cluster takes an ended Job away that its worker left behind."""
    grace_s: Annotated[int, Field(ge=1, le=3_600)] = 30
    lease: bool = True
    """Whether each launch has a Lease that shows observers when its worker last saw it."""

    runtime_class: DnsName | None = None
    priority_class: DnsName | None = None
    queue: QueueName | None = None
    """The LocalQueue of Kueue that Jobs wait in; its name stands in a label."""
    node_selector: Labels = Field(default_factory=dict[str, str])
    tolerations: tuple[dict[str, Any], ...] = ()
    labels: Labels = Field(default_factory=dict[str, str])
    annotations: Texts = Field(default_factory=dict[str, str])
    run_as_user: Identity = 10_001
    run_as_group: Identity = 10_001

    broker_namespace: DnsLabel | None = None
    """The cluster's namespace that the broker runs in; None: wherever, by its port alone."""
    broker_port: Port = 6379

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if (self.artifacts_claim is None) != (self.artifacts_path is None):
            raise ValueError("artifacts_claim and artifacts_path go together")
        taken = [self.secret_path, self.work_path, "/tmp"]  # noqa: S108 - a mount of the pod
        taken += [self.artifacts_path] if self.artifacts_path else []
        if len(set(taken)) < len(taken):
            raise ValueError("secret_path, work_path, artifacts_path and /tmp are different folders")
        return self
