"""Where `tenure map` keeps results: appended to a journal while it runs, and made into the out file at the end.

The journal, `<out>.partial`, has one line of JSON per finished row in the order in which rows finish, so that whatever
was written before an interruption counts. The out file appears at once and whole, in the input's order. Memory holds
one number per row.
"""

from __future__ import annotations

import csv
import fcntl
import json
import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Self, TextIO, cast, final

from tenure.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

_ENDINGS: Final = (".csv", ".jsonl")
_TAIL: Final = ("error", "task_id", "attempt")


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """How one row ended: a value, or an error in words. `key` is the row's, with its generation."""

    key: str
    task_id: str
    attempt: int | None
    state: str
    value: Any = None
    error: str = ""


def journal_of(out: Path) -> Path:
    """Where the results of a run into this file are kept until it is whole."""
    return out.parent / f"{out.name}.partial"


def written_for(out: Path) -> tuple[Path, ...]:
    """All files that a run into this file writes."""
    return out, journal_of(out), _draft_of(out)


def _draft_of(out: Path) -> Path:
    return out.parent / f"{out.name}.new"


@final
class Journal:
    """The results of one run.

    Args:
        out: the file to make, ending in .csv or .jsonl.
        run: the run's name; a journal of another run is refused.

    Raises:
        UsageError: the ending is another one, or the journal belongs to another run.
    """

    def __init__(self, out: Path, run: str) -> None:
        if out.suffix.lower() not in _ENDINGS:
            raise UsageError(f"--out {out} must end in .csv or .jsonl", "The ending says how results are written")
        if not out.parent.is_dir():
            raise UsageError(f"the folder {out.parent} does not exist")
        self.out = out
        self.path = journal_of(out)
        self._run = run
        self._places: dict[str, int] = {}
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        """Open the journal, reading what an earlier start has left. Raises `UsageError`."""
        file = self.path.open("a+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._recover(file)
        except BlockingIOError:
            file.close()
            raise UsageError(
                f"another `tenure map` is writing {self.out}", "Wait for it, or choose another --out"
            ) from None
        except BaseException:
            file.close()
            raise
        self._file = file
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is None:
            return
        self._file.close()
        self._file = None
        if not self._places:
            self.path.unlink(missing_ok=True)

    def __len__(self) -> int:
        """How many rows have an outcome."""
        return len(self._places)

    def get(self, key: str) -> Outcome | None:
        """The outcome of a row; None when it has none yet. `key` is without a generation."""
        place = self._places.get(key)
        return None if place is None else self._read(place)

    def add(self, outcome: Outcome) -> None:
        """Append an outcome; the newest of a row counts."""
        line = json.dumps(
            [outcome.key, outcome.task_id, outcome.attempt, outcome.state, outcome.value, outcome.error],
            ensure_ascii=False,
        )
        file = self._opened()
        place = file.seek(0, os.SEEK_END)
        file.write(line.encode() + b"\n")
        self._places[base_key(outcome.key)] = place

    def flush(self) -> None:
        """Hand what was appended to the operating system, so that it survives the end of this process."""
        self._opened().flush()

    def finish(self, rows: Callable[[], Iterator[tuple[str, Mapping[str, str]]]]) -> None:
        """Make the out file of the rows (key and input columns) that have an outcome, and drop the journal."""
        self.flush()
        with _replaced(self.out) as draft:
            if self.out.suffix.lower() == ".csv":
                self._write_csv(draft, rows)
            else:
                self._write_jsonl(draft, rows)
        self.path.unlink()

    def _write_csv(self, draft: TextIO, rows: Callable[[], Iterator[tuple[str, Mapping[str, str]]]]) -> None:
        inputs: Sequence[str] = next((tuple(columns) for _, columns in rows()), ())
        spread = self._spread_names(inputs)
        taken = {*inputs, *spread.values()}
        tail = {name: _free(name, taken) for name in _TAIL}
        writer = csv.writer(draft, lineterminator="\n")
        writer.writerow([*inputs, *spread.values(), *tail.values()])
        for outcome, columns in self._outcomes(rows):
            values = _spread(outcome.value)
            results = [_cell(values.get(name)) for name in spread]
            end = [outcome.error, outcome.task_id, _cell(outcome.attempt)]
            writer.writerow([*(columns[name] for name in inputs), *results, *end])

    def _write_jsonl(self, draft: TextIO, rows: Callable[[], Iterator[tuple[str, Mapping[str, str]]]]) -> None:
        for outcome, columns in self._outcomes(rows):
            taken = set(columns)
            end = {"result": outcome.value, "error": outcome.error or None}
            end |= {"task_id": outcome.task_id, "attempt": outcome.attempt}
            line = {**columns, **{_free(name, taken): value for name, value in end.items()}}
            draft.write(json.dumps(line, ensure_ascii=False) + "\n")

    def _outcomes(
        self, rows: Callable[[], Iterator[tuple[str, Mapping[str, str]]]]
    ) -> Iterator[tuple[Outcome, Mapping[str, str]]]:
        for key, columns in rows():
            outcome = self.get(key)
            if outcome is not None:
                yield outcome, columns

    def _spread_names(self, inputs: Sequence[str]) -> dict[str, str]:
        """The result's columns, as they come, each with the heading that it gets."""
        found: dict[str, None] = {}
        for place in self._places.values():
            outcome = self._read(place)
            if not outcome.error:
                found.update(dict.fromkeys(_spread(outcome.value)))
        taken = {*inputs, *_TAIL}
        return {name: _free(name, taken) for name in found or {"result": None}}

    def _recover(self, file: IO[bytes]) -> None:
        file.seek(0)
        header = file.readline()
        if not header:
            file.write(json.dumps({"run": self._run}).encode() + b"\n")
            file.flush()
            return
        if _run_of(header) != self._run:
            raise UsageError(
                f"{self.path} holds results of another run",
                f"Move it away, choose another --out, or use --run {_run_of(header)}",
            )
        place = file.tell()
        while line := file.readline():
            outcome = _outcome_of(line)
            if outcome is None:
                # Cut off by a crash in the middle of a write: the row counts as not done.
                file.truncate(place)
                break
            self._places[base_key(outcome.key)] = place
            place = file.tell()

    def _read(self, place: int) -> Outcome:
        file = self._opened()
        file.seek(place)
        outcome = _outcome_of(file.readline())
        if outcome is None:
            raise UsageError(f"{self.path} was changed while it was in use", "Run the command again")
        return outcome

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            raise UsageError(f"{self.path} is not open")
        return self._file


def base_key(key: str) -> str:
    """A row's key without its generation."""
    return key.partition(".")[0]


def _run_of(header: bytes) -> str:
    try:
        found: object = json.loads(header)
    except (ValueError, RecursionError):
        return "?"
    return str(cast("dict[str, object]", found).get("run", "?")) if isinstance(found, dict) else "?"


def _outcome_of(line: bytes) -> Outcome | None:
    try:
        key, task_id, attempt, state, value, error = json.loads(line)
    except (ValueError, TypeError, RecursionError):
        return None
    return Outcome(key, task_id, attempt, state, value, error) if line.endswith(b"\n") else None


def _spread(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"result": value}


def _cell(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _free(name: str, taken: set[str]) -> str:
    """A heading that is not taken by an input column."""
    while name in taken:
        name = f"result_{name}"
    return name


@contextmanager
def _replaced(path: Path) -> Generator[TextIO]:
    """A file that takes `path`'s place when the block has ended well."""
    draft = _draft_of(path)
    try:
        with draft.open("w", encoding="utf-8", newline="") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
