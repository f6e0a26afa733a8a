"""The two seams of this package: a `Store` keeps contents, a `Porter` carries them without holding anybody up.

A store has two parts. *Objects* are found by their digest, never change, and are trusted. *Staged* contents lie in a
`Place` of one executor of one attempt until the coordinator has accepted its result; nobody else reads them.
`tests/contract/test_artifact_store.py` is the definition of a store's behaviour; it runs on every implementation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tenure.artifacts.jobs import Ended, Job
    from tenure.protocol.artifact import Blob


OWN: Final = "@"
"""The site of places of the coordinator's own: no site and no person is called so."""

PLACE_SITE: Final = re.compile(r"[A-Za-z0-9_@][A-Za-z0-9_.-]{0,64}")
"""The site of a place, which becomes a part of names in a store."""


@final
@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where one executor of one attempt stages: nobody else writes there, and a later attempt has another fence.

    `site` is the site that it works at, or `OWN`, or what `uploads_of` says: neither is the name of a site.
    """

    site: str
    task_id: str
    fence: int
    nonce: str


def uploads_of(person: str) -> str:
    """The site of places where clients of that person stage what they upload."""
    return f"@{person}"


@final
@dataclass(frozen=True, slots=True)
class Stored:
    """One object of a store, and how long ago it came there by the store's own clock."""

    blob: Blob
    age_ms: int


@final
@dataclass(frozen=True, slots=True)
class StagedPlace:
    """One place that holds something, and how long ago something came there last."""

    place: Place
    age_ms: int


class Store(Protocol):
    """Contents by digest. Safe to use from several threads.

    Every method raises `ArtifactStoreUnreachable` when the store does not answer.
    """

    def has(self, blob: Blob, *, renew: bool = False) -> bool:
        """Whether that object is there, whole.

        `renew` lets its age begin anew, for whoever does not stage a content because it is there already: nobody may
        take it for old and remove it meanwhile.
        """
        ...

    def read(self, blob: Blob, offset: int = 0) -> Iterator[bytes]:
        """The object's bytes from `offset`, in chunks of at most a few MiB; the caller checks the digest.

        Raises `UnknownArtifact`.
        """
        ...

    def staged_bytes(self, place: Place, blob: Blob) -> int:
        """How many bytes from the beginning are safely staged: where an interrupted upload goes on."""
        ...

    def stage(self, place: Place, blob: Blob, offset: int, chunks: Iterable[bytes]) -> None:
        """Stage the content from `offset` (a value of `staged_bytes`) to its end. Raises `ArtifactStoreFull`."""
        ...

    def read_staged(self, place: Place, blob: Blob) -> Iterator[bytes]:
        """The staged bytes, in chunks; those of the object when it is there already. Raises `UnknownArtifact`."""
        ...

    def promote(self, place: Place, blob: Blob) -> None:
        """Make a staged content an object, at once and whole; nothing happens when the object is there already.

        Raises `UnknownArtifact` when it is neither staged nor there, `ArtifactDamaged` when its bytes are not those of
        its digest; then nothing has become an object.
        """
        ...

    def discard(self, place: Place) -> None:
        """Remove everything that is staged there; nothing happens when there is nothing."""
        ...

    def places(self) -> Iterator[StagedPlace]:
        """Every place that holds something."""
        ...

    def objects(self) -> Iterator[Stored]:
        """Every object."""
        ...

    def remove(self, digest: str, min_age_ms: int = 0) -> None:
        """Remove an object; nothing happens when it is not there, or is younger than that by now."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


class Porter(Protocol):
    """Does `Job`s one beside the other, in a process of its own or, in tests, at once. Used by one thread."""

    def submit(self, job: Job) -> None:
        """Begin a job; its end comes out of `ended`."""
        ...

    def cancel(self, number: int) -> None:
        """Give up a job: what it has staged stays there. Its end comes, too, unless it was told already."""
        ...

    def ended(self) -> Sequence[Ended]:
        """The jobs that have ended since the last call; does not wait. A porter that died ends all of its jobs."""
        ...

    def busy(self) -> bool:
        """Whether the end of a job is outstanding."""
        ...

    @property
    def pid(self) -> int:
        """The id of the porter's process, which is a child of this one; 0 while there is none."""
        ...

    def fileno(self) -> int:
        """A descriptor that becomes readable when `ended` has news; -1 while there is none to watch."""
        ...

    def close(self) -> None:
        """Give up all jobs and end the process."""
        ...
