"""Reading what tasks print: from the broker while it is there, else from the store.

Nothing of a log passes through the coordinator; it is only asked which attempts there were and where. What a reader is
given twice (a worker repeats what a broker may have lost) it tells by positions, and so it does what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar, final

from tenure.broker import kept_log
from tenure.broker.base import ClientBroker, EntryId, LogChunk, LogKey
from tenure.client.contents import Contents
from tenure.clock import Clock
from tenure.errors import BrokerError, BrokerRefused, CoordinatorUnreachable, UnknownTask, UsageError
from tenure.protocol.artifact import Blob
from tenure.protocol.client_messages import Ask, Query, Reply
from tenure.protocol.states import TERMINAL_TASK_STATES, TaskState

T = TypeVar("T")

Printed: TypeAlias = "tuple[int, LogChunk]"
"""The attempt, and what it has printed. Stream 0 is Tenure's own: what is missing, what the reader waits for."""

_START: Final = EntryId(0, 0)
_BLOCK_MS: Final = 1_000
_GLANCE_MS: Final = 300
"""How long to wait for the last words of an attempt that may have ended just now."""
_FIRST_LOOK_MS: Final = 100
_LONGEST_LOOK_MS: Final = 1_000
_LAST_FLUSH_MS: Final = 1_500
"""How long after an attempt's end something may still come of a worker that could not say that it was all."""
_RETRY_MS: Final = 250
_MOST_LEASES: Final = 1_000
_LIVE: Final = frozenset({"OFFERED", "ACTIVE"})


@final
@dataclass(slots=True)
class _Attempt:
    """One attempt's log, as far as it was read."""

    number: int
    key: LogKey
    is_live: bool
    reached: int = 0
    after: EntryId = field(default=_START)
    is_complete: bool = False
    is_kept: bool = False

    def take(self, chunk: LogChunk) -> Iterator[Printed]:
        """What is new of a chunk, and how much is missing before it."""
        is_end = not chunk.text
        self.is_complete = self.is_complete or is_end
        text = chunk.text[max(self.reached - chunk.position, 0) :]
        if not text and not is_end:
            return
        if chunk.position > self.reached:
            words = f"... {chunk.position - self.reached:,} characters left out ...\n"
            yield self.number, LogChunk(0, self.reached, words)
        if text:
            yield self.number, LogChunk(chunk.stream, max(chunk.position, self.reached), text)
        self.reached = max(self.reached, chunk.position + len(chunk.text))


@final
class LogReader:
    """Reads logs for one client. Each read has a connection of its own, which is closed with its iterator.

    Args:
        ask: asks the coordinator.
        connect: makes a connection to the broker.
        contents: the store, for logs that are not at the broker any more.
        clock: paces asking.
    """

    def __init__(
        self, ask: Callable[[Ask], Reply], connect: Callable[[], ClientBroker], contents: Contents, clock: Clock
    ) -> None:
        self._ask = ask
        self._connect = connect
        self._contents = contents
        self._clock = clock

    def chunks(self, task_id: str, *, follow: bool = False, attempt: int | None = None) -> Iterator[LogChunk]:
        """What a task has printed: chunks of standard output (`stream` 1) and standard error (2), in order.

        Chunks of stream 0 are Tenure's own words: where an attempt begins or something is missing, what is waited for.

        Args:
            task_id: the task.
            follow: whether to go on until the task is over, through all of its attempts; it may start later.
            attempt: only this one; None: all.

        Raises:
            UnknownTask: there is none of that id.
            UsageError: there was no such attempt.
            CoordinatorUnreachable, BrokerError: nobody answered; while following, they are waited for.
            ArtifactError: the log is in the store, which does not answer.
        """
        return (chunk for _, chunk in self.read(task_id, follow=follow, attempt=attempt))

    def read(self, task_id: str, *, follow: bool = False, attempt: int | None = None) -> Iterator[Printed]:
        """The same, each chunk with the attempt that has printed it; 0 for words that belong to none."""
        reading = _Reading(self._ask, self._connect, self._contents, self._clock)
        try:
            yield from reading.follow(task_id, attempt) if follow else reading.all_of(task_id, attempt)
        finally:
            reading.close()


