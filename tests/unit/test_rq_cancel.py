"""What the launcher `rq` tells an RQ worker that runs what is cancelled, in every order of the two."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tenure.launchers.base import Handle
from tenure.launchers.rq_launcher import RqLauncher
from tenure.launchers.rq_link import RqLink
from tenure.launchers.rq_plan import BEGUN


class _NoSuchJob(Exception): ...


class _InvalidOperation(Exception): ...


@dataclass
class _Job:
    """A job as RQ's Redis shows it at one moment."""

    status: str
    worker_name: str | None = None
    meta: dict[str, bool] = field(default_factory=dict[str, bool])

    def get_status(self, *, refresh: bool = True) -> str:
        del refresh
        return self.status

    def cancel(self) -> None:
        if self.status == "canceled":
            raise _InvalidOperation


QUEUED = _Job("queued")
FETCHED = _Job("canceled", "w1")
BEGUN_AND_CANCELED = _Job("canceled", "w1", {BEGUN: True})
RUNNING = _Job("started", "w1", {BEGUN: True})
NOT_BEGUN = _Job("started", "w1")
FINISHED = _Job("finished", "w1", {BEGUN: True})


@pytest.mark.parametrize(
    ("moments", "stops"),
    [
        ([RUNNING], 1),
        ([QUEUED, QUEUED], 0),
        ([QUEUED, RUNNING], 1),
        ([QUEUED, FETCHED, BEGUN_AND_CANCELED], 1),
        ([NOT_BEGUN, NOT_BEGUN, RUNNING], 1),
        ([FINISHED], 0),
    ],
    ids=["runs", "waits", "begins meanwhile", "is fetched meanwhile", "begins later", "is over"],
)
def test_a_job_is_stopped_once_it_has_begun_and_never_before(moments: Sequence[_Job], stops: int) -> None:
    left, sent = list(moments), list[str]()

    def job(_: str) -> _Job:
        return left.pop(0)

    link = SimpleNamespace(job=job, send_stop=sent.append, no_such_job=_NoSuchJob, invalid_operation=_InvalidOperation)
    launcher = RqLauncher(cast("RqLink", link), cast("Any", None), cast("Any", None))
    while left:
        launcher.cancel(Handle(launcher="rq", name="job-1"))
    assert sent == ["job-1"] * stops
