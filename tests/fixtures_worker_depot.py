"""A store that a test's worker reaches through a porter in its own process, and the coordinator's part of it."""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tenure.artifacts.base import Place, Store
from tenure.artifacts.direct import DirectPorter
from tenure.artifacts.jobs import Ended, Fetch, Job, Promote, StagingPlace, Verify
from tenure.artifacts.opening import open_store
from tenure.protocol.artifact import Blob, Bundle, Input
from tenure.protocol.worker_messages import Checkpointed, FailureKind, Finished
from tests.fixtures_worker import Bench

_PLACE = Place("lab", "0" * 26, 1, "f" * 32)


class Gate:
    """A porter that begins jobs of some kinds only when it is told to."""

    def __init__(self, porter: DirectPorter) -> None:
        self._porter = porter
        self.closed_to: set[str] = set()
        self.waiting: list[Job] = []
        self.cancelled: list[int] = []

    def submit(self, job: Job) -> None:
        if job.kind in self.closed_to:
            self.waiting.append(job)
        else:
            self._porter.submit(job)

    def cancel(self, number: int) -> None:
        self.cancelled.append(number)

    def ended(self) -> Sequence[Ended]:
        return self._porter.ended()

    def busy(self) -> bool:
        return bool(self.waiting)

    @property
    def pid(self) -> int:
        return 0

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        self._porter.close()


class Depot:
    """A store in a folder, the worker's porter to it, and the coordinator's part of what is staged."""

    def __init__(self, folder: Path) -> None:
        self.address = str(folder / "store")
        self.store: Store = open_store(self.address, make_folder=True)
        self._own = DirectPorter(self.store)
        self._folder = folder
        self._numbers = 0
        self.gates: list[Gate] = []
        self.closed_to: set[str] = set()

    def make_porter(self, address: str) -> Gate:
        gate = Gate(DirectPorter(open_store(address)))
        gate.closed_to = self.closed_to
        self.gates.append(gate)
        return gate

    def put(self, data: bytes) -> Blob:
        """Make an object."""
        blob = Blob(digest=hashlib.sha256(data).hexdigest(), size=len(data))
        self.store.stage(_PLACE, blob, 0, [data])
        self.store.promote(_PLACE, blob)
        return blob

    def accept(self, event: Finished | Checkpointed, bundle: Bundle) -> dict[str, str]:
        """Verify and promote what was staged; answers the files and their contents."""
        binding = event.binding
        place = StagingPlace(site="lab", task_id=binding.task_id, fence=binding.fence, nonce=binding.nonce)
        self._do(lambda number: Verify(number=number, place=place, bundle=bundle))
        self._do(lambda number: Promote(number=number, place=place, bundle=bundle))
        folder = self._folder / f"accepted-{self._numbers}"
        wanted = (Input(path="all", content=bundle),)
        self._do(lambda number: Fetch(number=number, folder=str(folder), wanted=wanted))
        files = [path for path in (folder / "all").rglob("*") if path.is_file()]
        return {str(path.relative_to(folder / "all")): path.read_text() for path in files}

    def _do(self, make: Callable[[int], Job]) -> None:
        self._numbers += 1
        ended = self._own.carry(make(self._numbers))
        assert ended.problem is None, ended


def value_of(finished: Finished) -> Any:
    assert finished.outcome.value is not None, finished
    return json.loads(finished.outcome.value)


def kind_of(finished: Finished) -> FailureKind:
    assert finished.outcome.failure is not None, finished
    return finished.outcome.failure.kind


def folders(bench: Bench) -> list[str]:
    """Task folders that are there now."""
    tasks = bench.options.state_dir / "workers" / "w1" / "tasks"
    return sorted(path.name for path in tasks.iterdir()) if tasks.exists() else []
