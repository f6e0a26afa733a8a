"""What a porter is asked to do, and what it answers: frozen models, because they travel to another process."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter

from tenure.artifacts.base import Place
from tenure.protocol.artifact import Blob, Bundle, Input
from tenure.protocol.message import MAX_INT, Count, Message, Milliseconds, Name, Nonce, TaskId, Text

Number = Annotated[int, Field(ge=1, le=MAX_INT)]


class StagingPlace(Message):
    """`tenure.artifacts.base.Place` on the wire."""

    site: Name
    task_id: TaskId
    fence: Annotated[int, Field(ge=1, le=MAX_INT)]
    nonce: Nonce


def place_of(place: StagingPlace) -> Place:
    """The store's place that a job names."""
    return Place(site=place.site, task_id=place.task_id, fence=place.fence, nonce=place.nonce)


class Fetch(Message):
    """Put these contents below `folder`, checking each digest; what is there already is replaced."""

    kind: Literal["fetch"] = "fetch"
    number: Number
    folder: str
    wanted: tuple[Input, ...]


class Collect(Message):
    """Stage every file below `folder` and the manifest; answers the bundle.

    Links, devices, pipes and unreadable names are refused with `forbidden_path`. A folder that is not there is empty.
    `skip_empty` answers no bundle when there is no file.
    """

    kind: Literal["collect"] = "collect"
    number: Number
    place: StagingPlace
    folder: str
    most_files: Count
    skip_empty: bool = True


class Save(Message):
    """Stage one file or folder at `path` below `folder` as a bundle, although a program may still run beside it.

    In the bundle's manifest paths start at `path`'s own name, so that a fetch of the bundle restores `<name>` or
    `<name>/...`.
    """

    kind: Literal["save"] = "save"
    number: Number
    place: StagingPlace
    folder: str
    path: str
    most_files: Count


class Verify(Message):
    """Read a staged bundle to its last byte and compare all digests; nothing is promoted."""

    kind: Literal["verify"] = "verify"
    number: Number
    place: StagingPlace
    bundle: Bundle


class Promote(Message):
    """Make every content of a staged bundle an object, its manifest last; then discard the place if `last`."""

    kind: Literal["promote"] = "promote"
    number: Number
    place: StagingPlace
    bundle: Bundle
    last: bool = False


class Discard(Message):
    """Remove what is staged in a place."""

    kind: Literal["discard"] = "discard"
    number: Number
    place: StagingPlace


class KeepLog(Message):
    """Make the log stream of an attempt at the broker an object and let the stream expire; no blob when it is empty.

    The stream stays for some minutes: followers still read its end, and the job may be repeated.
    """

    kind: Literal["keep_log"] = "keep_log"
    number: Number
    site: Name
    task_id: TaskId
    fence: Annotated[int, Field(ge=1, le=MAX_INT)]


class Tidy(Message):
    """Remove old objects that neither these contents nor their manifests name, and old places that are not to be kept.

    Old is what has been there for `min_age_ms`.
    """

    kind: Literal["tidy"] = "tidy"
    number: Number
    bundles: tuple[Bundle, ...] = ()
    blobs: tuple[Blob, ...] = ()
    keep_places: tuple[StagingPlace, ...] = ()
    min_age_ms: Milliseconds
    dry_run: bool = False


class Restore(Message):
    """Put back what the store has lost and this porter has a durable copy of: objects that were kept at the broker.

    To be done at the start, and whenever the broker has lost its data. Answers how many there were.
    """

    kind: Literal["restore"] = "restore"
    number: Number


Job = Fetch | Collect | Save | Verify | Promote | Discard | KeepLog | Tidy | Restore
AnyJob = Annotated[Job, Field(discriminator="kind")]
JOB: Final[TypeAdapter[Job]] = TypeAdapter(AnyJob)


class Problem(Message):
    """Why a job could not be done: the `code` of one of `tenure.errors`, or one of these; and a sentence.

    `cancelled`: given up on order. `disk`: the disk of the task's folder is full or does not work.
    """

    code: str
    message: Text


class Ended(Message):
    """The end of a job: with a `problem`, or with what it answers."""

    number: Number
    problem: Problem | None = None
    bundle: Bundle | None = None
    blob: Blob | None = None
    files: Count = 0
    """How many files were moved, or objects and places removed."""
    size: Count = 0
    """How many bytes that were."""


ENDED: Final = TypeAdapter(Ended)
