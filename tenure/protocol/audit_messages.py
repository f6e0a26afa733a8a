"""Reading the event log: page by page, so that a log of any length holds nobody up.

The first row of an answer is a `Page`; the others are lines as `tenure.protocol.chain` describes them.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from tenure.protocol.message import Count, Message, Milliseconds, Name, TaskId, Text

KINDS: Final = frozenset(
    {
        "accepted",
        "adopted",
        "adoption_refused",
        "bound",
        "campaign_closed",
        "campaign_created",
        "cancel_asked",
        "cancel_many_asked",
        "cancel_many_done",
        "cancelled",
        "checkpoint_lost",
        "checkpoint_refused",
        "checkpoint_taken",
        "collection_begun",
        "coordinator_began",
        "credential_added",
        "credentials_retired",
        "directive_approved",
        "directive_denied",
        "failed_attempt",
        "flooded",
        "from_checkpoint",
        "given_back",
        "lease_over",
        "log_lost",
        "lost",
        "malformed",
        "new_incarnation",
        "not_ended",
        "not_gone",
        "not_launched",
        "not_promoted",
        "offered",
        "person_issued",
        "person_revoked",
        "quarantine_dropped",
        "quarantine_expired",
        "refused",
        "rejected",
        "request_refused",
        "retry_allowed",
        "retry_denied",
        "retry_held",
        "role_changed",
        "second_executor",
        "site_granted",
        "site_issued",
        "site_revoked",
        "submitted",
        "worker_hello",
        "worker_state",
    }
)
"""Every kind of event that is recorded."""


class EventFilter(Message):
    """Which events; what is not given does not count. Both ends of the time are the coordinator's wall clock."""

    task_id: TaskId | None = None
    worker_id: Name | None = None
    site: Name | None = None
    principal: Text | None = None
    kind: Name | None = None
    since_ms: Milliseconds | None = None
    until_ms: Milliseconds | None = None


class ReadEvents(Message):
    """A page of the event log, from event `beyond` on (0: from its end of the log), without that one itself.

    `seals` adds the seals, which only a log without a filter in the order of its events can have.
    """

    kind: Literal["read_events"] = "read_events"
    beyond: Count = 0
    newest_first: bool = False
    seals: bool = False
    only: EventFilter = EventFilter()
    limit: Annotated[int, Field(ge=1, le=10_000)] = 2_000


class Page(Message):
    """Where a page ends: `beyond` of the next one, None after the last. `world` and its beginning name the log."""

    beyond: Count | None
    world: str
    created_at_ms: int
