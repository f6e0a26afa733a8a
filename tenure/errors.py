"""The one tree of errors. Each says what happened, to what, and what to do about it.

Every error that Tenure raises on purpose derives from `TenureError`, carries a stable `code` (used in replies,
`--json` output and tests) and maps to one exit code of the command line: 1 the task failed, 2 wrong use, 3 the fleet
could not do it. Errors of libraries are translated at the edge that talks to the library, with the cause kept.
"""

from __future__ import annotations


class TenureError(Exception):
    """Root of every error raised on purpose.

    Args:
        message: what happened and to what, in one line.
        remedy: what the reader can do about it, in one line; may be empty.
    """

    code: str = "error"
    exit_code: int = 3

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        """The message and, when there is one, the remedy, in one line."""
        return f"{self.message}. {self.remedy}" if self.remedy else self.message


# --- wrong use: exit code 2 -------------------------------------------------------------------------------------------


class UsageError(TenureError):
    """The caller asked for something that cannot be: fix the call and repeat it."""

    code = "usage"
    exit_code = 2


class InvalidSettings(UsageError):
    """A setting is missing, malformed or contradicts another one."""

    code = "invalid_settings"


class MalformedMessage(UsageError):
    """Bytes from the wire or a caller do not form a valid message; they were refused before anything was stored."""

    code = "malformed_message"


class PayloadTooLarge(UsageError):
    """An envelope, argument list or result is larger than the wire allows."""

    code = "payload_too_large"


class InvalidArguments(UsageError):
    """Arguments do not fit the handler's signature or its type hints."""

    code = "invalid_arguments"


class ResultNotJson(UsageError):
    """The value that a handler returned has no JSON form."""

    code = "result_not_json"


class UnknownHandler(UsageError):
    """No function of that name can be imported."""

    code = "unknown_handler"


class HandlerNotAllowed(UsageError):
    """The handler's module is not among the modules that the worker was started with."""

    code = "handler_not_allowed"


class UnknownTask(UsageError):
    """No task of that id exists in this namespace."""

    code = "unknown_task"


class UnknownWorker(UsageError):
    """No worker of that id is registered."""

    code = "unknown_worker"


class UnknownDirective(UsageError):
    """No directive of that id exists."""

    code = "unknown_directive"


class DirectiveDecided(UsageError):
    """The directive has been approved or denied already; a decision is never changed."""

    code = "directive_decided"


class KeyConflict(UsageError):
    """The idempotency key was used before with a different envelope."""

    code = "key_conflict"


class NotEligible(UsageError):
    """The worker may not be given this task: state, slots, resources, labels or capability do not fit."""

    code = "not_eligible"


class NotAllowed(UsageError):
    """The person's role does not go so far."""

    code = "not_allowed"


class UnknownPrincipal(UsageError):
    """No site or person of that name was issued a credential, or it was revoked."""

    code = "unknown_principal"


class NameTaken(UsageError):
    """A site, a person or a campaign of that name is or was known; names are never used again."""

    code = "name_taken"


class UnknownCampaign(UsageError):
    """No campaign of that name exists."""

    code = "unknown_campaign"


class OutsideCampaign(UsageError):
    """The campaign does not allow this submission: it is not open, or not for this person, work or device."""

    code = "outside_campaign"


class OverBudget(UsageError):
    """The campaign has less left than the submission would take; nothing of it was stored."""

    code = "over_budget"


class UnknownArtifact(UsageError):
    """The store holds nothing of that digest, or the task has no files of that kind."""

    code = "unknown_artifact"


class NotAdoptable(UsageError):
    """The quarantined result cannot be adopted or dropped: it was decided before, or the task went on without it."""

    code = "not_adoptable"


class ForbiddenPath(UsageError):
    """A path leaves its folder, or names a link, a device or a pipe where only files may be."""

    code = "forbidden_path"


class TooManyFiles(UsageError):
    """A folder holds more files than it may."""

    code = "too_many_files"


class MissingExtra(UsageError):
    """An optional part was asked for and its library is not installed."""

    code = "missing_extra"


class UnknownLauncher(UsageError):
    """No launcher of that name is installed."""

    code = "unknown_launcher"


class WritesDisabled(UsageError):
    """A launcher would change a cluster, and was not allowed to."""

    code = "writes_disabled"


