"""The launcher `rq`: executors as jobs of an existing RQ fleet.

RQ is asked to start each executor once and to do nothing by itself about its end: no retry, no time limit, no result.
Its records decide nothing. They are quick where an RQ worker has waited for its work-horse, and silent for minutes
where the RQ worker itself was killed; the lease covers both.

Beside each job lies a mark of ours. RQ forgets a job that ended well at once, and the mark is how a launch that is
tried again is known then. It stands there before the job does, and says afterwards that the job was queued.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, final

import redis.exceptions

from tenure.errors import LaunchRefused, SubstrateUnreachable
from tenure.launchers.base import Handle, Phase, Sighting
from tenure.launchers.options import read_options
from tenure.launchers.rq_link import open_link
from tenure.launchers.rq_plan import BEGUN, RqOptions, RqPlan, render
from tenure.launchers.rq_sighting import sighting_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from tenure.launchers.base import ExecutorCommand, LauncherSettings, LaunchOrder
    from tenure.launchers.rq_link import Job, RqLink

_NAME: Final = "rq"
_ORDERED: Final = b"0"
_QUEUED: Final = b"1"
_REFUSED: Final = (redis.exceptions.AuthenticationError, redis.exceptions.ResponseError)
_UNREACHABLE: Final = (redis.exceptions.RedisError, OSError)


@final
class RqLauncher:
    """See `Launcher`."""

    def __init__(self, link: RqLink, options: RqOptions, executor: ExecutorCommand) -> None:
        self._link = link
        self._options = options
        self._executor = executor

    @property
    def name(self) -> str:
        """See `Launcher.name`."""
        return _NAME

    def render(self, order: LaunchOrder) -> RqPlan:
        """See `Launcher.render`."""
        return render(order, self._executor, self._options)

    def launch(self, plan: RqPlan) -> Handle:
        """See `Launcher.launch`."""
        handle = Handle(launcher=_NAME, name=plan.name, address=plan.queue)
        try:
            if self._link.connection.get(self._link.mark_of(plan.name)) != _QUEUED:
                self._enqueue(plan)
        except _REFUSED as error:
            raise LaunchRefused(f"RQ's Redis refused the job: {error}", "See its password, rights and memory") from None
        except _UNREACHABLE as error:
            raise _unreachable(error) from None
        return handle

    def probe(self, handle: Handle) -> Sighting:
        """See `Launcher.probe`."""
        try:
            return self._seen(handle.name)
        except _UNREACHABLE as error:
            return Sighting(Phase.UNKNOWN, detail=_unreachable(error).message)

    def cancel(self, handle: Handle) -> None:
        """See `Launcher.cancel`. An RQ worker that runs jobs in its own process (`SimpleWorker`) ignores it.

        What RQ has started and what has not begun yet is left to the next call.
        """
        with _translated(), suppress(self._link.no_such_job):
            job = self._link.job(handle.name)
            if _status(job) in {"finished", "failed", "stopped"} or self._stop(handle.name, job):
                return
            with suppress(self._link.invalid_operation):
                job.cancel()
            # Once more, for it may have been started in between: then it is not in the queue but at a worker.
            self._stop(handle.name, self._link.job(handle.name))

    def clear(self, handle: Handle) -> None:
        """See `Launcher.clear`."""
        with _translated():
            with suppress(self._link.no_such_job):
                self._link.job(handle.name).delete()
            self._link.connection.delete(self._link.mark_of(handle.name), self._link.stop_mark_of(handle.name))

    def _stop(self, name: str, job: Job) -> bool:
        """Have it ended where it runs, if it has begun; whether it is at a worker, and not in a queue."""
        if job.worker_name and job.meta.get(BEGUN):
            with suppress(self._link.invalid_operation):
                self._link.send_stop(name)
        return bool(job.worker_name)

    def close(self) -> None:
        """See `Launcher.close`."""
        with suppress(*_UNREACHABLE):
            self._link.connection.close()

    def _seen(self, name: str) -> Sighting:
        try:
            job = self._link.job(name)
        except self._link.no_such_job:
            if self._link.connection.exists(self._link.mark_of(name)):
                return Sighting(Phase.ENDED, detail="RQ has forgotten it, as it does when a job has ended well")
            return Sighting(Phase.MISSING, detail="RQ does not know it")
        worker, status = job.worker_name or "", _status(job)
        if status == "started" and worker and self._link.worker_has_left(worker):
            # Nothing is proved: RQ's word is no more than that.
            return Sighting(Phase.ENDED, detail=f"RQ's worker {worker}, which had it, has left")
        failure = str(getattr(job.latest_result(), "exc_string", None) or "")
        return sighting_of(status, failure, worker)

    def _enqueue(self, plan: RqPlan) -> None:
        mark = self._link.mark_of(plan.name)
        # Before the job, which an RQ worker takes at once: what is refused must not have been started.
        self._link.connection.set(mark, _ORDERED, ex=plan.record_ttl_s)
        try:
            with suppress(self._link.duplicate_job):
                self._link.enqueue(plan)
        except _REFUSED:
            self._undo(plan.name)
            raise
        with suppress(redis.exceptions.ResponseError):
            self._link.connection.set(mark, _QUEUED, ex=plan.record_ttl_s)

    def _undo(self, name: str) -> None:
        # A user that may write jobs but not queues has left a job that nobody would ever start.
        with suppress(*_UNREACHABLE, self._link.no_such_job):
            job = self._link.job(name)
            # What an earlier try has made may run, and is not forgotten for that.
            if _status(job) == "started":
                return
            job.delete()
        with suppress(*_UNREACHABLE):
            self._link.connection.delete(self._link.mark_of(name))


def create(settings: LauncherSettings) -> RqLauncher:
    """The launcher; nothing is connected yet. Raises `MissingExtra`, `InvalidSettings`."""
    options = read_options(RqOptions, _NAME, settings.options)
    return RqLauncher(open_link(options), options, settings.executor)


def _status(job: Job) -> str:
    # As it was fetched: asked for again, a job that has ended meanwhile would be an error.
    status = job.get_status(refresh=False)
    # JobStatus is a text by inheritance, and prints as its own name.
    return str(getattr(status, "value", status))


def _unreachable(error: BaseException) -> SubstrateUnreachable:
    return SubstrateUnreachable(f"RQ's Redis cannot be asked: {type(error).__name__}", "Is it up, and its URL right?")


@contextmanager
def _translated() -> Generator[None]:
    try:
        yield
    except _UNREACHABLE as error:
        raise _unreachable(error) from None
