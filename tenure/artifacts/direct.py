"""A porter without a process: each job is done at once by the thread that submits it."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from tenure.artifacts.carrier import Carrier
from tenure.artifacts.stopping import Stop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.artifacts.base import Store
    from tenure.artifacts.jobs import Ended, Job
    from tenure.artifacts.log_keeping import Logs


@final
class DirectPorter:
    """For programs that may wait, such as a client, and for tests. See `tenure.artifacts.base.Porter`.

    Args:
        store: where contents are kept; closed by `close`.
        logs: where logs are read from; None where none are kept.
    """

    def __init__(self, store: Store, logs: Logs | None = None) -> None:
        self._store = store
        self._carrier = Carrier(store, logs)
        self._ended: list[Ended] = []

    def submit(self, job: Job) -> None:
        """See `Porter.submit`."""
        self._ended.append(self.carry(job))

    def carry(self, job: Job) -> Ended:
        """Do the job and answer its end, past `ended`."""
        return self._carrier.carry(job, Stop())

    def cancel(self, number: int) -> None:
        """See `Porter.cancel`; every job has ended already."""

    def ended(self) -> Sequence[Ended]:
        """See `Porter.ended`."""
        told, self._ended = self._ended, []
        return told

    def busy(self) -> bool:
        """See `Porter.busy`."""
        return bool(self._ended)

    @property
    def pid(self) -> int:
        """See `Porter.pid`."""
        return 0

    def fileno(self) -> int:
        """See `Porter.fileno`."""
        return -1

    def close(self) -> None:
        """See `Porter.close`."""
        self._store.close()
