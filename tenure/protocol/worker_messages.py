"""What a worker tells the coordinator, through its site's inbox: one report per entry, several events per report.

Order within one worker's reports is the order of events. Every event may arrive twice, late, or never; all of them are
safe to repeat. Who speaks is decided by the inbox that a report arrived on, not by what it says.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter, field_validator, model_validator

from tenure.protocol.artifact import Bundle
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
from tenure.protocol.metrics import MAX_METRICS, read_metrics
from tenure.protocol.timing import MAX_LEASE_TTL_MS, MIN_LEASE_TTL_MS

MOST_EVENTS: Final = 250
"""In one report: it is applied as a whole, and nobody else is heard meanwhile."""

MOST_HOLDS: Final = 10_000
_MOST_PAIRS: Final = 1_000


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
    SITE_REVOKED = "site_revoked"  #: its site was thrown out; said by the coordinator
    # What a launcher's substrate says of an executor:
    EXECUTOR_DIED = "executor_died"  #: its process, container or work-horse ended without a word
    EXECUTOR_REMOVED = "executor_removed"  #: somebody deleted its job, pod or placement group
    OOM_KILLED = "oom_killed"  #: ended by the kernel or its node for want of memory
    EVICTED = "evicted"  #: its node threw it out
    PREEMPTED = "preempted"  #: it had to make room for something more important
    NODE_GONE = "node_gone"  #: the machine that it ran on is gone
    DEADLINE_EXCEEDED = "deadline_exceeded"  #: the substrate ended it at a time limit of its own
    IMAGE_UNAVAILABLE = "image_unavailable"  #: its container image could not be fetched
    UNSCHEDULABLE = "unschedulable"  #: no room for it was found in time
    LAUNCH_REFUSED = "launch_refused"  #: the substrate did not take it


BEFORE_THE_START: Final = frozenset({Cause.UNSTARTED, Cause.REFUSED})
"""Why an attempt was given back that never ran: nothing was used up by it, so nobody may say it of one that did."""
NEVER_LAUNCHED: Final = frozenset({Cause.LAUNCH_REFUSED, Cause.UNSCHEDULABLE, Cause.IMAGE_UNAVAILABLE})
"""Why a substrate has started no executor; of one that was started late after all it says nothing."""


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
    OUT_OF_MEMORY = "out_of_memory"  #: used more memory than its limit, or the kernel ended it for want of memory
    DISK_LIMIT = "disk_limit"  #: its folder grew over the limit, or the disk was full
    FILE_TOO_LARGE = "file_too_large"  #: wrote a file over the limit
    TOO_MANY_FILES = "too_many_files"  #: made more files than the limit
    PRINTED_TOO_MUCH = "printed_too_much"  #: printed more than the limit
    FORBIDDEN_PATH = "forbidden_path"  #: a link, device, pipe or path that leaves the folder, among its outputs
    INVALID_RESULT = "invalid_result"  #: ended well, but its result is missing or is not JSON
    INPUT_UNAVAILABLE = "input_unavailable"  #: an input or checkpoint could not be fetched, or is damaged
    UNKNOWN_SECRET = "unknown_secret"  # noqa: S105 - the worker's host does not know a secret that the task names
    OUTPUTS_NOT_STORED = "outputs_not_stored"  #: the store could not be reached, or was full
    OUTPUTS_DAMAGED = "outputs_damaged"  #: what was found in the staging place is not what the worker reported


NEVER_RETRIED: Final = frozenset(
    {
        FailureKind.UNKNOWN_HANDLER,
        FailureKind.NOT_ALLOWED,
        FailureKind.INVALID_ARGUMENTS,
        FailureKind.RESULT_NOT_JSON,
        FailureKind.RESULT_TOO_LARGE,
        FailureKind.COMMAND_NOT_FOUND,
        FailureKind.FORBIDDEN_PATH,
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
    exit_code: Annotated[int, Field(ge=-MAX_INT, le=MAX_INT)] | None = None


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
    state: Literal["claimed", "launched", "running", "finished", "stopping"]
    """`launched` is said by a worker whose launcher starts executors: it renews the offer, not an executor's lease."""


Holds = Annotated[tuple[Held, ...], Field(max_length=MOST_HOLDS, fail_fast=True)]
"""What a worker has in hand. The first one that cannot be read ends the reading: who writes rubbish costs little."""


