"""Every state machine, as one table each. Code, SQL triggers and diagrams all come from these tables.

Rule: whatever moves a task, lease, worker, directive or artifact is listed here, or the store's triggers refuse it: the
migrations hold the same tables (a test compares the two). Terminal states have no way out.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class TaskState(StrEnum):
    """Where a task stands."""

    QUEUED = "QUEUED"  #: stored; waits for credit, its time, or a free worker
    OFFERED = "OFFERED"  #: an assignment is published; nobody has the right to run it yet
    RUNNING = "RUNNING"  #: one worker holds the lease
    CANCELLING = "CANCELLING"  #: a cancel was asked for; the end of the attempt is not proved yet
    LOST = "LOST"  #: the lease ran out; a directive waits for a decision
    SUCCEEDED = "SUCCEEDED"  #: a result was accepted
    FAILED = "FAILED"  #: a failure was accepted and no budget or policy allows another attempt
    CANCELLED = "CANCELLED"  #: cancelled, and the end is proved
    ABANDONED = "ABANDONED"  #: lost, and another attempt was denied


class LeaseState(StrEnum):
    """Where a lease stands."""

    OFFERED = "OFFERED"  #: published under a fence; not bound to a worker
    ACTIVE = "ACTIVE"  #: bound to one worker and one nonce
    COMPLETED = "COMPLETED"  #: its report was accepted
    EXPIRED = "EXPIRED"  #: no renewal was seen for ttl + grace + margin
    RELEASED = "RELEASED"  #: given back by the worker, or withdrawn unclaimed


class WorkerState(StrEnum):
    """Where a worker stands."""

    ACTIVE = "ACTIVE"  #: heartbeats are seen; may be given work
    STALE = "STALE"  #: heartbeats are missing; gets nothing new
    DRAINING = "DRAINING"  #: finishes what it holds; gets nothing new
    OFFLINE = "OFFLINE"  #: said goodbye, or drained to the end


class HolderState(StrEnum):
    """Where a site or a person with a credential stands."""

    ACTIVE = "ACTIVE"  #: takes part
    REVOKED = "REVOKED"  #: thrown out, for good: the name is never used again


class DirectiveState(StrEnum):
    """Where a directive stands."""

    PENDING = "PENDING"  #: waits for a person
    APPROVED = "APPROVED"  #: another attempt was allowed, by policy or a person
    DENIED = "DENIED"  #: no further attempt


class ArtifactState(StrEnum):
    """Where what a task has made stands."""

    ACCEPTED = "ACCEPTED"  #: on record; its contents still lie in the staging place
    PROMOTED = "PROMOTED"  #: its contents are objects of the store
    COLLECTED = "COLLECTED"  #: not wanted any more: its contents go with the next collection


class CampaignState(StrEnum):
    """Where a campaign stands."""

    OPEN = "OPEN"  #: takes submissions, within its dates and its budget
    CLOSED = "CLOSED"  #: takes no more; what it has admitted goes on


class CancellationState(StrEnum):
    """Where a request to cancel many tasks stands."""

    OPEN = "OPEN"  #: what it covers is gone through; nothing of it is offered any more
    DONE = "DONE"  #: everything that it covers has ended, or is told to stop


class ChargeState(StrEnum):
    """Where what a task holds of its campaign's budget stands."""

    RESERVED = "RESERVED"  #: the task has not ended
    USED = "USED"  #: a result was accepted
    RELEASED = "RELEASED"  #: cancelled or abandoned: its place and its cost are free again


TASK: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        TaskState.QUEUED: frozenset(
            {TaskState.OFFERED, TaskState.CANCELLED, TaskState.CANCELLING, TaskState.SUCCEEDED}
        ),
        TaskState.OFFERED: frozenset({TaskState.RUNNING, TaskState.QUEUED, TaskState.CANCELLING, TaskState.CANCELLED}),
        TaskState.RUNNING: frozenset(
            {
                TaskState.SUCCEEDED,
                TaskState.FAILED,
                TaskState.CANCELLING,
                TaskState.LOST,
                TaskState.QUEUED,
            }
        ),
        TaskState.CANCELLING: frozenset({TaskState.CANCELLED, TaskState.SUCCEEDED, TaskState.FAILED}),
        TaskState.LOST: frozenset(
            {
                TaskState.QUEUED,
                TaskState.SUCCEEDED,
                TaskState.ABANDONED,
                TaskState.CANCELLED,
                TaskState.CANCELLING,
            }
        ),
        TaskState.SUCCEEDED: frozenset(),
        TaskState.FAILED: frozenset(),
        TaskState.CANCELLED: frozenset(),
        TaskState.ABANDONED: frozenset(),
    }
)
"""RUNNING -> QUEUED is a failed attempt whose directive was approved, or an assignment given back unstarted.

QUEUED or LOST -> SUCCEEDED happens only by the adoption of a quarantined result; QUEUED or LOST -> CANCELLING is a
cancel while a site that was revoked may still be running the last attempt.
"""

