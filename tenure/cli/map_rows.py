"""The rows of `tenure map`: read one by one from a CSV, from lines, or from file names, each with a key of its own.

A row's key is made of the run's name, what the row says and how many equal rows came before it. The same input
therefore gives the same keys however often the command is started, and the coordinator makes no second task for a key:
that is all that resuming needs.
"""

from __future__ import annotations

import csv
import glob
import hashlib
import json
import os
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from tenure.cli.arguments import with_bytes
from tenure.errors import UsageError
from tenure.protocol.texts import is_utf8

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping

_KEY_CHARACTERS: Final = 32
_RUN_CHARACTERS: Final = 12
_LINE: Final = "line"
_PATH: Final = "path"


@final
@dataclass(frozen=True, slots=True)
class Row:
    """One row: its place in the input, what it says by column, and its key without a generation."""

    index: int
    columns: Mapping[str, str]
    key: str
    single: bool = False
    """Whether the row is one value (a line, a path) rather than named columns."""

    @property
    def value(self) -> str:
        """The row's one value: a line, or the absolute path of a file."""
        (text,) = self.columns.values()
        return str(Path(text).absolute()) if _PATH in self.columns else text


@final
@dataclass(frozen=True, slots=True)
class Source:
    """Where rows come from; exactly one of the first three."""

    csv_file: Path | None = None
    lines_file: Path | None = None
    files: str | None = None
    written: tuple[Path, ...] = ()
    """The files that the command itself writes: none of them is read for rows."""
    outputs: Path | None = None
    """The folder for the files that tasks leave: nothing below it is read for rows, either."""

    def __post_init__(self) -> None:
        if sum(part is not None for part in (self.csv_file, self.lines_file, self.files)) != 1:
            raise UsageError("say where the rows come from", "Give exactly one of --csv, --lines and --files")
        read = self.csv_file or self.lines_file
        if read is not None and any(_same(read, path) for path in self.written):
            raise UsageError(f"the results would be written over the rows in {read}", "Choose another --out")

    def rows(self, run: str) -> Iterator[Row]:
        """The rows in order, read as they are asked for. Raises `UsageError` for input that cannot be read."""
        seen: Counter[bytes] = Counter()
        for index, (columns, extra) in enumerate(self._contents()):
            content = json.dumps([run, sorted(columns.items()), extra], ensure_ascii=False).encode()
            digest = hashlib.sha256(content).digest()[:16]
            occurrence = seen[digest]
            seen[digest] += 1
            key = hashlib.sha256(digest + str(occurrence).encode()).hexdigest()[:_KEY_CHARACTERS]
            yield Row(index, columns, key, single=self.csv_file is None)

    def columns(self) -> list[str]:
        """The names of the input's columns. Raises `UsageError`."""
        if self.csv_file is None:
            return [_LINE if self.lines_file is not None else _PATH]
        with _opened(self.csv_file) as lines:
            return _header(csv.reader(lines), self.csv_file)

    def count(self) -> int:
        """How many rows there are."""
        return sum(1 for _ in self._contents())

    def _contents(self) -> Iterable[tuple[dict[str, str], list[int]]]:
        if self.csv_file is not None:
            return _csv_rows(self.csv_file)
        if self.lines_file is not None:
            return _line_rows(self.lines_file)
        own = (*self.written, *filter(None, [self.outputs]))
        return _file_rows(self.files or "", frozenset(path.resolve() for path in own))


def _is_within(path: Path, own: frozenset[Path]) -> bool:
    """Whether a file is one of these, or below one of them."""
    return path in own or not own.isdisjoint(path.parents)


def default_run(work: str, out: Path) -> str:
    """The run's name when none is given: the same work into the same file is the same run."""
    return "map-" + hashlib.sha256(os.fsencode(f"{work}\0{out.absolute()}")).hexdigest()[:_RUN_CHARACTERS]


def _same(read: Path, written: Path) -> bool:
    return read.exists() and written.exists() and read.samefile(written)


@contextmanager
def _opened(path: Path) -> Generator[Iterator[str]]:
    try:
        # utf-8-sig: spreadsheets like to begin a CSV with a byte order mark, which belongs to no column's name.
        with path.open(encoding="utf-8-sig", newline="") as lines:
            yield lines
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start})", "Save it as UTF-8") from error
    except csv.Error as error:
        raise UsageError(f"{path} is not a CSV: {error}") from error


def _header(reader: Iterator[list[str]], path: Path) -> list[str]:
    header = next(reader, list[str]())
    if not header or len(set(header)) != len(header) or "" in header:
        raise UsageError(
            f"{path} needs a first line with one name per column, all different", "For plain lines use --lines"
        )
    return header


def _csv_rows(path: Path) -> Iterator[tuple[dict[str, str], list[int]]]:
    with _opened(path) as lines:
        reader = csv.reader(lines)
        header = _header(reader, path)
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(header):
                raise UsageError(
                    f"{path}, line {reader.line_num}: {len(cells)} cells, the header has {len(header)} columns"
                )
            yield dict(zip(header, cells, strict=True)), []


def _line_rows(path: Path) -> Iterator[tuple[dict[str, str], list[int]]]:
    with _opened(path) as lines:
        for line in lines:
            text = line.rstrip("\r\n")
            if text:
                yield {_LINE: text}, []


def _file_rows(pattern: str, own: frozenset[Path]) -> Iterator[tuple[dict[str, str], list[int]]]:
    fitting = glob.glob(pattern, recursive=True)  # noqa: PTH207 - "**"
    paths = sorted(path for path in fitting if Path(path).is_file() and not _is_within(Path(path).resolve(), own))
    if not paths:
        raise UsageError(f"no file fits {pattern!r}", "Quote the pattern, so that the shell leaves it alone")
    for path in paths:
        if not is_utf8(path):
            raise UsageError(
                f"the name of {with_bytes(path)} is not UTF-8", "Rename it, or let the pattern leave it out"
            )
        found = Path(path).stat()
        # A file that has changed is another row: its old result must not be taken for the new one's.
        yield {_PATH: path}, [found.st_size, found.st_mtime_ns]
