"""What a worker tells the coordinator, through its site's inbox: one report per entry, several events per report.

Order within one worker's reports is the order of events. Every event may arrive twice, late, or never; all of them are
safe to repeat. Who speaks is decided by the inbox that a report arrived on, not by what it says.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter, model_validator

from tenure.protocol.assignment import Attempt, Fence
from tenure.protocol.envelope import Amounts, Pairs, Scope
from tenure.protocol.message import (
    MAX_INT,
    MAX_VALUE_BYTES,
    Count,
    Digest,
    Message,
    Milliseconds,
    Name,
    Nonce,
    TaskId,
    Text,
)
from tenure.protocol.timing import MAX_LEASE_TTL_MS, MIN_LEASE_TTL_MS


class Cause(StrEnum):
    """Why an attempt ended without a result, or was given back."""

    UNSTARTED = "unstarted"  #: given back before it ran: the worker is full, draining, or another task blocks the way
    REFUSED = "refused"  #: the worker may not or cannot run it (limits, digest)
    CANCELLED = "cancelled"  #: stopped on the coordinator's order
    SELF_FENCED = "self_fenced"  #: stopped by the worker because it could not renew
    PROCESS_DIED = "process_died"  #: the executing process ended by itself without a result
    COLLATERAL = "collateral"  #: shared a process with a task that had to be killed
    DRAINED = "drained"  #: stopped because the worker was told to end at once
    AGENT_RESTARTED = "agent_restarted"  #: the worker's agent died and a new one found nothing running


class FailureKind(StrEnum):
    """How a task failed, when it ran to its own end."""

    EXCEPTION = "exception"  #: the handler raised
    EXIT_CODE = "exit_code"  #: the command ended with a code other than 0
    SIGNAL = "signal"  #: the command was ended by a signal that Tenure did not send
    TIMEOUT = "timeout"  #: ran longer than its `timeout_ms`
    UNKNOWN_HANDLER = "unknown_handler"  #: the function cannot be imported
    NOT_ALLOWED = "not_allowed"  #: the module is not among the worker's allowed modules
    INVALID_ARGUMENTS = "invalid_arguments"  #: the arguments do not fit the signature
    RESULT_NOT_JSON = "result_not_json"  #: the returned value has no JSON form
    RESULT_TOO_LARGE = "result_too_large"  #: the value is over the limit
    COMMAND_NOT_FOUND = "command_not_found"  #: argv[0] cannot be executed


NEVER_RETRIED: Final = frozenset(
    {
        FailureKind.UNKNOWN_HANDLER,
        FailureKind.NOT_ALLOWED,
        FailureKind.INVALID_ARGUMENTS,
        FailureKind.RESULT_NOT_JSON,
        FailureKind.RESULT_TOO_LARGE,
        FailureKind.COMMAND_NOT_FOUND,
    }
)
"""Failures that another attempt cannot cure; they never use up a retry budget."""


class Binding(Message):
    """What identifies one executor of one attempt; acceptance matches all of it."""

    task_id: TaskId
    attempt: Attempt
    fence: Fence
    digest: Digest
    nonce: Nonce


class Failure(Message):
    """How and why a task failed; `trace` is a traceback or the tail of a command's error output."""

    kind: FailureKind
    message: Text
    trace: Annotated[str, Field(max_length=16_000)] = ""
    exit_code: int | None = None


class Outcome(Message):
    """A value as JSON text, or a failure; exactly one of the two."""

    value: Annotated[str, Field(max_length=MAX_VALUE_BYTES)] | None = None
    failure: Failure | None = None

    @model_validator(mode="after")
    def _is_one_of_the_two(self) -> Outcome:
        if (self.value is None) == (self.failure is None):
            message = "an outcome is a value or a failure"
            raise ValueError(message)
        return self


class Held(Message):
    """One assignment that a worker has in hand; `state` says how far it has come."""

    task_id: TaskId
    fence: Fence
    state: Literal["claimed", "running", "finished", "stopping"]


class Hello(Message):
    """The worker (re)introduces itself: at start, after a reconnect, and whenever the coordinator does not know it.

    `ordinal` numbers the hellos of an agent, so that an answer to an earlier one is not taken for the answer to this.
    """

    kind: Literal["hello"] = "hello"
    ordinal: Count = 0
    predecessor: Count = 0
    """The generation before this one on this host, if all that it had started is proved gone; else 0."""
    slots: Annotated[int, Field(ge=1, le=4096)]
    capabilities: Annotated[tuple[Name, ...], Field(min_length=1, max_length=64)]
    labels: Pairs = ()
    resources: Amounts = ()
    ttl_ms: Annotated[int, Field(ge=MIN_LEASE_TTL_MS, le=MAX_LEASE_TTL_MS)]
    held: tuple[Held, ...] = ()
    host: Text = ""
    pid: Count = 0
    version: Text = ""


class Claimed(Message):
    """The worker has taken an assignment and asks to be bound to it.

    `after_beat` is the sequence number of the last heartbeat written before this claim: only later heartbeats must
    list the assignment.
    """

    kind: Literal["claimed"] = "claimed"
    binding: Binding
    after_beat: Count


class Finished(Message):
    """The task ran to its own end, well or badly."""

    kind: Literal["finished"] = "finished"
    binding: Binding
    scope: Scope
    outcome: Outcome
    duration_ms: Milliseconds


class Released(Message):
    """The attempt has ended without a result, or never started.

    `started` is False only when user code provably never ran; `tree_gone` is True only when the whole process tree is
    proved gone.
    """

    kind: Literal["released"] = "released"
    binding: Binding
    cause: Cause
    started: bool
    tree_gone: bool
    detail: Text = ""


class Progressed(Message):
    """How far a running task is; `cursor` grows by one per message of an attempt."""

    kind: Literal["progressed"] = "progressed"
    binding: Binding
    cursor: Count
    fraction_ppm: Annotated[int, Field(ge=0, le=1_000_000)]
    message: Text = ""


class Leaving(Message):
    """The worker drains (`gone` False) or has ended with nothing in hand (`gone` True)."""

    kind: Literal["leaving"] = "leaving"
    gone: bool


WorkerEvent = Annotated[Hello | Claimed | Finished | Released | Progressed | Leaving, Field(discriminator="kind")]


class Report(Message):
    """One inbox entry.

    `generation` numbers the worker's agents since its id was made; `window` is how many assignments the worker wants
    in hand, slots included.
    """

    worker_id: Name
    generation: Annotated[int, Field(ge=1, le=MAX_INT)]
    window: Annotated[int, Field(ge=0, le=4096)]
    events: Annotated[tuple[WorkerEvent, ...], Field(max_length=2000)]


REPORT: Final = TypeAdapter(Report)


class Heartbeat(Message):
    """The value of a worker's TTL key: everything that it holds. `sequence` grows by one per heartbeat."""

    generation: Annotated[int, Field(ge=1, le=MAX_INT)]
    sequence: Count
    window: Annotated[int, Field(ge=0, le=4096)]
    held: tuple[Held, ...]


HEARTBEAT: Final = TypeAdapter(Heartbeat)
