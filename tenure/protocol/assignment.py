"""The assignment: one lease together with the envelope's exact bytes, as published to a capability or worker stream."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter

from tenure.protocol.artifact import Checkpoint
from tenure.protocol.message import MAX_INT, Count, Digest, Message, TaskId
from tenure.protocol.timing import MAX_LEASE_TTL_MS, MIN_LEASE_TTL_MS

Attempt = Annotated[int, Field(ge=1, le=MAX_INT)]
Fence = Annotated[int, Field(ge=1, le=MAX_INT)]


class Ticket(Message):
    """The lease half of an assignment: what the worker must echo, and what it needs before it opens the envelope."""

    task_id: TaskId
    attempt: Attempt
    fence: Fence
    digest: Digest
    epoch: Count
    start: Literal["granted", "claimed"]
    exclusive: bool = False
    ttl_ms: Annotated[int, Field(ge=MIN_LEASE_TTL_MS, le=MAX_LEASE_TTL_MS)]
    checkpoint: Checkpoint | None = None
    """What an earlier attempt got done, if a checkpoint of it was accepted."""


TICKET: Final = TypeAdapter(Ticket)


class Assignment(Message):
    """A ticket and its envelope's bytes; two fields of one stream entry, so that the bytes stay untouched."""

    ticket: Ticket
    envelope: bytes