LEASE: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        LeaseState.OFFERED: frozenset({LeaseState.ACTIVE, LeaseState.RELEASED}),
        LeaseState.ACTIVE: frozenset({LeaseState.COMPLETED, LeaseState.EXPIRED, LeaseState.RELEASED}),
        LeaseState.COMPLETED: frozenset(),
        LeaseState.EXPIRED: frozenset(),
        LeaseState.RELEASED: frozenset(),
    }
)

WORKER: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        WorkerState.ACTIVE: frozenset({WorkerState.STALE, WorkerState.DRAINING, WorkerState.OFFLINE}),
        WorkerState.STALE: frozenset({WorkerState.ACTIVE, WorkerState.DRAINING, WorkerState.OFFLINE}),
        WorkerState.DRAINING: frozenset({WorkerState.OFFLINE, WorkerState.ACTIVE}),
        WorkerState.OFFLINE: frozenset({WorkerState.ACTIVE}),
    }
)
"""DRAINING or OFFLINE -> ACTIVE happens only by a new hello: a new generation of the same worker id."""

DIRECTIVE: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        DirectiveState.PENDING: frozenset({DirectiveState.APPROVED, DirectiveState.DENIED}),
        DirectiveState.APPROVED: frozenset(),
        DirectiveState.DENIED: frozenset(),
    }
)

ARTIFACT: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        ArtifactState.ACCEPTED: frozenset({ArtifactState.PROMOTED, ArtifactState.COLLECTED}),
        ArtifactState.PROMOTED: frozenset({ArtifactState.COLLECTED}),
        ArtifactState.COLLECTED: frozenset(),
    }
)

CAMPAIGN: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {CampaignState.OPEN: frozenset({CampaignState.CLOSED}), CampaignState.CLOSED: frozenset()}
)

CANCELLATION: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {CancellationState.OPEN: frozenset({CancellationState.DONE}), CancellationState.DONE: frozenset()}
)

CHARGE: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        ChargeState.RESERVED: frozenset({ChargeState.USED, ChargeState.RELEASED}),
        ChargeState.USED: frozenset(),
        ChargeState.RELEASED: frozenset(),
    }
)

HOLDER: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {HolderState.ACTIVE: frozenset({HolderState.REVOKED}), HolderState.REVOKED: frozenset()}
)
"""Of sites and of people alike."""

TABLES: Final[Mapping[str, Mapping[str, frozenset[str]]]] = MappingProxyType(
    {
        "task": TASK,
        "lease": LEASE,
        "worker": WORKER,
        "directive": DIRECTIVE,
        "artifact": ARTIFACT,
        "site": HOLDER,
        "person": HOLDER,
        "campaign": CAMPAIGN,
        "charge": CHARGE,
        "cancellation": CANCELLATION,
    }
)
"""Each machine's table by the name of its SQL table."""

TERMINAL_TASK_STATES: Final = frozenset(state for state, onward in TASK.items() if not onward)
"""Task states that nothing leaves."""


def diagram(machine: str) -> str:
    """The Mermaid state diagram of `machine`, drawn from its table; the docs hold exactly this text."""
    return drawing(TABLES[machine])


def drawing(table: Mapping[str, frozenset[str]]) -> str:
    """The Mermaid state diagram of a table whose first state is where everything begins."""
    lines = ["stateDiagram-v2"]
    lines.append(f"    [*] --> {next(iter(table))}")
    for before, onward in table.items():
        lines.extend(f"    {before} --> {after}" for after in sorted(onward))
        if not onward:
            lines.append(f"    {before} --> [*]")
    return "\n".join(lines)
