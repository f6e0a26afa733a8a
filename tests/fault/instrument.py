"""The instrument: proves from marks and records that no two executions of one task overlap, and says how close it was.

Marks are what handlers write (see `fixtures_fleet_handlers`); ends of processes that were killed are seen through a
process descriptor, a moment late, which errs on the strict side. The records are the coordinator's database, opened for
reading only. Nothing here knows how Tenure works inside, only what it promises.
"""

import os
import select
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from threading import Event, Lock, Thread
from typing import NamedTuple

from tenure.clock import SystemClock
from tests.lateness import Lateness

_LOOK_MS = 5
_NS = 1_000_000


class Mark(NamedTuple):
    """One line of the file."""

    what: str
    task_id: str
    attempt: int
    fence: int
    pid: int
    ns: int


@dataclass
class Execution:
    """One execution of a task; `ended_ns` is when its end was marked or its process was seen gone, 0 while it runs."""

    task_id: str
    attempt: int
    fence: int
    pid: int
    started_ns: int
    ended_ns: int = 0
    finished: bool = False
    """Whether it marked its end itself."""


@dataclass
class Findings:
    """What the checker found; all four must be 0."""

    executions: int = 0
    overlaps: list[str] = field(default_factory=list[str])
    unallowed: list[str] = field(default_factory=list[str])
    """Executions that no lease and no directive allowed."""
    lost: list[str] = field(default_factory=list[str])
    """Tasks that did not come to an accepted result."""
    duplicates: list[str] = field(default_factory=list[str])
    """Attempts that ran twice, and tasks with two results."""
    closest_ms: float | None = None
    """The smallest time between the end of one execution and the start of the next of the same task."""

    def problems(self) -> list[str]:
        return [*self.overlaps, *self.unallowed, *self.lost, *self.duplicates]


class Instrument:
    """Watches one file of marks, and the processes that write into it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.touch()
        self._marks: list[Mark] = []
        self._half = b""
        self._gone: dict[int, int] = {}
        self._watched: dict[int, int] = {}
        self._file = self.path.open("rb", buffering=0)
        self._lock = Lock()
        self._poll = select.poll()
        self._clock = SystemClock()
        self._stop = Event()
        self._hold = path.with_name(f"{path.name}.hold")
        self._lateness = Lateness()
        self._thread = Thread(target=self._watch, name="instrument", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        for descriptor in self._watched:
            os.close(descriptor)
        self._file.close()

    def hold(self) -> None:
        """Let what starts from now on only wait, so that as much as there is room for runs at once."""
        self._hold.touch()

    def let_go(self) -> None:
        """Let what was held do its work."""
        self._hold.unlink(missing_ok=True)

    def delay_ms(self) -> int:
        """How late this process was woken where it wanted to go on: 99 of 100 times no later than that."""
        return self._lateness.delay_ms()

    def marks(self) -> Sequence[Mark]:
        """Everything that has been marked until now."""
        with self._lock:
            self._take(self._file.read())
            return tuple(self._marks)

    def executions(self) -> list[Execution]:
        """Every execution so far, in order of start."""
        found: dict[tuple[str, int, int, int], Execution] = {}
        repeats: list[Execution] = []
        for mark in self.marks():
            key = (mark.task_id, mark.attempt, mark.fence, mark.pid)
            if mark.what == "end":
                found[key].ended_ns, found[key].finished = mark.ns, True
            else:
                if key in found:
                    repeats.append(found[key])
                found[key] = Execution(*key, started_ns=mark.ns)
        everything = [*repeats, *found.values()]
        for execution in everything:
            gone_ns = self._gone.get(execution.pid, 0)
            # A number of a process that is used again says nothing about the end of a later execution.
            execution.ended_ns = execution.ended_ns or (gone_ns if gone_ns > execution.started_ns else 0)
        return sorted(everything, key=lambda each: each.started_ns)

    def running(self) -> list[Execution]:
        return [each for each in self.executions() if not each.ended_ns]

    def _watch(self) -> None:
        while not self._stop.is_set():
            began_ms = self._clock.elapsed_ms()
            gone = [descriptor for descriptor, _ in self._poll.poll(_LOOK_MS)]
            self._lateness.note(_LOOK_MS, self._clock.elapsed_ms() - began_ms)
            with self._lock:
                # What a process marked before its end is read before its end counts.
                self._take(self._file.read())
                for descriptor in gone:
                    self._note_gone(self._watched.pop(descriptor))
                    self._poll.unregister(descriptor)
                    os.close(descriptor)

    def _take(self, data: bytes) -> None:
        # A mark that crosses a page of the file may be seen half: it is whole at the next look.
        *lines, self._half = (self._half + data).split(b"\n")
        for line in lines:
            what, task_id, *numbers = line.decode().split()
            mark = Mark(what, task_id, *map(int, numbers))
            if mark.pid not in self._watched.values():
                self._watch_process(mark.pid)
            self._marks.append(mark)

    def _watch_process(self, pid: int) -> None:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._note_gone(pid)
            return
        self._watched[descriptor] = pid
        self._poll.register(descriptor, select.POLLIN)

    def _note_gone(self, pid: int) -> None:
        self._gone.setdefault(pid, self._clock.elapsed_ms() * _NS + _NS)


class Records:
    """The coordinator's database, for reading only."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def rows(self, sql: str, *parameters: object) -> list[tuple[object, ...]]:
        connection = sqlite3.connect(f"file:{self._path}?mode=ro", uri=True, timeout=10)
        try:
            return connection.execute(sql, parameters).fetchall()
        finally:
            connection.close()

    def count(self, sql: str, *parameters: object) -> int:
        return int(str(self.rows(sql, *parameters)[0][0]))


