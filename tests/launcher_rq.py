"""The bench of the RQ launcher: a server of its own, and two of RQ's own workers."""

from __future__ import annotations

import signal
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tests.fixtures_launchers import Premises
from tests.rq_fleet import RqFleet, start_rq_fleet

EXEMPT: Mapping[str, str] = MappingProxyType({})
WORKERS = 2


@dataclass(frozen=True)
class RqBench:
    """Jobs wait while there is no RQ worker that takes them."""

    fleet: RqFleet
    options: Mapping[str, Any]
    queues: bool = True
    environment: frozenset[str] = frozenset()

    def hold(self) -> None:
        # RQ's warm shutdown: what runs is waited for, and nothing more is taken.
        for worker in self.fleet.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGTERM)
        for worker in self.fleet.workers:
            worker.wait()

    def let_go(self) -> None:
        for _ in range(WORKERS):
            self.fleet.start_worker()


@contextmanager
def open_bench(premises: Premises) -> Generator[RqBench]:
    """See `fixtures_launchers.BenchModule`."""
    fleet = start_rq_fleet(premises.folder)
    try:
        bench = RqBench(fleet, fleet.options())
        bench.let_go()
        yield bench
    finally:
        fleet.close()
