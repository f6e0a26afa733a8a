"""The few requests that a launcher makes of an API server, over the official Python client.

That client finds the cluster, signs in and speaks TLS. Its models are left out: their newer versions refuse answers
that they do not expect, although what was asked for has been done, and rewrite times on the way. What is sent is the
rendered value, what is answered is plain JSON. Every request is bounded in time and sent once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, final

from tenure.errors import InvalidSettings, MissingExtra
from tenure.launchers.kubernetes_sign_in import SignIn

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.launchers.kubernetes_options import KubernetesOptions

_CONNECT_S: Final = 5.0
_MOST_CHARACTERS: Final = 300


@final
@dataclass(frozen=True, slots=True)
class Answer:
    """What the API server answered. `status` is 0 when it did not, or when its answer broke off: then it is unknown."""

    status: int
    body: dict[str, Any] = field(default_factory=dict[str, Any])
    detail: str = ""

    @property
    def is_done(self) -> bool:
        """Whether it did what it was asked."""
        return 200 <= self.status <= 299  # noqa: PLR2004 - HTTP's own

    @property
    def reason(self) -> str:
        """The server's word for what was wrong, such as AlreadyExists."""
        return str(self.body.get("reason") or "")

    def said(self) -> str:
        """The answer for people, in one line."""
        text = str(self.body.get("message") or self.detail or "no reason given")[:_MOST_CHARACTERS]
        return f"the API server answered {self.status}: {text}" if self.status else f"no answer: {text}"


class Cluster(Protocol):
    """An API server, as a launcher sees it. Nothing here raises because of what is answered or not answered."""

    def create_job(self, namespace: str, job: dict[str, Any]) -> Answer:
        """Create the Job."""
        ...

    def read_job(self, namespace: str, name: str) -> Answer:
        """Read the Job."""
        ...

    def delete_job(self, namespace: str, name: str, *, waits_for_pods: bool) -> Answer:
        """Delete the Job with its pods: before its pods are gone, or only after them."""
        ...

    def list_pods(self, namespace: str, selector: str) -> Answer:
        """List the pods that a selector of labels matches."""
        ...

    def create_lease(self, namespace: str, lease: dict[str, Any]) -> Answer:
        """Create the Lease."""
        ...

    def patch_lease(self, namespace: str, name: str, change: dict[str, Any]) -> Answer:
        """Merge a change into the Lease."""
        ...

    def delete_lease(self, namespace: str, name: str) -> Answer:
        """Delete the Lease."""
        ...

    def close(self) -> None:
        """Let go of the connections."""
        ...


@final
class ClientCluster:
    """See `Cluster`; over the official client, whose versions 31 to 37 were tried."""

    def __init__(self, kubernetes_client: Any, api_client: Any, timeout_s: float) -> None:  # noqa: ANN401 - untyped
        self._api_client = api_client
        self._jobs = kubernetes_client.BatchV1Api(api_client)
        self._core = kubernetes_client.CoreV1Api(api_client)
        self._leases = kubernetes_client.CoordinationV1Api(api_client)
        self._failure: type[Exception] = kubernetes_client.exceptions.ApiException
        # As a pair: version 31 ignores a single number that is not whole, and would wait for ever.
        self._timeout = (min(_CONNECT_S, timeout_s), timeout_s)

    def create_job(self, namespace: str, job: dict[str, Any]) -> Answer:
        """See `Cluster.create_job`."""
        return self._ask(self._jobs.create_namespaced_job, namespace, job)

    def read_job(self, namespace: str, name: str) -> Answer:
        """See `Cluster.read_job`."""
        return self._ask(self._jobs.read_namespaced_job, name, namespace)

    def delete_job(self, namespace: str, name: str, *, waits_for_pods: bool) -> Answer:
        """See `Cluster.delete_job`."""
        # Said every time: what a Job's pods become when nothing is said differs between versions of its API.
        policy = "Foreground" if waits_for_pods else "Background"
        return self._ask(self._jobs.delete_namespaced_job, name, namespace, propagation_policy=policy)

    def list_pods(self, namespace: str, selector: str) -> Answer:
        """See `Cluster.list_pods`."""
        return self._ask(self._core.list_namespaced_pod, namespace, label_selector=selector)

    def create_lease(self, namespace: str, lease: dict[str, Any]) -> Answer:
        """See `Cluster.create_lease`."""
        return self._ask(self._leases.create_namespaced_lease, namespace, lease)

    def patch_lease(self, namespace: str, name: str, change: dict[str, Any]) -> Answer:
        """See `Cluster.patch_lease`."""
        return self._ask(self._leases.patch_namespaced_lease, name, namespace, change)

    def delete_lease(self, namespace: str, name: str) -> Answer:
        """See `Cluster.delete_lease`."""
        return self._ask(self._leases.delete_namespaced_lease, name, namespace)

    def close(self) -> None:
        """See `Cluster.close`."""
        self._api_client.rest_client.pool_manager.clear()
        self._api_client.close()

    def _ask(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Answer:  # noqa: ANN401
        try:
            response = method(*arguments, _preload_content=False, _request_timeout=self._timeout, **options)
            return Answer(int(response.status), _parsed(response.data))
        except self._failure as failure:
            said = cast("Any", failure)
            return Answer(int(said.status or 0), _parsed(said.body), str(said.reason or ""))
        except Exception as error:  # noqa: BLE001 - whatever it is: the request may have been carried out
            return Answer(0, detail=f"{type(error).__name__}: {error}")


def open_cluster(options: KubernetesOptions) -> ClientCluster:
    """Find the cluster; nothing is connected yet.

    Raises:
        MissingExtra: the client is not installed.
        InvalidSettings: no cluster is known, or its settings cannot be read.
    """
    try:
        api, loads = (_module(f"kubernetes.{name}") for name in ("client", "config"))
    except ImportError:
        message = "the Kubernetes launcher needs the kubernetes client"
        raise MissingExtra(message, "pip install 'tenure[kubernetes]'") from None
    settings = api.Configuration()
    try:
        _load(loads, settings, options)
    except Exception as error:  # noqa: BLE001 - of the library, of YAML, or of the program that signs in
        # Only the library's own words: those of a parser may repeat what the file holds.
        why = str(error).rstrip(". ") if isinstance(error, loads.ConfigException) else type(error).__name__
        raise InvalidSettings(
            f"no Kubernetes cluster is known: {why}", "Give the option kubeconfig, or run inside a cluster"
        ) from None
    settings.retries = False
    if settings.refresh_api_key_hook is not None:
        settings.refresh_api_key_hook = SignIn(settings.refresh_api_key_hook, options.timeout_s)
    return ClientCluster(api, api.ApiClient(settings), options.timeout_s)


def _module(name: str) -> Any:  # noqa: ANN401 - untyped, and not there where types are checked
    return import_module(name)


def _load(config: Any, settings: Any, options: KubernetesOptions) -> None:  # noqa: ANN401 - untyped
    if options.kubeconfig is None and options.context is None:
        try:
            config.load_incluster_config(client_configuration=settings)
        except config.ConfigException:
            pass
        else:
            return
    path = str(options.kubeconfig.expanduser()) if options.kubeconfig is not None else None
    config.load_kube_config(config_file=path, context=options.context, client_configuration=settings)


def _parsed(raw: bytes | str | None) -> dict[str, Any]:
    try:
        value: object = json.loads(raw or b"{}")
    except ValueError:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
