"""What is started on a Ray cluster for one assignment. Knows nothing of the library."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final, final

from pydantic import AfterValidator, Field

from tenure.launchers.options import LauncherOptions
from tenure.protocol.message import Name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tenure.launchers.base import ExecutorCommand, LaunchOrder

ACTOR_CLASS: Final = "tenure.launchers.ray_task.Executor"
"""What a Ray worker imports: every node needs Tenure installed, and nothing else of ours."""

STRATEGY: Final = "STRICT_PACK"
CPU: Final = "CPU"
MEMORY: Final = "memory"
_RAY_NAMES: Final = MappingProxyType({"cpu": CPU, "cpus": CPU, "gpu": "GPU", "gpus": "GPU"})

_SECRETS: Final = ("_TOKEN", "_PASSWORD", "_SECRET", "_HEADERS")


def _no_secret(name: str) -> str:
    # They are set on a command line, which everybody on this host can read.
    if name.endswith(_SECRETS):
        raise ValueError(f"{name} holds a secret: name a file, as RAY_AUTH_TOKEN_PATH does")
    return name


def _of_others(address: str) -> str:
    if address in {"", "local"}:
        raise ValueError("it is host:port or auto: a cluster that is started here would end with the worker")
    return address


Variable = Annotated[str, Field(pattern=r"^RAY_[A-Z0-9_]{1,80}$"), AfterValidator(_no_secret)]
ShortText = Annotated[str, Field(max_length=400)]


class RayOptions(LauncherOptions):
    """The options of the Ray launcher.

    Args:
        address: the cluster, as `ray.init` takes it: host:port of the head, or "auto" for the one of this host.
        namespace: the Ray namespace that the executors' actors and placement groups are named in.
        cpus: what an executor reserves when its task reserves no CPUs.
        resources: what Ray calls a resource that tasks reserve, by the name that workers offer it under.
        placement_timeout_s: how long a placement group may take to be ready before the launch is refused.
        linger_s: for how long an executor that has ended keeps its place, if nobody clears it away before.
        variables: variables RAY_... of the process that speaks with Ray, such as RAY_AUTH_MODE; no secrets.
    """

    address: Annotated[ShortText, AfterValidator(_of_others)] = "auto"
    namespace: Name = "tenure"
    cpus: Annotated[float, Field(ge=0, le=1_000)] = 1.0
    resources: dict[Name, Name] = Field(default_factory=lambda: dict(_RAY_NAMES))
    placement_timeout_s: Annotated[float, Field(gt=0, le=600)] = 10.0
    linger_s: Annotated[int, Field(ge=1, le=24 * 3600)] = 600
    variables: dict[Variable, ShortText] = Field(default_factory=dict[str, str])


@final
@dataclass(frozen=True, slots=True)
class RayPlan:
    """One detached actor in a placement group of its own, and that Ray repeats nothing of it."""

    name: str
    namespace: str
    bundle: tuple[tuple[str, float], ...]
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    placement_timeout_s: float = 10.0
    linger_s: int = 600
    lifetime: str = field(default="detached", init=False)

    def request(self) -> dict[str, Any]:
        """The plan as the process that speaks with Ray takes it."""
        return {
            "name": self.name,
            "group": {
                "bundles": [dict(self.bundle)],
                "strategy": STRATEGY,
                "name": self.name,
                "lifetime": self.lifetime,
            },
            "actor": {
                "name": self.name,
                "namespace": self.namespace,
                "lifetime": self.lifetime,
                "max_restarts": 0,
                "max_task_retries": 0,
                **reserved(dict(self.bundle)),
            },
            "arguments": [list(self.argv), dict(self.environment), self.linger_s],
            "placement_timeout_s": self.placement_timeout_s,
        }

    def shown(self) -> str:
        """See `Plan.shown`."""
        return json.dumps({"class": ACTOR_CLASS, **self.request(), "retry_exceptions": False}, indent=2)


def reserved(bundle: Mapping[str, float]) -> dict[str, Any]:
    """The options of an actor that takes up the whole bundle."""
    known = {CPU: "num_cpus", "GPU": "num_gpus", MEMORY: "memory"}
    options: dict[str, Any] = {"num_cpus": 0, "resources": {}}
    for name, amount in bundle.items():
        if name in known:
            options[known[name]] = amount
        else:
            options["resources"][name] = amount
    return options


def render(order: LaunchOrder, executor: ExecutorCommand, options: RayOptions) -> RayPlan:
    """The actor for one assignment. What a task reserves and Ray has no name for is left to the worker's own count."""
    bundle: dict[str, float] = {CPU: options.cpus} if options.cpus else {}
    for name, amount in order.resources:
        if ray_name := options.resources.get(name):
            bundle[ray_name] = amount
    if order.memory_bytes is not None:
        bundle[MEMORY] = order.memory_bytes
    return RayPlan(
        name=order.ticket.name,
        namespace=options.namespace,
        bundle=tuple(sorted(bundle.items())),
        argv=executor.argv(order.ticket),
        environment=executor.environment,
        placement_timeout_s=options.placement_timeout_s,
        linger_s=options.linger_s,
    )
