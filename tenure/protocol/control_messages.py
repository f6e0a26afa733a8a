"""What the coordinator tells a worker, through the worker's own control stream.

Every order carries the coordinator's epoch; a worker ignores orders of an epoch lower than the highest it has seen.
All of them may arrive twice and are safe to repeat.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter

from tenure.protocol.assignment import Fence
from tenure.protocol.message import Count, Message, Nonce, TaskId


class Verdict(StrEnum):
    """The coordinator's answer to a result."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"  #: this very result was accepted before
    REJECTED = "rejected"


class Reason(StrEnum):
    """Why a claim, renewal or result was refused."""

    UNREGISTERED_WORKER = "unregistered_worker"  #: no such worker, or it has not said hello since it was forgotten
    WRONG_SITE = "wrong_site"  #: the worker, its id or the lease is of another site than the inbox that this arrived on
    SITE_REVOKED = "site_revoked"  #: the site was thrown out, with all that it holds
    OTHER_KIND = "other_kind"  #: the worker of that id starts executors, and this one runs tasks itself, or the reverse
    OLD_GENERATION = "old_generation"  #: a newer agent of the same worker id has said hello
    UNKNOWN_TASK = "unknown_task"  #: no such task
    UNKNOWN_FENCE = "unknown_fence"  #: no assignment of this task was ever published under this fence
    STALE_FENCE = "stale_fence"  #: a newer assignment exists, or this one is over
    WRONG_ATTEMPT = "wrong_attempt"  #: the attempt does not belong to the fence
    DIGEST_MISMATCH = "digest_mismatch"  #: another envelope than the one that was published
    WORLD_MISMATCH = "world_mismatch"  #: the result is of another world
    RUN_MISMATCH = "run_mismatch"  #: the result is of another run
    WRONG_WORKER = "wrong_worker"  #: the lease is bound to another worker
    SECOND_EXECUTOR = "second_executor"  #: the lease is bound to another nonce, or to another executor of one parent
    LEASE_EXPIRED = "lease_expired"  #: the lease ran out before this arrived
    LEASE_RELEASED = "lease_released"  #: the assignment was given back or withdrawn
    NOT_GRANTED = "not_granted"  #: the task starts on a grant only, and none was given
    TASK_OVER = "task_over"  #: the task has reached a terminal state
    CANCELLED = "cancelled"  #: the task is being cancelled


class StopReason(StrEnum):
    """Why a worker must end an attempt."""

    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"  #: the lease is not this worker's any more


class Registered(Message):
    """The hello of that `ordinal` was taken. The worker keeps what it holds unless a `Stop` in this entry names it."""

    kind: Literal["registered"] = "registered"
    generation: Count
    ordinal: Count = 0


class HelloRefused(Message):
    """The hello of that `ordinal` was not taken, and none of this agent will be: it must end, having run nothing."""

    kind: Literal["hello_refused"] = "hello_refused"
    generation: Count
    ordinal: Count
    reason: Reason


class SayHello(Message):
    """The coordinator does not know this worker or generation: introduce yourself."""

    kind: Literal["say_hello"] = "say_hello"


class Granted(Message):
    """The lease is bound: the attempt may start. Repeated for a repeated claim of the same nonce."""

    kind: Literal["granted"] = "granted"
    task_id: TaskId
    fence: Fence
    nonce: Nonce


class Refused(Message):
    """The claim was refused: drop the assignment, run nothing."""

    kind: Literal["refused"] = "refused"
    task_id: TaskId
    fence: Fence
    nonce: Nonce
    reason: Reason


class Stop(Message):
    """End the whole process tree of this attempt and report `Released`."""

    kind: Literal["stop"] = "stop"
    task_id: TaskId
    fence: Fence
    reason: StopReason


class Judged(Message):
    """The verdict on a `Finished`, `Released` or `ExecutorGone`: the worker may forget the attempt."""

    kind: Literal["judged"] = "judged"
    task_id: TaskId
    fence: Fence
    nonce: Nonce
    verdict: Verdict
    reason: Reason | None = None


class Kept(Message):
    """The checkpoint of that ordinal is on record, or never will be: it need not be told again."""

    kind: Literal["kept"] = "kept"
    task_id: TaskId
    fence: Fence
    nonce: Nonce
    ordinal: Count


class Drain(Message):
    """Take nothing more, finish what runs, then leave."""

    kind: Literal["drain"] = "drain"


Order = Annotated[
    Registered | HelloRefused | SayHello | Granted | Refused | Stop | Judged | Kept | Drain,
    Field(discriminator="kind"),
]


class Control(Message):
    """One control entry: orders in the order they were decided."""

    epoch: Count
    orders: tuple[Order, ...]


CONTROL: Final = TypeAdapter(Control)