def cut(executions: Iterable[Execution], pids: Collection[int], stopped_ns: int) -> list[Execution]:
    """The same executions, as if those processes had ended at that moment; what they began later is left as it is."""

    def shorter(each: Execution) -> Execution:
        went_on = each.pid in pids and each.started_ns < stopped_ns and not 0 < each.ended_ns <= stopped_ns
        return replace(each, ended_ns=stopped_ns, finished=False) if went_on else each

    return [shorter(each) for each in executions]


def false_deaths(findings: Findings, records: Records, tasks: Collection[str]) -> int:
    """How often one of these tasks was given up, though every worker was alive.

    Every directive counts, whatever it gives as its cause: a live worker loses nothing. It is there also for what was
    lost before its work began, which leaves no execution behind. An offer that nobody has taken ends without one.
    """
    asked = len(set(tasks) & {str(task_id) for (task_id,) in records.rows("SELECT task_id FROM directive")})
    return max(asked, findings.executions - len(tasks))


def check(executions: Iterable[Execution], records: Records, tasks: Iterable[str]) -> Findings:
    """Judge these tasks' executions by the records, after all of them are over."""
    wanted = set(tasks)
    findings = Findings()
    by_task: dict[str, list[Execution]] = {}
    for execution in executions:
        if execution.task_id in wanted:
            by_task.setdefault(execution.task_id, []).append(execution)
    for task_id, mine in by_task.items():
        findings.executions += len(mine)
        _check_overlaps(findings, task_id, sorted(mine, key=lambda each: each.started_ns))
    _check_permission(findings, [each for mine in by_task.values() for each in mine], records)
    _check_results(findings, by_task, records, wanted)
    return findings


def _check_overlaps(findings: Findings, task_id: str, mine: list[Execution]) -> None:
    latest_ns = 0
    for before, after in pairwise(mine):
        latest_ns = max(latest_ns, before.ended_ns) if before.ended_ns else 1 << 80
        gap_ms = (after.started_ns - latest_ns) / _NS
        if gap_ms < 0:
            findings.overlaps.append(
                f"{task_id}: fence {after.fence} started {-gap_ms:.0f} ms before fence {before.fence} ended"
            )
        else:
            findings.closest_ms = min(gap_ms, findings.closest_ms if findings.closest_ms is not None else gap_ms)


def _check_permission(findings: Findings, executions: list[Execution], records: Records) -> None:
    leases = set(records.rows("SELECT task_id, attempt, fence FROM lease"))
    allowed = set(records.rows("SELECT task_id, next_attempt FROM directive WHERE state = 'APPROVED'"))
    seen: set[tuple[str, int]] = set()
    for each in executions:
        if (each.task_id, each.attempt, each.fence) not in leases:
            findings.unallowed.append(f"{each.task_id}: attempt {each.attempt} ran under unknown fence {each.fence}")
        if each.attempt > 1 and (each.task_id, each.attempt) not in allowed:
            findings.unallowed.append(f"{each.task_id}: attempt {each.attempt} ran without a directive")
        if (each.task_id, each.attempt) in seen:
            findings.duplicates.append(f"{each.task_id}: attempt {each.attempt} ran twice")
        seen.add((each.task_id, each.attempt))


def _check_results(findings: Findings, by_task: dict[str, list[Execution]], records: Records, wanted: set[str]) -> None:
    states = {str(task_id): str(state) for task_id, state in records.rows("SELECT task_id, state FROM task")}
    accepted = records.rows("SELECT task_id, fence FROM lease WHERE state = 'COMPLETED'")
    results = {str(task_id): fence for task_id, fence in records.rows("SELECT task_id, fence FROM result")}
    for task_id in sorted(wanted):
        if states.get(task_id) not in {"SUCCEEDED", "FAILED", "CANCELLED"}:
            findings.lost.append(f"{task_id}: is {states.get(task_id, 'not on record')} in the end")
        elif states[task_id] != "CANCELLED" and task_id not in results:
            findings.lost.append(f"{task_id}: is {states[task_id]} and has no result")
        fences = [fence for task, fence in accepted if task == task_id]
        if len(fences) > 1:
            findings.duplicates.append(f"{task_id}: results under fences {fences} were accepted")
        ran = {each.fence for each in by_task.get(task_id, ()) if each.finished}
        if states.get(task_id) == "SUCCEEDED" and task_id in results and results[task_id] not in ran:
            findings.lost.append(f"{task_id}: accepted under fence {results[task_id]}, which never finished")
