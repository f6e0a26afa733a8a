"""The loop of `tenure map`: a bounded number of rows is in the fleet's hands, and what comes back goes to the journal.

Interrupting it loses nothing: tasks go on in the fleet, and the next start submits the same rows under the same keys,
for which the coordinator makes no second task but tells how the first one is or ended.
"""

from __future__ import annotations

import queue
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from tenure.cli.map_journal import Outcome
from tenure.errors import TaskError, TaskLost, TenureError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from tenure.cli.map_journal import Journal
    from tenure.cli.map_progress import Meter, Tally
    from tenure.cli.map_rows import Row
    from tenure.client.handle import Handle

WINDOW: Final = 4_000
"""The most rows that are submitted and not ended, so that memory does not grow with the input."""
BATCH: Final = 500
_MOST_GENERATIONS: Final = 1_000


@final
@dataclass(frozen=True, slots=True)
class Keyed:
    """A row under the key that it is submitted with."""

    row: Row
    generation: int = 0

    @property
    def key(self) -> str:
        """The row's key; a further run of a failed row has one of its own."""
        return f"{self.row.key}.{self.generation}" if self.generation else self.row.key

    def next(self) -> Keyed:
        """The same row, to be run once more."""
        return Keyed(self.row, self.generation + 1)


class Submitting(Protocol):
    """What the loop needs of the fleet."""

    def submit(self, rows: Sequence[Keyed]) -> Sequence[Handle[Any]]:
        """One handle per row, in order."""
        ...

    def is_old(self, task_id: str) -> bool:
        """Whether the task was submitted before this command was started."""
        ...

    def exists(self, key: str) -> bool:
        """Whether there is a task of that key."""
        ...


@final
@dataclass(frozen=True, slots=True)
class Rules:
    """What to do with rows that failed in an earlier run, where outputs go, and how often to look up from waiting."""

    rerun_failed: bool = False
    outputs: Path | None = None
    look_s: float = 0.2

    def folder_of(self, row: Row) -> Path | None:
        """Where the files go that a row's task has left; None when nobody wants them."""
        return None if self.outputs is None else self.outputs / f"{row.index + 1:06}"


@final
class MapRun:
    """See the module.

    Args:
        fleet: where rows go.
        journal: where outcomes go.
        tally: counts them.
        rules: which rows run again.
    """

    def __init__(self, fleet: Submitting, journal: Journal, tally: Tally, rules: Rules) -> None:
        self._fleet = fleet
        self._journal = journal
        self._tally = tally
        self._rules = rules
        self._ended: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
        self._waiting: dict[Future[Any], Keyed] = {}

    def task_ids(self) -> list[str]:
        """The tasks that have not ended."""
        return [handle.task_id for handle in self._handles()]

    def run(self, rows: Iterable[Row], meter: Meter) -> None:
        """Submit what is missing and wait for all of it."""
        missing = self._missing(rows)
        more = True
        try:
            while more or self._waiting:
                if more and len(self._waiting) <= WINDOW - BATCH:
                    more = self._submit(list(islice(missing, BATCH)))
                self._collect(block=not more or len(self._waiting) > WINDOW - BATCH)
                meter.show()
        finally:
            self._collect(block=False)

    def _handles(self) -> Iterator[Handle[Any]]:
        return iter(list(self._waiting))  # type: ignore[arg-type]

    def _missing(self, rows: Iterable[Row]) -> Iterator[Keyed]:
        for row in rows:
            known = self._journal.get(row.key)
            keyed = Keyed(row, _generation(known.key) if known is not None else 0)
            if known is None or known.state == "LOST":
                yield keyed
            elif known.error and self._rules.rerun_failed:
                yield keyed.next()
            elif known.error:
                self._tally.failed += 1
            else:
                self._tally.found += 1

    def _submit(self, rows: Sequence[Keyed]) -> bool:
        if rows:
            for keyed, handle in zip(rows, self._fleet.submit(rows), strict=True):
                self._waiting[handle] = keyed
                handle.add_done_callback(self._ended.put)
        return len(rows) == BATCH

    def _collect(self, *, block: bool) -> None:
        again: list[Keyed] = []
        try:
            future = self._ended.get(timeout=self._rules.look_s) if block else self._ended.get_nowait()
            while True:
                further = self._take(future)
                again += [further] if further is not None else []
                future = self._ended.get_nowait()
        except queue.Empty:
            pass
        self._journal.flush()
        self._submit(again)

    def _take(self, future: Future[Any]) -> Keyed | None:
        """Note how a row ended; the same row when its end is an earlier run's and another one counts."""
        keyed = self._waiting.pop(future)
        handle: Handle[Any] = future  # type: ignore[assignment]
        outcome = outcome_of(keyed.key, handle)
        if outcome.error and outcome.state != "LOST" and self._superseded(keyed, outcome):
            return keyed.next()
        folder = self._rules.folder_of(keyed.row)
        if folder is not None and handle.outputs is not None and not outcome.error:
            # Before the outcome is on record: a row that counts as done has its files.
            handle.download(folder)
        self._journal.add(outcome)
        self._count(outcome)
        return None

    def _superseded(self, keyed: Keyed, outcome: Outcome) -> bool:
        if keyed.generation >= _MOST_GENERATIONS or not self._fleet.is_old(outcome.task_id):
            return False
        return self._rules.rerun_failed or self._fleet.exists(keyed.next().key)

    def _count(self, outcome: Outcome) -> None:
        if outcome.state == "LOST":
            self._tally.lost += 1
        elif outcome.error:
            self._tally.failed += 1
        else:
            self._tally.done += 1


def outcome_of(key: str, handle: Handle[Any]) -> Outcome:
    """How an ended task ended. Raises what kept the client from hearing of it."""
    error = handle.exception(0)
    if error is None:
        return Outcome(key, handle.task_id, handle.attempt, str(handle.state), value=handle.result(0))
    if isinstance(error, TaskError):
        words = error.message.removeprefix(f"task {handle.task_id} failed: ")
        if isinstance(error, TaskLost):
            words = f"lost: {error.remedy}"
        return Outcome(key, handle.task_id, handle.attempt, str(handle.state), error=words)
    if isinstance(error, TenureError):
        raise error
    return Outcome(key, handle.task_id, handle.attempt, str(handle.state), error=f"{type(error).__name__}: {error}")


def _generation(key: str) -> int:
    return int(key.partition(".")[2] or 0)