class Hello(Message):
    """The worker (re)introduces itself: at start, after a reconnect, and whenever the coordinator does not know it.

    `ordinal` numbers the hellos of an agent, so that an answer to an earlier one is not taken for the answer to this.
    """

    kind: Literal["hello"] = "hello"
    ordinal: Count = 0
    executor_of: Name | None = None
    """The worker whose launcher started this one, which runs one assignment and leaves; None for all others."""
    predecessor: Count = 0
    """The generation before this one on this host, if all that it had started is proved gone; else 0."""
    launches: bool | None = None
    """Whether its launcher starts an executor for each assignment, or it runs them itself; None: it does not say."""
    slots: Annotated[int, Field(ge=1, le=4096)]
    capabilities: Annotated[tuple[Name, ...], Field(min_length=1, max_length=64)]
    labels: Annotated[Pairs, Field(max_length=_MOST_PAIRS, fail_fast=True)] = ()
    resources: Annotated[Amounts, Field(max_length=_MOST_PAIRS, fail_fast=True)] = ()
    ttl_ms: Annotated[int, Field(ge=MIN_LEASE_TTL_MS, le=MAX_LEASE_TTL_MS)]
    remaining_ms: Milliseconds | None = None
    """For how long a task may still run here, on a worker that has an end of its own; None: it has none."""
    held: Holds = ()
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
    outputs: Bundle | None = None
    """The files that it left in `outputs/`: staged under the fence, not in the store before acceptance."""
    notes: Annotated[tuple[Text, ...], Field(max_length=16)] = ()
    """What a person should know about a result that is good, such as processes that were left behind and ended."""
    printed: bool = False
    """Whether the attempt has a log at the broker: what it has printed is then kept."""


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
    printed: bool = False
    """Whether the attempt has a log at the broker."""

    @model_validator(mode="after")
    def _is_its_to_say(self) -> Released:
        _require_sayable(self.cause)
        if self.started and self.cause in BEFORE_THE_START:
            message = f"what has started was not given back as {self.cause}"
            raise ValueError(message)
        return self


class Progressed(Message):
    """How far a running task is; `cursor` grows by one per message of an attempt. `metrics` is a JSON object."""

    kind: Literal["progressed"] = "progressed"
    binding: Binding
    cursor: Count
    fraction_ppm: Annotated[int, Field(ge=0, le=1_000_000)]
    message: Text = ""
    metrics: Annotated[str, Field(max_length=MAX_METRICS)] = ""

    @field_validator("metrics")
    @classmethod
    def _can_be_read(cls, metrics: str) -> str:
        read_metrics(metrics)
        return metrics


class Checkpointed(Message):
    """A running task has saved its state under that name; it is staged under the fence. Told until it is `Kept`.

    `ordinal` grows by one per checkpoint of an attempt.
    """

    kind: Literal["checkpointed"] = "checkpointed"
    binding: Binding
    ordinal: Count
    name: Name
    bundle: Bundle


class ExecutorGone(Message):
    """The launcher of this worker says that the executor of an assignment is over, or never came to be.

    Taken only from the worker whose executor the lease is bound to, or for whom the offer is and which no other one's
    heartbeat lists. An offer is given back, for no executor runs without a grant. A lease that an executor is bound to
    is released with that cause when `proved` says that its processes are gone and it is not heard, and otherwise runs
    out by itself, with that cause as its reason. Of an executor that has said itself that it was told to end, and has,
    it only names the cause. Told until it is `Judged`; the nonce is the teller's own and only names what is answered.
    """

    kind: Literal["executor_gone"] = "executor_gone"
    binding: Binding
    cause: Cause
    proved: bool
    detail: Text = ""

    @model_validator(mode="after")
    def _is_its_to_say(self) -> ExecutorGone:
        _require_sayable(self.cause)
        return self


class Leaving(Message):
    """The worker drains (`gone` False) or has ended with nothing in hand (`gone` True)."""

    kind: Literal["leaving"] = "leaving"
    gone: bool


WorkerEvent = Annotated[
    Hello | Claimed | Finished | Released | ExecutorGone | Progressed | Checkpointed | Leaving,
    Field(discriminator="kind"),
]


class Report(Message):
    """One inbox entry.

    `generation` numbers the worker's agents since its id was made; `window` is how many assignments the worker wants
    in hand, slots included.
    """

    worker_id: Name
    generation: Annotated[int, Field(ge=1, le=MAX_INT)]
    window: Annotated[int, Field(ge=0, le=4096)]
    events: Annotated[tuple[WorkerEvent, ...], Field(max_length=MOST_EVENTS, fail_fast=True)]


def _require_sayable(cause: Cause) -> None:
    if cause is Cause.SITE_REVOKED:
        message = f"{cause} is the coordinator's to say"
        raise ValueError(message)


REPORT: Final = TypeAdapter(Report)


class Heartbeat(Message):
    """The value of a worker's TTL key: everything that it holds. `sequence` grows by one per heartbeat."""

    generation: Annotated[int, Field(ge=1, le=MAX_INT)]
    sequence: Count
    window: Annotated[int, Field(ge=0, le=4096)]
    held: Holds
    remaining_ms: Milliseconds | None = None
    """As in `Hello`, at the time of this heartbeat."""


HEARTBEAT: Final = TypeAdapter(Heartbeat)
