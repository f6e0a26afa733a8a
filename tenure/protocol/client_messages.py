"""What clients ask and are told: requests on the `rpc` stream, replies and notices on the client's own stream.

A request may be repeated under the same `request_id`: submissions carry a key per task, so a repeat returns the first
answer's task ids; of the others, reads and steps that are safe to repeat are carried out again, and the rest is
answered as before by the coordinator that took them.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter

from tenure.protocol.artifact import Bundle
from tenure.protocol.assignment import Attempt, Fence
from tenure.protocol.audit_messages import ReadEvents
from tenure.protocol.campaign_messages import CloseCampaign, Cost, CreateCampaign
from tenure.protocol.cancellation_messages import CancelMany
from tenure.protocol.message import Count, Message, Milliseconds, Name, TaskId, Text
from tenure.protocol.principal_messages import (
    AddCredential,
    ChangeRole,
    GrantSite,
    IssuePerson,
    IssueSite,
    RetireCredentials,
    Revoke,
)
from tenure.protocol.states import TaskState
from tenure.protocol.worker_messages import Failure

Key = Annotated[str, Field(min_length=1, max_length=128)]
Ids = Annotated[tuple[TaskId, ...], Field(max_length=5_000)]


Listed = Literal[
    "tasks",
    "workers",
    "leases",
    "directives",
    "quarantine",
    "artifacts",
    "events",
    "capabilities",
    "sites",
    "clients",
    "credentials",
    "campaigns",
    "usage",
    "cancellations",
    "status",
]
"""What can be read as a list."""


class Item(Message):
    """One envelope (its exact bytes as text) and its idempotency key, unique in the world."""

    key: Key
    envelope: str


class Submit(Message):
    """Store these tasks. All are admitted or none; `watch` asks for a notice when each is done.

    They count against `campaign`, and each of them costs `cost`. Sites are told neither.
    """

    kind: Literal["submit"] = "submit"
    items: Annotated[tuple[Item, ...], Field(min_length=1, max_length=2_000)]
    watch: bool = True
    campaign: Name | None = None
    cost: Cost | None = None


class Watch(Message):
    """Tell me now about those of these tasks that are over or LOST, and of the others when they are."""

    kind: Literal["watch"] = "watch"
    task_ids: Ids


class Cancel(Message):
    """Cancel these tasks."""

    kind: Literal["cancel"] = "cancel"
    task_ids: Ids
    reason: Text = ""


class Decide(Message):
    """Approve or deny pending directives, by directive id or by task id.

    Clients that look before they ask name directives. A task id means whichever directive is pending when it is taken,
    so an approval by task id is refused where it may be a repeated one that an earlier coordinator has taken.
    """

    kind: Literal["decide"] = "decide"
    directives: Annotated[tuple[str, ...], Field(min_length=1, max_length=5_000)]
    approve: bool
    note: Text = ""


class Query(Message):
    """Read records. `what` names the list; `where` filters by exact value of listed columns; newest first."""

    kind: Literal["query"] = "query"
    what: Listed
    where: tuple[tuple[Name, str], ...] = ()
    limit: Annotated[int, Field(ge=1, le=10_000)] = 100


class Explain(Message):
    """Everything on record about one task, as a story in order."""

    kind: Literal["explain"] = "explain"
    task_id: TaskId


class Assign(Message):
    """Give this queued task to this worker, if it is eligible."""

    kind: Literal["assign"] = "assign"
    task_id: TaskId
    worker_id: Name


class RegisterWorker(Message):
    """Record a worker by hand, for executors that speak for themselves."""

    kind: Literal["register_worker"] = "register_worker"
    worker_id: Name
    slots: Annotated[int, Field(ge=1, le=4096)] = 1
    capabilities: Annotated[tuple[Name, ...], Field(min_length=1, max_length=64)]
    labels: tuple[tuple[str, str], ...] = ()
    resources: tuple[tuple[Name, int], ...] = ()


class BeatWorker(Message):
    """Renew a worker recorded by hand, and the leases that it holds."""

    kind: Literal["beat_worker"] = "beat_worker"
    worker_id: Name


class DrainWorker(Message):
    """Give this worker nothing more; it ends when it holds nothing."""

    kind: Literal["drain_worker"] = "drain_worker"
    worker_id: Name


class Sweep(Message):
    """Look for expired leases and silent workers now; says what was found."""

    kind: Literal["sweep"] = "sweep"


class Adopt(Message):
    """Accept a quarantined result after all, under a new fence. A recorded decision of the principal."""

    kind: Literal["adopt"] = "adopt"
    quarantine_id: Key
    note: Text = ""


class Drop(Message):
    """Decide that a quarantined result is not wanted: its files go, the record of it stays."""

    kind: Literal["drop"] = "drop"
    quarantine_id: Key
    note: Text = ""


class CollectArtifacts(Message):
    """Remove from the store what no record names and what is older than `min_age_ms`; `dry_run` only counts.

    The reply says that it has begun; `artifacts` of the status says how the last one ended.
    """

    kind: Literal["collect_artifacts"] = "collect_artifacts"
    min_age_ms: Milliseconds = 86_400_000
    dry_run: bool = False


Ask = Annotated[
    Submit
    | Watch
    | Cancel
    | CancelMany
    | Decide
    | Query
    | Explain
    | Assign
    | RegisterWorker
    | BeatWorker
    | DrainWorker
    | Sweep
    | Adopt
    | Drop
    | CollectArtifacts
    | IssueSite
    | GrantSite
    | ChangeRole
    | IssuePerson
    | AddCredential
    | RetireCredentials
    | Revoke
    | ReadEvents
    | CreateCampaign
    | CloseCampaign,
    Field(discriminator="kind"),
]


class Request(Message):
    """One rpc entry. `client_id` names the reply stream; `principal` is recorded with decisions."""

    client_id: Name
    request_id: Name
    principal: Text = ""
    ask: Ask


REQUEST: Final = TypeAdapter(Request)


class Admitted(Message):
    """One submitted item's task; `fresh` is False when the key had been used before for the same envelope."""

    task_id: TaskId
    state: TaskState
    fresh: bool


class Done(Message):
    """A watched task is over, or LOST. `value` is JSON text."""

    task_id: TaskId
    state: TaskState
    attempt: Attempt | None = None
    fence: Fence | None = None
    value: str | None = None
    failure: Failure | None = None
    outputs: Bundle | None = None
    detail: Text = ""


class Refusal(Message):
    """An error of `tenure.errors`, by its code."""

    code: str
    message: str
    remedy: str = ""


class Reply(Message):
    """The answer to one request: `refusal`, or `admitted` for a submission, or `rows` for the others."""

    kind: Literal["reply"] = "reply"
    request_id: Name
    refusal: Refusal | None = None
    admitted: tuple[Admitted, ...] = ()
    rows: tuple[dict[str, Any], ...] = ()
    warnings: tuple[Text, ...] = ()


class Notice(Message):
    """Watched tasks that have come to an end."""

    kind: Literal["notice"] = "notice"
    done: tuple[Done, ...]


Answer = Annotated[Reply | Notice, Field(discriminator="kind")]


class Mail(Message):
    """One entry of a client's reply stream."""

    epoch: Count
    answers: tuple[Answer, ...]


MAIL: Final = TypeAdapter(Mail)
