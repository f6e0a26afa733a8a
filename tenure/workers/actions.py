"""What the worker's core decides: frozen values that the agent carries out in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from tenure.workers.provision import BARE

if TYPE_CHECKING:
    from tenure.protocol.envelope import CallWork, CommandWork
    from tenure.protocol.worker_messages import (
        Binding,
        Checkpointed,
        Claimed,
        ExecutorGone,
        Finished,
        Hello,
        Leaving,
        Progressed,
        Released,
    )
    from tenure.workers.provision import Provision


@final
@dataclass(frozen=True, slots=True)
class Tell:
    """Report an event. `keep` asks for a place in the spool first."""

    event: Hello | Claimed | Finished | Released | ExecutorGone | Progressed | Checkpointed | Leaving
    keep: bool = False


@final
@dataclass(frozen=True, slots=True)
class Forget:
    """The attempt has its verdict: its report may leave the spool."""

    task_id: str
    fence: int


@final
@dataclass(slots=True)
class StartCall:
    """Put a call into the socket of a slot's child; the child is started when there is none."""

    slot: int
    call: int
    binding: Binding
    work: CallWork
    provision: Provision = BARE


@final
@dataclass(frozen=True, slots=True)
class StartCommand:
    """Run a command in a slot; an idle child there is ended first."""

    slot: int
    call: int
    binding: Binding
    work: CommandWork
    provision: Provision = BARE


@final
@dataclass(frozen=True, slots=True)
class Recall:
    """Take back the calls that a slot's child has not begun, and answer with `Recalled`."""

    slot: int


@final
@dataclass(frozen=True, slots=True)
class CancelCall:
    """Ask a slot's child to cancel one call on its own; only async handlers obey."""

    slot: int
    call: int


@final
@dataclass(frozen=True, slots=True)
class EndTree:
    """End the whole process tree of a slot: SIGTERM, after `grace_ms` SIGKILL, until nothing is left.

    `is_late` says that nobody wants it to end but that its right to run is over: what has come to its own end before is
    still staged and told, as evidence.
    """

    slot: int
    grace_ms: int
    is_late: bool = False


@final
@dataclass(frozen=True, slots=True)
class AllowUntil:
    """Tell a slot's runner how long its tree may run (elapsed time); None: nothing that needs a lease is running.

    After `until_ms` follow SIGTERM, `grace_ms`, and SIGKILL.
    """

    slot: int
    until_ms: int | None
    grace_ms: int


@final
@dataclass(frozen=True, slots=True)
class Outranked:
    """An agent of this id with that higher number runs elsewhere: the next agent here must have one above it."""

    generation: int


@final
@dataclass(frozen=True, slots=True)
class TurnedAway:
    """The coordinator never takes this agent's hello, for a worker of this id is of the other kind."""


@final
@dataclass(frozen=True, slots=True)
class Leave:
    """All is done: send what is left to send, and end the agent."""


AgentAction = Tell | Outranked | TurnedAway | Leave
"""What the core of every kind of worker decides about the agent itself."""
Action = Forget | StartCall | StartCommand | Recall | CancelCall | EndTree | AllowUntil | AgentAction
