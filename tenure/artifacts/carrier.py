"""What a porter does: one job after the other, each to its end, with every error turned into an answer.

All jobs are safe to repeat, whatever became of them before: that is how a crash between two steps is repaired.
"""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING, Final, TypeVar, assert_never, final

from tenure.artifacts.content import verify
from tenure.artifacts.jobs import (
    Collect,
    Discard,
    Ended,
    Fetch,
    Job,
    KeepLog,
    Problem,
    Promote,
    Restore,
    Save,
    Tidy,
    Verify,
    place_of,
)
from tenure.artifacts.log_keeping import keep_log
from tenure.artifacts.manifests import contents, read_manifest
from tenure.artifacts.packing import Packer
from tenure.artifacts.side_by_side import small_side_by_side
from tenure.artifacts.stopping import Stopped
from tenure.artifacts.tidying import tidy
from tenure.artifacts.turns import Turns
from tenure.artifacts.unpacking import Unpacker
from tenure.errors import ArtifactDamaged, ArtifactError, TenureError, UnknownArtifact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tenure.artifacts.base import Store
    from tenure.artifacts.jobs import StagingPlace
    from tenure.artifacts.log_keeping import Logs
    from tenure.artifacts.stopping import Stop
    from tenure.protocol.artifact import Blob, Manifest

_T = TypeVar("_T")
_LOG: Final = logging.getLogger(__name__)
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_MOST_TEXT: Final = 2_000
CANCELLED: Final = "cancelled"
DISK: Final = "disk"
"""The codes of a `Problem` that are no errors of `tenure.errors`: given up on order; the task folder's own disk."""


@final
class Carrier:
    """Does jobs. Safe to use from several threads.

    Args:
        store: where contents are kept.
        logs: where logs are read from; None where none are kept.
        restore: puts back what the store has lost, where there are copies.
    """

    def __init__(self, store: Store, logs: Logs | None = None, restore: Callable[[], int] = int) -> None:
        self._store = store
        self._logs = logs
        self._restore = restore
        self._turns = Turns()

    def carry(self, job: Job, stop: Stop) -> Ended:
        """Do the job; whatever happens is in the answer."""
        try:
            stop.check()
            return self._carry(job, stop)
        except Stopped:
            return _failed(job, CANCELLED, "The job was given up on order")
        except TenureError as error:
            return _failed(job, error.code, str(error))
        except OSError as error:
            return _failed(job, DISK, _disk(error))
        except Exception as error:  # noqa: BLE001 - see below
            # A library that is at a loss must end the job, not the porter with everybody's jobs.
            _LOG.exception("the job %d (%s) has failed in a way that nobody foresaw", job.number, job.kind)
            return _failed(job, ArtifactError.code, f"The job failed unexpectedly ({type(error).__name__})")

    def _carry(self, job: Job, stop: Stop) -> Ended:
        match job:
            case Fetch() | Collect() | Save():
                ended = self._move(job, stop)
            case Verify():
                ended = self._verify(job, stop)
            case Promote():
                ended = self._promote(job, stop)
            case Discard():
                self._store.discard(place_of(job.place))
                ended = Ended(number=job.number)
            case KeepLog():
                blob = keep_log(self._store, self._logs, job)
                ended = Ended(number=job.number, blob=blob, size=blob.size if blob is not None else 0)
            case Tidy():
                ended = tidy(self._store, job, stop)
            case Restore():
                ended = Ended(number=job.number, files=self._restore())
            case _:
                assert_never(job)
        return ended

    def _move(self, job: Fetch | Collect | Save, stop: Stop) -> Ended:
        if isinstance(job, Fetch):
            unpacker = Unpacker(self._store, stop)
            unpacker.fetch(job.folder, job.wanted)
            return Ended(number=job.number, files=unpacker.files, size=unpacker.size)
        packer = Packer(self._store, place_of(job.place), stop, job.most_files, self._turns)
        if isinstance(job, Collect):
            bundle = packer.collect(job.folder, skip_empty=job.skip_empty)
        else:
            bundle = packer.save(job.folder, job.path)
        if bundle is None:
            return Ended(number=job.number)
        return Ended(number=job.number, bundle=bundle, files=bundle.files, size=bundle.size)

    def _verify(self, job: Verify, stop: Stop) -> Ended:
        def read(blob: Blob) -> None:
            self._staged(job.place, blob, lambda chunks: verify(blob, stop.between(chunks)))

        small_side_by_side(read, contents(self._manifest(job)), lambda blob: blob.size)
        return Ended(number=job.number, files=job.bundle.files, size=job.bundle.size)

    def _promote(self, job: Promote, stop: Stop) -> Ended:
        place = place_of(job.place)

        def promote(blob: Blob) -> None:
            stop.check()
            self._store.promote(place, blob)

        small_side_by_side(promote, contents(self._manifest(job)), lambda blob: blob.size)
        # Last: whoever finds the manifest among the objects may rely on finding all that it names.
        self._store.promote(place, job.bundle.manifest)
        if job.last:
            self._store.discard(place)
        return Ended(number=job.number, files=job.bundle.files, size=job.bundle.size)

    def _manifest(self, job: Verify | Promote) -> Manifest:
        return self._staged(job.place, job.bundle.manifest, lambda chunks: read_manifest(job.bundle, chunks))

    def _staged(self, place: StagingPlace, blob: Blob, use: Callable[[Iterator[bytes]], _T]) -> _T:
        """What becomes of a staged content's bytes, or of the object's.

        Another job of the place, for a checkpoint with the same file in it, may make an object of the content while it
        is read here, and so take it away.
        """
        try:
            return use(self._store.read_staged(place_of(place), blob))
        except (UnknownArtifact, ArtifactDamaged):
            if not self._store.has(blob):
                raise
            return use(self._store.read(blob))


def _failed(job: Job, code: str, text: str) -> Ended:
    return Ended(number=job.number, problem=Problem(code=code, message=text[:_MOST_TEXT]))


def _disk(error: OSError) -> str:
    reason = error.strerror or type(error).__name__
    if error.errno in _FULL:
        return f"The disk of the task's folder has no room: {reason}"
    return f"A file of the task's folder cannot be read or written: {reason}"
