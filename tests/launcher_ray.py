"""The bench of the Ray launcher: the cluster of one node that all tests of a process share."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tests.fixtures_launchers import Premises
from tests.ray_cluster import ray_cluster

EXEMPT: Mapping[str, str] = MappingProxyType({"cancel_waiting": "what has no room is refused, and does not wait"})


@dataclass(frozen=True)
class RayBench:
    """A launch waits for its placement group, and afterwards for nothing."""

    options: Mapping[str, Any]
    queues: bool = False
    environment: frozenset[str] = frozenset()

    def hold(self) -> None:
        raise NotImplementedError

    def let_go(self) -> None:
        raise NotImplementedError


def prepare() -> None:
    """Start the cluster, unless it is there."""
    ray_cluster()


@contextmanager
def open_bench(premises: Premises) -> Generator[RayBench]:
    """See `fixtures_launchers.BenchModule`."""
    yield RayBench(ray_cluster().options())
