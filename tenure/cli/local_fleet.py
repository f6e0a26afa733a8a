"""A whole fleet on this machine, as `tenure up` and `tenure demo` run it: an embedded broker, a coordinator, workers.

The broker is a child of this process; coordinator and workers are processes of their own, each with a log in the data
folder. What ends by itself is started again under the same id. Ending goes the other way round: workers first, so that
they can hand in what they have, then the coordinator, then the broker.
"""

from __future__ import annotations

import fcntl
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from tenure.broker.keys import DEFAULT_SITE
from tenure.cli.broker import embedded, write_url_file
from tenure.cli.parts import Part, PartPlan
from tenure.errors import FleetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tenure.cli.desk import Desk
    from tenure.cli.signals import Signals

COORDINATOR: Final = "coordinator"
_TICK_MS: Final = 50
_COORDINATOR_PATIENCE_MS: Final = 15_000
_HURRY_MS: Final = 3_000


class DataInUse(UsageError):
    """Another `tenure up` runs on the same data folder."""

    code = "data_in_use"


@final
@dataclass(frozen=True, slots=True)
class FleetPlan:
    """Where the fleet keeps everything, and the namespace that it serves."""

    folder: Path
    namespace: str = "main"
    artifacts: str | None = None
    """Where files of tasks are kept; None: in a folder beside the database."""
    artifacts_options_file: Path | None = None

    @property
    def database(self) -> Path:
        """The coordinator's database."""
        return self.folder / "tenure.db"

    @property
    def store_address(self) -> str:
        """Where files of tasks are kept."""
        return self.artifacts or str(self.folder / "artifacts")

    def store(self) -> list[str]:
        """The options that tell coordinator and workers where files are kept."""
        options = ["--artifacts", self.store_address]
        if self.artifacts_options_file is not None:
            options += ["--artifacts-options-file", str(self.artifacts_options_file)]
        return options

    @property
    def logs(self) -> Path:
        """What the parts say."""
        return self.folder / "logs"


@final
class LocalFleet:
    """Starts, tends and ends the parts.

    Args:
        desk: gives clock and randomness.
        plan: where things are kept.
        tell: is given one line for every part that starts again or ends.
        signals: interrupts the waiting.
    """

    def __init__(self, desk: Desk, plan: FleetPlan, tell: Callable[[str], None], signals: Signals) -> None:
        self._desk = desk
        self._plan = plan
        self._tell = tell
        self._signals = signals
        self._clock = desk.session.clock
        self._broker = embedded(desk, plan.folder / "broker")
        self._lock = -1
        self._owner_pipe, self._owner_end = -1, -1
        self._parts: dict[str, Part] = {}
        self._due_ms: dict[str, int] = {}
        self.url_file = plan.folder / "broker.url"

    @property
    def url(self) -> str:
        """The broker's address, with its password."""
        return self._broker.url

    def part(self, name: str) -> Part:
        """The part of that name."""
        return self._parts[name]

    def open(self) -> None:
        """Take the data folder and start the broker. Raises `DataInUse` or a broker's error."""
        self._plan.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._plan.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._plan.artifacts is None:
            (self._plan.folder / "artifacts").mkdir(mode=0o700, exist_ok=True)
        self._lock = _take(self._plan.folder / "up.lock")
        self._owner_pipe, self._owner_end = os.pipe()
        self._broker.start()
        self.url_file = write_url_file(self._plan.folder, self._broker.url)

    def start_coordinator(self) -> None:
        """Start the coordinator."""
        database = str(self._plan.database)
        self._start(COORDINATOR, ["coordinator", "--json", "--database", database, *self._connection()])

    def start_worker(self, name: str, options: Sequence[str]) -> Part:
        """Start a worker under that id."""
        state = str(self._plan.folder)
        # The broker of one's own knows no users, whatever site this host's settings name.
        own = ["worker", "--json", "--site", DEFAULT_SITE, "--worker-id", name, "--state-dir", state]
        return self._start(name, [*own, *self._connection(), *options])

    def tend(self) -> None:
        """Look after everything once: what has ended is started again when its pause is over."""
        if not self._broker.running:
            self._restart_broker()
        for name, part in self._parts.items():
            if part.running:
                continue
            if name not in self._due_ms:
                self._due_ms[name] = part.due_again_ms()
                self._tell(f"{name} {part.how_it_ended()}. It is started again.")
            elif self._clock.elapsed_ms() >= self._due_ms[name]:
                del self._due_ms[name]
                part.start()

    def drain(self) -> bool:
        """End everything in order, waiting for what runs; False when asked to end a second time."""
        workers = [part for name, part in self._parts.items() if name != COORDINATOR]
        for stage in (workers, [self._parts[COORDINATOR]] if COORDINATOR in self._parts else []):
            for part in stage:
                part.signal(signal.SIGTERM)
            since_ms = self._clock.elapsed_ms()
            while any(part.running for part in stage):
                late = stage is not workers and self._clock.elapsed_ms() - since_ms > _COORDINATOR_PATIENCE_MS
                if late or self._signals.asked_to_end > 1:
                    return False
                self._signals.wait(_TICK_MS)
        return True

    def close(self) -> None:
        """End whatever is left, soon, and leave the folder."""
        for part in self._parts.values():
            part.signal(signal.SIGCONT)
            part.signal(signal.SIGTERM)
        until_ms = self._clock.elapsed_ms() + _HURRY_MS
        while any(part.running for part in self._parts.values()) and self._clock.elapsed_ms() < until_ms:
            self._clock.sleep_ms(_TICK_MS)
        for part in self._parts.values():
            part.kill()
        if self._lock >= 0:
            # Not ours to remove when the folder is another one's.
            self.url_file.unlink(missing_ok=True)
        self._broker.stop()
        for descriptor in (self._owner_pipe, self._owner_end, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._owner_pipe = self._owner_end = self._lock = -1

    def wait_for(self, condition: Callable[[], bool], timeout_ms: int, what: str) -> bool:
        """Wait until `condition` holds; False when asked to end instead.

        Raises:
            FleetError: it did not come true in time, or what a part said that has ended with an error.
        """
        until_ms = self._clock.elapsed_ms() + timeout_ms
        while not condition():
            if self._signals.asked_to_end:
                return False
            for part in self._parts.values():
                if (part.exit_code() or 0) > 0:
                    raise part.error()
            if self._clock.elapsed_ms() > until_ms:
                raise FleetError(f"{what} took longer than {timeout_ms // 1000} s", f"See {self._plan.logs}")
            self._signals.wait(_TICK_MS)
        return True

    def _start(self, name: str, arguments: Sequence[str]) -> Part:
        part = Part(PartPlan(name, arguments, self._plan.logs / f"{name}.log"), self._owner_pipe, self._clock)
        self._parts[name] = part
        part.start()
        return part

    def _connection(self) -> list[str]:
        return ["--broker-url-file", str(self.url_file), "--namespace", self._plan.namespace, *self._plan.store()]

    def _restart_broker(self) -> None:
        before = self._broker.url
        self._tell("The broker has ended. It is started again.")
        self._broker.stop()
        self._broker.start()
        if self._broker.url != before:
            # A new port: nobody would find it. Parts read the address when they start.
            write_url_file(self._plan.folder, self._broker.url)
            for part in self._parts.values():
                part.signal(signal.SIGTERM)


def _take(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = path.read_text(encoding="ascii").strip()
        os.close(descriptor)
        who = f" (process {holder})" if holder else ""
        raise DataInUse(
            f"the data folder {path.parent} is in use by another `tenure up`{who}",
            "Use that fleet, end it, or choose another folder with --data",
        ) from None
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
    return descriptor
