"""The bench of the local launcher: this machine."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tests.fixtures_launchers import Premises

EXEMPT: Mapping[str, str] = MappingProxyType({"cancel_waiting": "processes do not wait"})


@dataclass(frozen=True)
class LocalBench:
    """There is nothing to prepare: an executor is a process."""

    options: Mapping[str, Any]
    queues: bool = False
    environment: frozenset[str] = frozenset()

    def hold(self) -> None:
        raise NotImplementedError

    def let_go(self) -> None:
        raise NotImplementedError


@contextmanager
def open_bench(premises: Premises) -> Generator[LocalBench]:
    """See `fixtures_launchers.BenchModule`."""
    yield LocalBench({"grace": "5s"})
