"""What a porter works with, opened by the first job that needs it, so that a job can say why it cannot be opened."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, final

from tenure.artifacts.addresses import BROKER
from tenure.artifacts.carrier import Carrier
from tenure.artifacts.copies import CopiedStore, restore
from tenure.artifacts.folder import FolderStore
from tenure.artifacts.jobs import Ended, Problem
from tenure.artifacts.opening import open_store
from tenure.broker.url import BrokerUrl
from tenure.errors import ArtifactStoreUnreachable, TenureError
from tenure.settings import adopt_environment

if TYPE_CHECKING:
    from tenure.artifacts.base import Store
    from tenure.artifacts.jobs import Job
    from tenure.artifacts.log_keeping import Logs
    from tenure.artifacts.porter_orders import PorterSettings
    from tenure.artifacts.stopping import Stop


@final
class Tools:
    """One porter's store and logs. Safe to use from several threads.

    Args:
        settings: where they are.
    """

    def __init__(self, settings: PorterSettings) -> None:
        self._settings = settings
        self._lock = Lock()
        self._carrier: Carrier | None = None

    def carry(self, job: Job, stop: Stop) -> Ended:
        """Do the job; see `Carrier.carry`."""
        try:
            with self._lock:
                if self._carrier is None:
                    self._carrier = self._open()
                carrier = self._carrier
        except TenureError as error:
            return Ended(number=job.number, problem=Problem(code=error.code, message=str(error)))
        except Exception as error:  # noqa: BLE001 - some libraries connect when they are opened, with errors of their own
            # Not its text, which may hold what the library was told.
            message = f"The store of artifacts cannot be opened ({type(error).__name__})"
            return Ended(number=job.number, problem=Problem(code=ArtifactStoreUnreachable.code, message=message))
        return carrier.carry(job, stop)

    def _open(self) -> Carrier:
        settings = self._settings
        adopt_environment(settings.environment)
        source = Path(settings.broker_url_file) if settings.broker_url_file else None
        broker = BrokerUrl(settings.broker_url, source) if settings.broker_url else None
        front = open_store(
            settings.address, settings.options, broker, settings.namespace, make_folder=bool(settings.copies)
        )
        logs = self._logs(broker)
        if settings.address != BROKER or not settings.copies:
            return Carrier(front, logs)
        copies = _copies(Path(settings.copies))
        return Carrier(CopiedStore(front, copies), logs, lambda: restore(front, copies))

    def _logs(self, broker: BrokerUrl | None) -> Logs | None:
        if broker is None:
            return None
        from tenure.artifacts.broker_logs import BrokerLogs
        from tenure.broker.keys import ContentKeys

        return BrokerLogs(broker, ContentKeys(self._settings.namespace))


def _copies(folder: Path) -> Store:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactStoreUnreachable(
            f"The folder of copies {folder} cannot be made: {error.strerror}", "Free space there, or check the rights"
        ) from error
    return FolderStore(folder)
