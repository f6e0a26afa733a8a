"""A coordinator that kills itself: `python -m tests.fault.mortal_coordinator WHEN CALL NUMBER coordinator ...`.

WHEN is before or after; CALL is one of the broker's calls, or commit; NUMBER counts such calls from 1. The product has
no such points: it is handed a broker and a database that pass everything on and count.
"""

import os
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tenure.broker.keys import Keys
from tenure.broker.redis_connection import RedisConnection
from tenure.broker.redis_coordinator import RedisCoordinator
from tenure.broker.url import BrokerUrl
from tenure.cli.owner import end_with_owner
from tenure.clock import SystemClock, SystemEntropy
from tenure.coordinator import service
from tenure.coordinator.options import CoordinatorOptions
from tenure.coordinator.store.database import Database
from tenure.settings import load_settings
from tests.tripwire import Trip, Tripwire


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Point(Trip):
    """Dies at the `number`-th call of one name."""

    call: str = ""
    number: int = 0
    seen: int = 0

    def pass_on(self, name: str, call: Any) -> Any:
        here = name == self.call
        self.seen += here
        if here and self.seen == self.number and self.when == "before":
            die()
        answer = call()
        if here and self.seen == self.number and self.when == "after":
            die()
        return answer


@dataclass
class MortalDatabase:
    """A database that may not live to commit, or no longer than that."""

    inner: Database
    point: Point = field(default_factory=Point)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.inner.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Nothing is committed before the last line of the block is left."""
        after = self.point.when == "after"
        with self.inner.transaction():
            yield
            if not after:
                self.point.pass_on("commit", lambda: None)
        if after:
            self.point.pass_on("commit", lambda: None)


def main(when: str, call: str, number: str, *arguments: str) -> None:
    _command, _database, database, _owner_pipe, owner_pipe = arguments
    stop = threading.Event()
    end_with_owner(int(owner_pipe), stop.set, SystemClock())
    point = Point(when="after" if when == "after" else "before", call=call, number=int(number))
    settings = load_settings()
    url = BrokerUrl(settings.resolve_broker_url())
    options = CoordinatorOptions(database=Path(database), namespace=settings.namespace)
    broker = RedisCoordinator(RedisConnection(url, timeout_ms=options.broker_timeout_ms), Keys(settings.namespace))

    def open_database(path: Path) -> MortalDatabase:
        return MortalDatabase(Database(path), point)

    setattr(service, "Database", open_database)  # noqa: B010 - a test may look inside, and must not be believed its types
    service.run_coordinator(options, Tripwire(broker, point), SystemClock(), SystemEntropy(), stop)


if __name__ == "__main__":
    main(*sys.argv[1:])
