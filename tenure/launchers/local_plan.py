"""What the local launcher starts for one assignment: a command line and an environment, as a frozen value."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, final

from pydantic import BeforeValidator, Field

from tenure.errors import UsageError
from tenure.launchers.options import LauncherOptions
from tenure.protocol.durations import duration_ms

if TYPE_CHECKING:
    from tenure.launchers.base import ExecutorCommand, LaunchOrder


def _milliseconds(given: object) -> object:
    if not isinstance(given, str):
        return given
    try:
        return duration_ms(given, "it")
    except UsageError as error:
        raise ValueError(str(error)) from None


class LocalOptions(LauncherOptions):
    """The options of the local launcher.

    Args:
        grace: how long an executor that is ended by force may take to end its task and say so, before it is killed.
    """

    grace: Annotated[int, Field(ge=0, le=3_600_000), BeforeValidator(_milliseconds)] = 10_000


@final
@dataclass(frozen=True, slots=True)
class LocalPlan:
    """One process: nothing of the worker's environment reaches it but what is listed here."""

    name: str
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    ticket: str
    """The argument that no other launch has."""

    def shown(self) -> str:
        """See `Plan.shown`."""
        return json.dumps({"argv": list(self.argv), "environment": dict(self.environment)}, indent=2)


def render(order: LaunchOrder, executor: ExecutorCommand) -> LocalPlan:
    """The process for one assignment. What a task needs is left to the worker's slots and resources."""
    ticket = order.ticket
    return LocalPlan(ticket.name, executor.argv(ticket), executor.environment, ticket.text())
