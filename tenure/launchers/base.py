"""What every launcher does. `tests/contract/test_launchers.py` is the definition of its behaviour, for all of them.

A launcher starts one executor per assignment on a substrate, and is asked about it later. The executor,
`tenure run-assignment`, speaks for itself: it claims, renews, runs and reports over the broker. So a launcher carries
no results, and nothing that its substrate says decides anything: an executor that is started twice is refused once, and
what a substrate calls finished may be lost, or the other way round.

To add a launcher, write a class with these methods and a factory, and name the factory in an entry point of the group
`tenure.launchers`. Import the substrate's library in the factory, never at module level, and raise `MissingExtra` when
it is not there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, final

from tenure.protocol.message import Message, Name, Text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tenure.clock import Clock, Entropy
    from tenure.protocol.launch import LaunchTicket
    from tenure.protocol.worker_messages import Cause


class Phase(StrEnum):
    """What a substrate says of an executor."""

    STARTING = "starting"  #: accepted, and not yet running: queued, pulling an image, waiting for room
    RUNNING = "running"
    ENDED = "ended"  #: it is over there, well or badly
    MISSING = "missing"  #: the substrate does not know it: never started, cleared away, or deleted by somebody
    UNKNOWN = "unknown"  #: the substrate cannot be asked now; says nothing about the executor


@final
@dataclass(frozen=True, slots=True)
class Sighting:
    """What was seen. `cause` says why it is over, if the substrate says so; `detail` is for people.

    `proved` says that the executor's own processes are known to be gone, as by an exit status that was waited for or a
    container that its node reports as terminated. Not proved is what only stands in a record: a worker that went
    silent, a node that does not answer, an object that was deleted.
    """

    phase: Phase
    cause: Cause | None = None
    detail: str = ""
    proved: bool = False


class Handle(Message):
    """Names one launch on its substrate. Kept by the worker across its own restarts.

    `launcher` is the launcher's own name: a worker that was given another one meanwhile asks it nothing about this.
    `name` is the ticket's, `address` whatever else the launcher needs to find it again.
    """

    launcher: Name
    name: Name
    address: Text = ""


@final
@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """What is to be launched: the ticket, and what its envelope asks of the place where it runs.

    `memory_bytes` and `timeout_ms` are the task's limits, None when it has none; `resources` are what it reserves, by
    the names that workers offer them under.
    """

    ticket: LaunchTicket
    memory_bytes: int | None = None
    timeout_ms: int | None = None
    resources: tuple[tuple[str, int], ...] = ()


class Plan(Protocol):
    """What would be started: a frozen value that is made without the substrate's library, and shown to people."""

    @property
    def name(self) -> str:
        """What the launch is called on its substrate: the ticket's name."""
        ...

    def shown(self) -> str:
        """The plan as text for people and other programs: YAML for Kubernetes, JSON for the others."""
        ...


P = TypeVar("P", bound=Plan)


class Launcher(Protocol[P]):
    """Starts executors on one substrate. Used by one thread at a time; every call is bounded in time."""

    @property
    def name(self) -> str:
        """What `tenure worker --launcher` calls it."""
        ...

    def render(self, order: LaunchOrder) -> P:
        """What would be started for this order. Pure: the same order gives the same plan, and nothing is asked."""
        ...

    def launch(self, plan: P) -> Handle:
        """Start it once. A plan that was launched before, in whatever state it is now, is not started again.

        Raises:
            LaunchRefused: the substrate does not take it; nothing was started.
            SubstrateUnreachable: it is unknown whether it was started; launching it again is safe.
        """
        ...

    def probe(self, handle: Handle) -> Sighting:
        """What the substrate says of it now; `Phase.UNKNOWN` when it cannot be asked. Raises nothing."""
        ...

    def cancel(self, handle: Handle) -> None:
        """End it by force, if it is there. Safe to repeat; `probe` says when it is over.

        Raises:
            SubstrateUnreachable: it may still run.
        """
        ...

    def clear(self, handle: Handle) -> None:
        """Take away what an ended launch has left on the substrate. Safe to repeat.

        Raises:
            SubstrateUnreachable: something may be left.
        """
        ...

    def close(self) -> None:
        """Let go of connections. What was launched runs on, where the substrate allows it."""
        ...


@final
@dataclass(frozen=True, slots=True)
class ExecutorCommand:
    """How `tenure run-assignment` is called at the place where executors run.

    Args:
        program: the words that start `tenure` there.
        arguments: what follows `run-assignment`: where the broker's address is read from, and the options of a worker.
        environment: variables that it starts with; nothing else is inherited.
    """

    program: tuple[str, ...] = ("tenure",)
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()

    def argv(self, ticket: LaunchTicket) -> tuple[str, ...]:
        """The whole command for one assignment. Holds no secret."""
        return (*self.program, "run-assignment", *self.arguments, "--ticket", ticket.text())


@final
@dataclass(frozen=True, slots=True)
class LauncherSettings:
    """What a factory is given.

    Args:
        executor: how executors are started.
        options: the launcher's own settings, as read from its file and `--launcher-option`; the factory validates them.
        folder: a private folder of this worker, which the launcher may keep files in.
        clock, entropy: time and randomness.
        writes: whether the launcher may change a cluster (`--enable-writes`).
    """

    executor: ExecutorCommand
    folder: Path
    clock: Clock
    entropy: Entropy
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    writes: bool = False


class LauncherFactory(Protocol):
    """What an entry point names."""

    def __call__(self, settings: LauncherSettings, /) -> Launcher[Any]:
        """Make the launcher. Raises `MissingExtra`, or `InvalidSettings` for options that cannot be."""
        ...
