"""What the coordinator has the porter do, and what each job is for. An errand's `key` tells whether it is under way.

Errands are decided inside a transaction and begun after its commit. All of them are safe to repeat, so that none has to
be remembered over a crash: what must happen is on record, and is found there again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, final

from tenure.artifacts.jobs import Discard, KeepLog, Promote, Restore, StagingPlace, Tidy, Verify
from tenure.protocol.artifact import Blob, Bundle
from tenure.protocol.worker_messages import Binding, Checkpointed, Finished

if TYPE_CHECKING:
    from tenure.artifacts.jobs import Job
    from tenure.broker.base import WorkerAddress
    from tenure.coordinator.store.database import Row

Key = tuple[str | int, ...]
Kind = Literal["outputs", "checkpoint", "log"]


def place_of(site: str, binding: Binding) -> StagingPlace:
    """Where the executor of that binding stages, at its site."""
    return StagingPlace(site=site, task_id=binding.task_id, fence=binding.fence, nonce=binding.nonce)


@final
@dataclass(frozen=True, slots=True)
class Artifact:
    """One row of the table `artifact`."""

    task_id: str
    fence: int
    attempt: int
    kind: Kind
    ordinal: int
    name: str
    bundle: Bundle
    place: StagingPlace

    @property
    def key(self) -> tuple[str, int, Kind, int]:
        """What names the row."""
        return (self.task_id, self.fence, self.kind, self.ordinal)


def open_artifact(row: Row) -> Artifact:
    """An artifact from the columns that the queries of `artifact.sql` have in common."""
    manifest = Blob(digest=row[6], size=row[7])
    return Artifact(
        task_id=row[0],
        fence=row[1],
        attempt=row[2],
        kind=row[3],
        ordinal=row[4],
        name=row[5],
        bundle=Bundle(manifest=manifest, files=row[8], size=row[9]),
        place=StagingPlace(site=row[13], task_id=row[0], fence=row[11], nonce=row[12]),
    )


@final
@dataclass(frozen=True, slots=True)
class ResultCheck:
    """Read the staged outputs of a result that would be accepted now."""

    who: WorkerAddress
    report: Finished
    bundle: Bundle

    @property
    def key(self) -> Key:
        """One check per executor, whatever it reports meanwhile."""
        binding = self.report.binding
        return ("result", binding.task_id, binding.fence, binding.nonce)

    def job(self, number: int) -> Job:
        """What the porter does."""
        return Verify(number=number, place=place_of(self.who.site, self.report.binding), bundle=self.bundle)


@final
@dataclass(frozen=True, slots=True)
class CheckpointCheck:
    """Read a staged checkpoint of an attempt that runs."""

    who: WorkerAddress
    event: Checkpointed

    @property
    def key(self) -> Key:
        """One check per checkpoint."""
        binding = self.event.binding
        return ("checkpoint", binding.task_id, binding.fence, binding.nonce, self.event.ordinal)

    def job(self, number: int) -> Job:
        """What the porter does."""
        return Verify(number=number, place=place_of(self.who.site, self.event.binding), bundle=self.event.bundle)


@final
@dataclass(frozen=True, slots=True)
class AdoptionCheck:
    """Read the staged outputs of a quarantined result that somebody wants to adopt."""

    quarantine_id: str
    place: StagingPlace
    bundle: Bundle
    by: str
    note: str
    principal: str = "coordinator"
    """Whose decision it is, as the event log says it."""

    @property
    def key(self) -> Key:
        """One check per quarantined result."""
        return ("adoption", self.quarantine_id)

    def job(self, number: int) -> Job:
        """What the porter does."""
        return Verify(number=number, place=self.place, bundle=self.bundle)


@final
@dataclass(frozen=True, slots=True)
class Promotion:
    """Bring into the store what was accepted."""

    artifact: Artifact

    @property
    def key(self) -> Key:
        """One promotion per artifact."""
        return ("promote", *self.artifact.key)

    def job(self, number: int) -> Job:
        """What the porter does; after its outputs an attempt has nothing more to stage."""
        last = self.artifact.kind == "outputs"
        return Promote(number=number, place=self.artifact.place, bundle=self.artifact.bundle, last=last)


@final
@dataclass(frozen=True, slots=True)
class Discarding:
    """Remove what nobody wants from its staging place."""

    place: StagingPlace

    @property
    def key(self) -> Key:
        """One per place."""
        return ("discard", self.place.site, self.place.task_id, self.place.fence, self.place.nonce)

    def job(self, number: int) -> Job:
        """What the porter does."""
        return Discard(number=number, place=self.place)


@final
@dataclass(frozen=True, slots=True)
class LogKeeping:
    """Take the log of an attempt that is over from the broker into the store."""

    task_id: str
    fence: int
    attempt: int
    site: str

    @property
    def key(self) -> Key:
        """One per attempt."""
        return ("log", self.task_id, self.fence)

    def job(self, number: int) -> Job:
        """What the porter does."""
        return KeepLog(number=number, site=self.site, task_id=self.task_id, fence=self.fence)


@final
@dataclass(frozen=True, slots=True)
class Collecting:
    """Remove from the store what no record names."""

    collection_id: int
    min_age_ms: int
    dry_run: bool
    bundles: tuple[Bundle, ...]
    blobs: tuple[Blob, ...]
    keep_places: tuple[StagingPlace, ...]

    @property
    def key(self) -> Key:
        """One at a time."""
        return ("collection",)

    def job(self, number: int) -> Job:
        """What the porter does."""
        return Tidy(
            number=number,
            bundles=self.bundles,
            blobs=self.blobs,
            keep_places=self.keep_places,
            min_age_ms=self.min_age_ms,
            dry_run=self.dry_run,
        )


@final
@dataclass(frozen=True, slots=True)
class Restoring:
    """Put back into the store what a broker has lost that is one; `look` numbers the looks at the broker."""

    look: int

    @property
    def key(self) -> Key:
        """One per look: the broker may have lost its data again while the last one was under way."""
        return ("restore", self.look)

    def job(self, number: int) -> Job:
        """What the porter does."""
        return Restore(number=number)


Check = ResultCheck | CheckpointCheck | AdoptionCheck
Errand = Check | Promotion | Discarding | LogKeeping | Collecting | Restoring