@final
class _Reading:
    """One read, from its first question to the end of its connection."""

    def __init__(
        self, ask: Callable[[Ask], Reply], connect: Callable[[], ClientBroker], contents: Contents, clock: Clock
    ) -> None:
        self._ask = ask
        self._connect = connect
        self._contents = contents
        self._clock = clock
        self._broker: ClientBroker | None = None
        self._marker = ""

    def close(self) -> None:
        """Close the connection."""
        broker, self._broker = self._broker, None
        if broker is not None:
            broker.close()

    # --- what there is --------------------------------------------------------------------------

    def all_of(self, task_id: str, only: int | None) -> Iterator[Printed]:
        """All that was printed until now."""
        self._state(task_id)
        attempts = [each for each in self._attempts(task_id) if only is None or each.number == only]
        if only is not None and not attempts:
            raise UsageError(f"task {task_id} has had no attempt {only}", f"See `tenure leases show {task_id}`")
        for index, attempt in enumerate(attempts):
            if index:
                yield _heading(attempt)
            if not attempt.is_live:
                yield from self._kept(attempt)
            while (chunks := self._printed(attempt, 0)) is not None:
                yield from chunks
            if not attempt.is_live:
                yield from self._last_words(attempt)

    def _last_words(self, attempt: _Attempt) -> Iterator[Printed]:
        """What may still be on its way from an attempt that is over; one that has printed nothing is glanced at."""
        quiet_until_ms = self._clock.elapsed_ms() + (_LAST_FLUSH_MS if attempt.reached else _GLANCE_MS)
        while not (attempt.is_complete or attempt.is_kept):
            chunks = self._printed(attempt, _GLANCE_MS)
            if chunks is not None:
                yield from chunks
                quiet_until_ms = self._clock.elapsed_ms() + _LAST_FLUSH_MS
            elif self._clock.elapsed_ms() >= quiet_until_ms:
                return

    # --- what comes -----------------------------------------------------------------------------

    def follow(self, task_id: str, only: int | None) -> Iterator[Printed]:
        """What was printed and what is being printed, until the task is over."""
        known: set[int] = set()
        said = ""
        pause_ms = _FIRST_LOOK_MS
        while True:
            # The state first: a task that is over then has had all of its attempts.
            state = yield from self._patiently(lambda: self._state(task_id))
            found = yield from self._patiently(lambda: self._attempts(task_id))
            fresh = [each for each in found if each.key.fence not in known and only in {None, each.number}]
            for attempt in fresh:
                if known:
                    yield _heading(attempt)
                known.add(attempt.key.fence)
                yield from self._follow_attempt(task_id, attempt)
            if state in TERMINAL_TASK_STATES or (only is not None and known):
                return
            words = _waiting_for(task_id, state)
            if words and words != said:
                yield 0, LogChunk(0, 0, words)
                said = words
            pause_ms = _FIRST_LOOK_MS if fresh else min(pause_ms * 2, _LONGEST_LOOK_MS)
            self._clock.sleep_ms(pause_ms)

    def _follow_attempt(self, task_id: str, attempt: _Attempt) -> Iterator[Printed]:
        quiet_until_ms = self._clock.elapsed_ms() + _LAST_FLUSH_MS
        while not attempt.is_complete:
            if not attempt.is_live:
                yield from (yield from self._patiently(lambda: list(self._kept(attempt))))
                if attempt.is_kept:
                    return
            chunks = yield from self._patiently(lambda: self._printed(attempt, _BLOCK_MS))
            yield from chunks or ()
            if chunks is not None:
                quiet_until_ms = self._clock.elapsed_ms() + _LAST_FLUSH_MS
            elif attempt.is_live:
                found = yield from self._patiently(lambda: self._attempts(task_id))
                attempt.is_live = any(each.is_live and each.key == attempt.key for each in found)
            elif self._clock.elapsed_ms() >= quiet_until_ms:
                return

    def _patiently(self, step: Callable[[], T]) -> Generator[Printed, None, T]:
        """The step's answer, as soon as there is one; says once that it waits."""
        waits = False
        while True:
            try:
                answer = step()
            except BrokerRefused:
                raise
            except (BrokerError, CoordinatorUnreachable) as error:
                self.close()
                if not waits:
                    yield 0, LogChunk(0, 0, f"{error.message}; waiting for it\n")
                waits = True
                self._clock.sleep_ms(_RETRY_MS)
            else:
                return answer

    # --- the broker -----------------------------------------------------------------------------

    def _printed(self, attempt: _Attempt, block_ms: int) -> list[Printed] | None:
        """What is new; None when nothing has come."""
        if self._broker is None:
            self._broker = self._connect()
            attempt.after = _START
        entries = self._broker.printed(attempt.key, after=attempt.after, block_ms=block_ms)
        found: list[Printed] = []
        for entry_id, chunk in entries:
            attempt.after = entry_id
            found.extend(attempt.take(chunk))
        if not entries:
            self._look_at_marker(attempt)
        return found if entries else None

    def _look_at_marker(self, attempt: _Attempt) -> None:
        """New data may have lower ids."""
        marker = self._broker.marker() if self._broker is not None else ""
        if marker and self._marker and marker != self._marker:
            attempt.after = _START
        self._marker = marker or self._marker

    # --- the coordinator and the store ----------------------------------------------------------

    def _state(self, task_id: str) -> TaskState:
        rows = self._rows(Query(what="tasks", where=(("task_id", task_id),), limit=1))
        if not rows:
            raise UnknownTask(f"there is no task {task_id}", "List what there is with `tenure tasks list`")
        return TaskState(rows[0]["state"])

    def _attempts(self, task_id: str) -> list[_Attempt]:
        """The attempts that a worker was bound to, the oldest first."""
        rows = self._rows(Query(what="leases", where=(("task_id", task_id),), limit=_MOST_LEASES))
        return [
            _Attempt(row["attempt"], LogKey(row["site"], task_id, row["fence"]), row["state"] in _LIVE)
            for row in sorted(rows, key=lambda row: int(row["fence"]))
            if row.get("worker_id") and row.get("site")
        ]

    def _kept(self, attempt: _Attempt) -> Iterator[Printed]:
        where = (("task_id", attempt.key.task_id), ("kind", "log"))
        for row in self._rows(Query(what="artifacts", where=where, limit=_MOST_LEASES)):
            if row["fence"] == attempt.key.fence and row["state"] == "PROMOTED":
                attempt.is_kept = True
                raw = b"".join(self._contents.read(Blob(digest=row["manifest"], size=row["manifest_size"])))
                for chunk in kept_log.read(raw):
                    yield from attempt.take(chunk)

    def _rows(self, query: Query) -> list[dict[str, Any]]:
        return list(self._ask(query).rows)


def _heading(attempt: _Attempt) -> Printed:
    return attempt.number, LogChunk(0, 0, f"--- attempt {attempt.number} ---\n")


def _waiting_for(task_id: str, state: TaskState) -> str:
    match state:
        case TaskState.QUEUED | TaskState.OFFERED:
            return f"Task {task_id} has not started; waiting for it.\n"
        case TaskState.LOST:
            return f"Task {task_id} is LOST and waits for a decision: see `tenure directives list`.\n"
        case _:
            return ""