# --- the task's own end: exit code 1 ----------------------------------------------------------------------------------


class TaskError(TenureError):
    """A task ended without a value."""

    code = "task"
    exit_code = 1


class TaskFailed(TaskError):
    """The handler raised or the command ended badly; `kind` says how and `trace` holds its traceback or output tail."""

    code = "task_failed"

    def __init__(self, message: str, remedy: str = "", *, kind: str = "", trace: str = "") -> None:
        super().__init__(message, remedy)
        self.kind = kind
        self.trace = trace


class TaskLost(TaskError):
    """The attempt's lease ran out and nobody has decided yet; a person may approve or deny its directive."""

    code = "task_lost"


class TaskCancelled(TaskError):
    """The task was cancelled and its end is proved."""

    code = "task_cancelled"


class TaskAbandoned(TaskError):
    """The task was lost and its retry was denied."""

    code = "task_abandoned"


# --- the fleet could not do it: exit code 3 ---------------------------------------------------------------------------


class FleetError(TenureError):
    """The fleet could not do what was asked, though nothing was wrong with the question."""

    code = "fleet"


class BrokerError(FleetError):
    """Root of everything that goes wrong between a process and the broker."""

    code = "broker"


class BrokerUnreachable(BrokerError):
    """No connection to the broker, or the connection was cut; what was in flight is *unknown*, not failed."""

    code = "broker_unreachable"


class ReplyBeyondMeasure(BrokerUnreachable):
    """One of the streams that were read holds far more than any entry may; what was read of the others is not lost."""

    code = "reply_beyond_measure"


class BrokerRefused(BrokerError):
    """The broker answered no: wrong password, missing right, or an address that is not a broker."""

    code = "broker_refused"


class CredentialRefused(BrokerRefused):
    """The broker does not accept this user or password, or not any more."""

    code = "credential_refused"


class BrokerUnsafe(BrokerError):
    """The broker's configuration would lose or evict messages, so the coordinator does not start on it."""

    code = "broker_unsafe"


class NamespaceTaken(BrokerError):
    """The namespace's data on the broker was written by the coordinator of another database."""

    code = "namespace_taken"


class BrokerFull(BrokerError):
    """The broker has reached its memory limit and refuses writes."""

    code = "broker_full"


class StreamMissing(BrokerError):
    """The stream or its group is gone (flush, failover, first start); only the coordinator makes it again."""

    code = "stream_missing"


class CoordinatorUnreachable(FleetError):
    """No coordinator answered within the time given."""

    code = "coordinator_unreachable"


class WaitTimedOut(FleetError, TimeoutError):
    """The wait ran out; the task goes on."""

    code = "wait_timed_out"


class StoreError(FleetError):
    """Root of everything that goes wrong with the coordinator's database."""

    code = "store"


class StoreFull(StoreError):
    """The disk that holds the database is full; nothing of the batch was stored and nothing was acknowledged."""

    code = "store_full"


class StoreTooNew(StoreError):
    """The database was written by a newer version of Tenure."""

    code = "store_too_new"


class StoreBusy(StoreError):
    """Another coordinator holds this database."""

    code = "store_busy"


class Superseded(StoreError):
    """A newer coordinator has taken over this database or these streams; this one must stop and write nothing more."""

    code = "superseded"


class WorkerBusy(FleetError):
    """Another agent on this host runs under the same worker id."""

    code = "worker_busy"


class ArtifactError(FleetError):
    """Root of everything that goes wrong with a store of artifacts."""

    code = "artifact"


class ArtifactStoreUnreachable(ArtifactError):
    """The store cannot be reached, or does not let this program in."""

    code = "artifact_store_unreachable"


class ArtifactStoreFull(ArtifactError):
    """The store has no room for this content, or does not take contents of this size."""

    code = "artifact_store_full"


class ArtifactDamaged(ArtifactError):
    """The bytes that are there do not have the digest or the size that they should have."""

    code = "artifact_damaged"


class LaunchError(FleetError):
    """An executor could not be started, asked about or ended where it runs."""

    code = "launch"


class LaunchRefused(LaunchError):
    """The substrate does not take what was to be launched; nothing was started."""

    code = "launch_refused"


class SubstrateUnreachable(LaunchError):
    """The substrate cannot be asked; what was asked of it may have been done."""

    code = "substrate_unreachable"
