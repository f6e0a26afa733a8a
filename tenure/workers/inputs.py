"""What the worker's core is told: everything that can happen to an agent, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.broker.base import Handout
    from tenure.protocol.artifact import Bundle
    from tenure.protocol.control_messages import Control
    from tenure.protocol.worker_messages import Finished, Outcome, Released


@final
@dataclass(frozen=True, slots=True)
class Taken:
    """Assignments were read.

    `issued_ms` is the elapsed time at which the read was sent, `again` says that they had been delivered before,
    `inherited` that they may have been delivered to this worker's previous agent, `withdrawn` that what was
    looked for is not there any more.
    """

    handouts: Sequence[Handout]
    issued_ms: int
    again: bool = False
    inherited: bool = False
    withdrawn: bool = False


@final
@dataclass(frozen=True, slots=True)
class Ordered:
    """The coordinator's orders were read."""

    control: Control


@final
@dataclass(frozen=True, slots=True)
class Restored:
    """Reports without a verdict were found in the spool."""

    reports: Sequence[Finished | Released]


@final
@dataclass(frozen=True, slots=True)
class CallEnded:
    """A call has come to its own end in a slot's child; `outcome` is None when it was cancelled there."""

    slot: int
    call: int
    outcome: Outcome | None
    duration_ms: int
    outputs: Bundle | None = None


@final
@dataclass(frozen=True, slots=True)
class HandlerSeen:
    """A slot's child has imported a handler for the first time."""

    slot: int
    handler: str
    is_async: bool


@final
@dataclass(frozen=True, slots=True)
class ChildReady:
    """A slot's child has started and reads calls."""

    slot: int


@final
@dataclass(frozen=True, slots=True)
class ProgressMade:
    """A running call or command has told how far it is; `metrics` is a JSON object, or "" for none."""

    slot: int
    call: int
    fraction_ppm: int
    message: str
    metrics: str = ""


@final
@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A checkpoint of a running call or command is staged."""

    slot: int
    call: int
    name: str
    bundle: Bundle


@final
@dataclass(frozen=True, slots=True)
class Recalled:
    """The calls that a slot's child had not begun were taken back; those not named here have been begun."""

    slot: int
    calls: Sequence[int]


@final
@dataclass(frozen=True, slots=True)
class TreeEnded:
    """A slot's child or command has ended.

    `gone` says that its whole process tree is proved gone, `unstarted` names the calls that it never began, `outcome`
    is set for a command that came to its own end, `by_deadline` says that the runner ended it at the deadline. `begun`
    is False when no user code has run in it. `outputs` is what a command has left and the store has staged; `notes` are
    for people.
    """

    slot: int
    gone: bool
    unstarted: Sequence[int] = ()
    outcome: Outcome | None = None
    duration_ms: int = 0
    by_deadline: bool = False
    detail: str = ""
    begun: bool = True
    outputs: Bundle | None = None
    notes: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class BeatTaken:
    """The broker took the heartbeat of that sequence and answered the coordinator's echo."""

    sequence: int
    echo: str


@final
@dataclass(frozen=True, slots=True)
class Reconnected:
    """The broker can be reached again after messages may have been lost, or its data is new."""


@final
@dataclass(frozen=True, slots=True)
class DrainAsked:
    """The worker shall end: after what runs has finished, or at once."""

    at_once: bool = False


WireInput = Taken | Ordered | BeatTaken | Reconnected
"""What the lines to the broker tell, to every kind of core."""

Input = (
    WireInput
    | Restored
    | CallEnded
    | HandlerSeen
    | ChildReady
    | ProgressMade
    | CheckpointSaved
    | Recalled
    | TreeEnded
    | DrainAsked
)
