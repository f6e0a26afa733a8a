"""A porter that does its jobs when the test says so, over a store in memory; and what workers stage there."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

from tenure.artifacts.base import Place
from tenure.artifacts.direct import DirectPorter
from tenure.artifacts.jobs import Ended, Job, Problem
from tenure.artifacts.memory import MemoryStore
from tenure.broker.keys import DEFAULT_SITE
from tenure.protocol.artifact import Blob, Bundle, File, encode_manifest
from tenure.protocol.worker_messages import Binding
from tenure.testing import ManualClock


class HeldPorter:
    """See `tenure.artifacts.base.Porter`.

    Attributes:
        jobs: what is under way, in order.
        begun: the kind of every job that was ever begun.
    """

    pid: int = 0

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.jobs: list[Job] = []
        self.begun: list[str] = []
        self._direct = DirectPorter(self.store)
        self._ended: list[Ended] = []

    # --- what the coordinator sees ---

    def submit(self, job: Job) -> None:
        self.jobs.append(job)
        self.begun.append(job.kind)

    def cancel(self, number: int) -> None:
        """Nobody asks for it."""

    def ended(self) -> Sequence[Ended]:
        told, self._ended = self._ended, []
        return told

    def busy(self) -> bool:
        return bool(self.jobs or self._ended)

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        """Nothing is open."""

    # --- what the test does ---

    def finish(self, kind: str = "") -> int:
        """Do the jobs of a kind, or all; how many."""
        return self._end(kind, self._direct.carry)

    def fail(self, code: str, kind: str = "") -> int:
        """Let jobs end with a problem."""
        return self._end(
            kind, lambda job: Ended(number=job.number, problem=Problem(code=code, message=f"it is {code}"))
        )

    def answer(self, kind: str, blob: Blob | None) -> int:
        """Let jobs end well, with that blob."""
        return self._end(kind, lambda job: Ended(number=job.number, blob=blob))

    def die(self) -> None:
        """Forget all jobs, as a process that has ended."""
        self.jobs.clear()
        self._ended.clear()

    def waiting(self) -> list[str]:
        """The kinds of the jobs that are under way."""
        return [job.kind for job in self.jobs]

    def _end(self, kind: str, how: Callable[[Job], Ended]) -> int:
        chosen = [job for job in self.jobs if kind in {"", job.kind}]
        self.jobs = [job for job in self.jobs if job not in chosen]
        self._ended.extend(how(job) for job in chosen)
        return len(chosen)


def stage(
    porter: HeldPorter, binding: Binding, files: Mapping[str, bytes], *, leave_out: str = "", site: str = DEFAULT_SITE
) -> Bundle:
    """What an executor stages and reports; one file may be missing."""
    listed: list[File] = []
    place = Place(site, binding.task_id, binding.fence, binding.nonce)
    for path, raw in files.items():
        listed.append(File(path=path, blob=blob_of(raw)))
        if path != leave_out:
            _put(porter, place, raw)
    manifest = encode_manifest(tuple(listed))
    _put(porter, place, manifest)
    return Bundle(manifest=blob_of(manifest), files=len(files), size=sum(map(len, files.values())))


def objects(porter: HeldPorter) -> set[str]:
    """The digests of all objects."""
    return {stored.blob.digest for stored in porter.store.objects()}


def places(porter: HeldPorter) -> set[tuple[int, str]]:
    """Fence and nonce of every place that holds something."""
    return {(staged.place.fence, staged.place.nonce) for staged in porter.store.places()}


def _put(porter: HeldPorter, place: Place, raw: bytes) -> None:
    porter.store.stage(place, blob_of(raw), 0, iter([raw]))


def blob_of(raw: bytes) -> Blob:
    """What names that content."""
    return Blob(digest=hashlib.sha256(raw).hexdigest(), size=len(raw))


def digests(files: Mapping[str, bytes]) -> set[str]:
    """The digests of these files."""
    return {blob_of(raw).digest for raw in files.values()}
