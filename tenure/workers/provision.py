"""What an attempt runs with besides its work: files that it finds, secrets that it may read, limits that it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from tenure.protocol.envelope import CallWork, Limits

if TYPE_CHECKING:
    from tenure.protocol.artifact import Checkpoint, Input
    from tenure.protocol.assignment import Ticket
    from tenure.protocol.envelope import CommandWork, Envelope

NO_LIMITS: Final = Limits()
_LIMITS: Final = tuple(Limits.model_fields)


@final
@dataclass(frozen=True, slots=True)
class Provision:
    """One attempt's files, secrets, limits, and what people call the task."""

    inputs: tuple[Input, ...] = ()
    checkpoint: Checkpoint | None = None
    secrets: tuple[str, ...] = ()
    limits: Limits = NO_LIMITS
    keep_folder: bool = False
    label: str = ""
    timeout_ms: int | None = None

    @property
    def is_fetched(self) -> bool:
        """Whether anything must be fetched before the attempt begins."""
        return bool(self.inputs) or self.checkpoint is not None


BARE: Final = Provision()
"""What an attempt runs with that asks for nothing; most do."""


def provision_of(envelope: Envelope, ticket: Ticket) -> Provision:
    """What that assignment's attempt runs with."""
    return Provision(
        inputs=envelope.inputs,
        checkpoint=ticket.checkpoint,
        secrets=envelope.secrets,
        limits=envelope.limits,
        keep_folder=envelope.keep_folder,
        label=envelope.label,
        timeout_ms=envelope.timeout_ms,
    )


def works_with_files(work: CallWork | CommandWork | None, provision: Provision) -> bool:
    """Whether that is a call that has a folder of its own, and so a slot of its own while it runs."""
    return isinstance(work, CallWork) and (work.files or provision.is_fetched or bool(provision.secrets))


def lower(limits: Limits, caps: Limits) -> Limits:
    """Of each limit the smaller one."""
    both = {name: (getattr(limits, name), getattr(caps, name)) for name in _LIMITS}
    said = {name: [amount for amount in pair if amount is not None] for name, pair in both.items()}
    return Limits(**{name: min(amounts) for name, amounts in said.items() if amounts})
