"""What the parent's core is told about its launches, beside what the lines to the broker tell every core."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from tenure.workers.inputs import DrainAsked, WireInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.launchers.base import Handle, LaunchOrder, Sighting

Key = tuple[str, int]
"""Task and fence."""


@final
@dataclass(frozen=True, slots=True)
class Journaled:
    """One launch that an earlier agent has left; `handle` is None when it is unknown whether it was launched."""

    order: LaunchOrder
    handle: Handle | None = None


@final
@dataclass(frozen=True, slots=True)
class Found:
    """The journal was read."""

    launches: Sequence[Journaled]


@final
@dataclass(frozen=True, slots=True)
class Launched:
    """The substrate took it."""

    key: Key
    handle: Handle


@final
@dataclass(frozen=True, slots=True)
class NotLaunched:
    """The substrate refused it; or, when `is_known` is False, nobody knows whether it took it."""

    key: Key
    detail: str
    is_known: bool


@final
@dataclass(frozen=True, slots=True)
class Sighted:
    """The substrate was asked."""

    key: Key
    sighting: Sighting


@final
@dataclass(frozen=True, slots=True)
class CancelTried:
    """The launcher was asked to end it; whether it is over is said by the next sighting.

    `done` is False when the substrate may not have been told.
    """

    key: Key
    done: bool


@final
@dataclass(frozen=True, slots=True)
class ClearTried:
    """The launcher was asked to take away what is left; `done` is False when something may be."""

    key: Key
    done: bool


CrewInput = Launched | NotLaunched | Sighted | CancelTried | ClearTried
"""What the thread that calls the launcher tells: one for each of the actions that it was given."""

LaunchInput = WireInput | CrewInput | Found | DrainAsked
