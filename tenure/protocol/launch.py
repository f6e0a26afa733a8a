"""The launch ticket: what an executor is told by the launcher that starts it.

It names one assignment and holds neither a secret nor anything of the task's own: the executor reads the envelope from
the broker, at the entry that the ticket names. Knowing a ticket gives no right to run. The executor claims under a
nonce of its own, the coordinator binds the lease to the first, and every other executor of the ticket is refused.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Final

from pydantic import Field, TypeAdapter

from tenure.protocol.assignment import Attempt, Fence
from tenure.protocol.message import Digest, Message, Name, TaskId
from tenure.protocol.timing import MAX_LEASE_TTL_MS, MIN_LEASE_TTL_MS

MAX_TICKET_BYTES: Final = 2_000
_PARENT_CHARACTERS: Final = 8


def launch_name(task_id: str, fence: int, parent: str) -> str:
    """What a launch is called on its substrate: the same whenever it is tried again, and another for each parent.

    One assignment may come to two parents, as after a broker has lost its data. Under one name on one cluster, each
    would end what the other one has started. At most 60 characters of a DNS-1123 label, which is also a job id of RQ
    and an actor name of Ray.
    """
    mark = hashlib.sha256(parent.encode()).hexdigest()[:_PARENT_CHARACTERS]
    return f"tenure-{task_id.lower()}-f{fence}-{mark}"


class LaunchTicket(Message):
    """Names one assignment, and where its entry is."""

    namespace: Name
    site: Name
    parent: Name
    """The worker that took the assignment and started this executor."""
    capability: Name
    is_directed: bool = False
    """Whether the entry lies on the parent's own stream, and not on its capability's."""
    entry: Annotated[str, Field(pattern=r"^[0-9]{1,16}-[0-9]{1,16}$")]
    world: Name
    run: Name
    task_id: TaskId
    attempt: Attempt
    fence: Fence
    digest: Digest
    ttl_ms: Annotated[int, Field(ge=MIN_LEASE_TTL_MS, le=MAX_LEASE_TTL_MS)]

    @property
    def name(self) -> str:
        """What this launch is called on its substrate: see `launch_name`."""
        return launch_name(self.task_id, self.fence, self.parent)

    def text(self) -> str:
        """The ticket as one argument of `tenure run-assignment`."""
        return self.model_dump_json(exclude_defaults=True)


LAUNCH_TICKET: Final = TypeAdapter(LaunchTicket)
