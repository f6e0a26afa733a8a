"""From the log of an attempt at the broker to an object of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from tenure.artifacts.base import OWN, Place
from tenure.artifacts.content import blob_of
from tenure.broker import kept_log
from tenure.broker.base import LogKey
from tenure.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tenure.artifacts.base import Store
    from tenure.artifacts.jobs import KeepLog
    from tenure.broker.base import LogChunk
    from tenure.protocol.artifact import Blob

_NONCE: Final = "0" * 16
"""Logs have places of the coordinator's own, which no executor can write to."""


class Logs(Protocol):
    """The logs at the broker."""

    def chunks(self, log: LogKey) -> Iterable[LogChunk]:
        """All that is there of the log, in order."""
        ...

    def expire(self, log: LogKey) -> None:
        """Let the log go soon; whoever follows it still reads its end, and keeping it may be repeated."""
        ...


def keep_log(store: Store, logs: Logs | None, job: KeepLog) -> Blob | None:
    """Make the log an object; None when it is empty. Raises `ArtifactError` and `BrokerError`."""
    if logs is None:
        raise ArtifactError("This porter was not told where the broker is, so it can keep no logs")
    key = LogKey(site=job.site, task_id=job.task_id, fence=job.fence)
    raw = kept_log.write(logs.chunks(key))
    if not raw:
        return None
    blob, place = blob_of(raw), Place(site=OWN, task_id=job.task_id, fence=job.fence, nonce=_NONCE)
    if not store.has(blob, renew=True):
        store.stage(place, blob, 0, iter([raw]))
        store.promote(place, blob)
    store.discard(place)
    logs.expire(key)
    return blob
