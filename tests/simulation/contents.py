"""The store of artifacts and the coordinator's porter: contents are digests, moving them takes time and may fail.

The store outlives every coordinator. A porter dies with its coordinator; what it had begun to promote or to discard may
still come about, as a request that was sent already.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, assert_never, final

from tenure.artifacts.jobs import (
    Collect,
    Discard,
    Ended,
    Fetch,
    KeepLog,
    Problem,
    Promote,
    Restore,
    Save,
    StagingPlace,
    Tidy,
    Verify,
)
from tenure.protocol.artifact import Blob, Bundle
from tests.simulation.history import Removed, Stored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.artifacts.jobs import Job
    from tenure.protocol.worker_messages import Binding
    from tests.simulation.coordinator import CoordinatorProcess
    from tests.simulation.dice import Dice
    from tests.simulation.history import History

Place = tuple[str, str, int, str]
ADDRESS: Final = "simulated:"
_UNREACHABLE: Final = Problem(code="artifact_store_unreachable", message="the simulated store is away")
_UNKNOWN: Final = Problem(code="unknown_artifact", message="the simulated store does not have it")


def bundle_named(text: str) -> Bundle:
    """A bundle that is told from all others by a text."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Bundle(manifest=Blob(digest=digest, size=10), files=1, size=10)


@final
class Shelf:
    """The store: bundles by their manifests' digests, and since when each is there."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.away = False
        self.objects: dict[str, int] = {}
        self.staged: dict[Place, dict[str, int]] = {}

    def stage(self, site: str, binding: Binding, bundle: Bundle) -> None:
        """What an executor of that site stages."""
        place = (site, binding.task_id, binding.fence, binding.nonce)
        self.staged.setdefault(place, {})[bundle.manifest.digest] = self.history.engine.now

    def carry(self, job: Job) -> Ended:
        """Do a job, at once."""
        if self.away:
            return Ended(number=job.number, problem=_UNREACHABLE)
        problem = None
        match job:
            case Verify():
                problem = None if self._has(job.place, job.bundle) else _UNKNOWN
            case Promote():
                problem = self._promote(job)
            case Discard():
                self.staged.pop(_key(job.place), None)
            case Tidy():
                self._tidy(job)
            case KeepLog() | Restore() | Fetch() | Collect() | Save():
                pass
            case _:
                assert_never(job)
        return Ended(number=job.number, problem=problem)

    def _has(self, place: StagingPlace, bundle: Bundle) -> bool:
        digest = bundle.manifest.digest
        return digest in self.objects or digest in self.staged.get(_key(place), {})

    def _promote(self, job: Promote) -> Problem | None:
        digest, now = job.bundle.manifest.digest, self.history.engine.now
        if not self._has(job.place, job.bundle):
            return _UNKNOWN
        if digest not in self.objects:
            self.objects[digest] = now
            self.history.add(Stored(now, digest))
        if job.last:
            self.staged.pop(_key(job.place), None)
        return None

    def _tidy(self, job: Tidy) -> None:
        now = self.history.engine.now
        named = {bundle.manifest.digest for bundle in job.bundles}
        for digest, since in list(self.objects.items()):
            if digest not in named and now - since >= job.min_age_ms:
                del self.objects[digest]
                self.history.add(Removed(now, digest))
        kept = {_key(place) for place in job.keep_places}
        for place, contents in list(self.staged.items()):
            if place not in kept and now - max(contents.values()) >= job.min_age_ms:
                del self.staged[place]


@final
class SimulatedPorter:
    """See `tenure.artifacts.base.Porter`; belongs to one coordinator's process."""

    def __init__(self, process: CoordinatorProcess, shelf: Shelf, dice: Dice) -> None:
        self._process = process
        self._shelf = shelf
        self._dice = dice
        self._outstanding = 0
        self._ended: list[Ended] = []

    def submit(self, job: Job) -> None:
        """See `Porter.submit`."""
        self._outstanding += 1
        survives = isinstance(job, Promote | Discard) and self._dice.chance(200)
        delay_ms = self._dice.between(1, 60) if self._dice.chance(800) else self._dice.between(100, 4_000)

        def act() -> None:
            if self._process.alive or survives:
                ended = self._shelf.carry(job)
                self._process.engine.after(self._dice.between(0, 100), lambda: self._told(ended))

        self._process.engine.after(delay_ms, act)

    def cancel(self, number: int) -> None:
        """See `Porter.cancel`."""

    def ended(self) -> Sequence[Ended]:
        """See `Porter.ended`."""
        told, self._ended = self._ended, []
        self._outstanding -= len(told)
        return told

    def busy(self) -> bool:
        """See `Porter.busy`."""
        return self._outstanding > 0

    @property
    def pid(self) -> int:
        return 0

    def fileno(self) -> int:
        """See `Porter.fileno`."""
        return -1

    def close(self) -> None:
        """See `Porter.close`."""

    def _told(self, ended: Ended) -> None:
        if self._process.alive:
            self._ended.append(ended)
            self._process.wake(0)


def _key(place: StagingPlace) -> Place:
    return (place.site, place.task_id, place.fence, place.nonce)
