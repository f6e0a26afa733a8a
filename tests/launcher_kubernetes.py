"""The bench of the Kubernetes launcher: doubles of an API server and of a node that runs containers as processes."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

from tests.fixtures_launchers import Premises
from tests.fixtures_services import unavailable
from tests.kubernetes_api import NAMESPACE, ApiServer
from tests.kubernetes_kubelet import IMAGE_ENVIRONMENT, Kubelet

EXEMPT: Mapping[str, str] = MappingProxyType({})
IMAGE = "registry.example/tenure@sha256:" + "0" * 64


@dataclass(frozen=True)
class KubernetesBench:
    """One cluster on this machine."""

    api: ApiServer
    kubelet: Kubelet
    options: Mapping[str, Any]
    queues: bool = True
    environment: frozenset[str] = frozenset({"HOME", "TMPDIR", *IMAGE_ENVIRONMENT})

    def hold(self) -> None:
        """See `LauncherBench.hold`."""
        self.kubelet.has_room = False

    def let_go(self) -> None:
        """See `LauncherBench.let_go`."""
        self.kubelet.has_room = True


@contextmanager
def open_bench(premises: Premises) -> Generator[KubernetesBench]:
    """See `fixtures_launchers.BenchModule`."""
    with open_double(premises) as bench:
        yield bench


@contextmanager
def open_double(premises: Premises) -> Generator[KubernetesBench]:
    """The doubles."""
    if find_spec("kubernetes") is None:
        unavailable("the kubernetes client is not installed")
    secrets = {"tenure-broker": {"url": f"{premises.broker_url}\n"}}
    with ApiServer().serving() as api, Kubelet(api, premises.folder, secrets).living() as kubelet:
        options = {
            "kubeconfig": api.kubeconfig(premises.folder),
            "image": IMAGE,
            "namespace": NAMESPACE,
            "timeout_s": 5,
        }
        yield KubernetesBench(api, kubelet, options)
