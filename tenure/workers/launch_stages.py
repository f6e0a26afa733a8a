"""How far a launch has come at the parent, as one table; the diagram in the docs is drawn from it.

Only what the substrate says and what is done to it moves a launch. Whether the task runs is another matter: that is
decided by leases, at the coordinator.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class LaunchStage(StrEnum):
    """How far a launch has come."""

    ORDERED = "ordered"  #: noted in the journal; the substrate has not said whether it took it
    STARTING = "starting"  #: the substrate took it, and is not known to run it
    RUNNING = "running"  #: the substrate runs it
    UNSEEN = "unseen"  #: the substrate could not be asked for too long; the coordinator is told, and it is asked on
    STOPPING = "stopping"  #: the launcher was asked to end it by force
    OVER = "over"  #: it is over there, or never was; the coordinator is told until it answers
    CLEARING = "clearing"  #: answered; what it has left on the substrate is taken away
    FORGOTTEN = "forgotten"


LAUNCH: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        LaunchStage.ORDERED: frozenset({LaunchStage.STARTING, LaunchStage.OVER}),
        LaunchStage.STARTING: frozenset(
            {LaunchStage.RUNNING, LaunchStage.UNSEEN, LaunchStage.STOPPING, LaunchStage.OVER}
        ),
        LaunchStage.UNSEEN: frozenset(
            {LaunchStage.RUNNING, LaunchStage.STOPPING, LaunchStage.OVER, LaunchStage.CLEARING}
        ),
        LaunchStage.RUNNING: frozenset({LaunchStage.STOPPING, LaunchStage.OVER}),
        LaunchStage.STOPPING: frozenset({LaunchStage.OVER}),
        LaunchStage.OVER: frozenset({LaunchStage.CLEARING, LaunchStage.FORGOTTEN}),
        LaunchStage.CLEARING: frozenset({LaunchStage.FORGOTTEN}),
        LaunchStage.FORGOTTEN: frozenset(),
    }
)

UNFINISHED: Final = frozenset(
    {LaunchStage.ORDERED, LaunchStage.STARTING, LaunchStage.RUNNING, LaunchStage.UNSEEN, LaunchStage.STOPPING}
)
"""Stages in which a launch takes up a slot."""

TOLD: Final = frozenset({LaunchStage.UNSEEN, LaunchStage.OVER})
"""Stages in which the coordinator is told of it until it answers."""
