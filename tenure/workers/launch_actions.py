"""What the parent's core decides, beside what every core decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from tenure.workers.actions import AgentAction

if TYPE_CHECKING:
    from tenure.launchers.base import Handle, LaunchOrder
    from tenure.workers.launch_inputs import Key


@final
@dataclass(frozen=True, slots=True)
class StartLaunch:
    """Note in the journal that it may have been launched, then launch it. Safe to repeat."""

    key: Key
    order: LaunchOrder


@final
@dataclass(frozen=True, slots=True)
class NoteHandle:
    """Note in the journal how to find it again."""

    key: Key
    handle: Handle


@final
@dataclass(frozen=True, slots=True)
class ProbeLaunch:
    """Ask the substrate about it."""

    key: Key
    handle: Handle


@final
@dataclass(frozen=True, slots=True)
class CancelLaunch:
    """End it by force."""

    key: Key
    handle: Handle


@final
@dataclass(frozen=True, slots=True)
class ClearLaunch:
    """Take away what it has left on the substrate."""

    key: Key
    handle: Handle


@final
@dataclass(frozen=True, slots=True)
class DropLaunch:
    """Forget it in the journal."""

    key: Key


CrewAction = StartLaunch | ProbeLaunch | CancelLaunch | ClearLaunch
"""What the launcher is called for; each is answered by one input."""

LaunchAction = CrewAction | NoteHandle | DropLaunch | AgentAction
