"""Looking for secrets: in what every process of the host was started with, and in files.

Whoever looks for secrets also looks for a plain marker that takes the same ways: that it is found proves that the
search sees.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Self

MARKER = "plain-marker"
KINDS = ("cmdline", "environ")
_STEP_S = 0.05


def found(data: bytes, words: Iterable[str]) -> set[str]:
    """Which of the words, and whether the marker, is in there."""
    return {word for word in {*words, MARKER} if word.encode() in data}


def found_below(folder: Path, words: Iterable[str], *, without: Path) -> dict[str, set[str]]:
    """The same of each file below that folder, except for those below another."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_relative_to(without)]
    return {str(path.relative_to(folder)): found(path.read_bytes(), words) for path in files}


class ProcessWatch:
    """Looks at the command line and environment of every process of the host, again and again.

    It keeps all that it has read, so that what was there before a secret was known to the test is searched too. What
    goes wrong while it looks is raised at its end: a watch that has stopped has seen nothing.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self.rounds = 0
        self._proc = proc
        self._read: dict[str, set[bytes]] = {kind: set() for kind in KINDS}
        self._stop = Event()
        self._pool = ThreadPoolExecutor(1, "process watch")
        self._looking: Future[None]

    def __enter__(self) -> Self:
        self._looking = self._pool.submit(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._pool.shutdown()
        self._looking.result()

    def seen(self, words: Iterable[str]) -> dict[str, set[str]]:
        """Which of the words, and whether the marker, was in a command line or in an environment until now."""
        wanted = tuple(words)
        return {kind: set().union(*(found(data, wanted) for data in self._of(kind))) for kind in KINDS}

    def _of(self, kind: str) -> Iterator[bytes]:
        if self._looking.done():
            self._looking.result()  # it looks until it is told to stop, unless something went wrong
        yield from self._read[kind].copy()

    def _look(self) -> None:
        while not self._stop.wait(_STEP_S):
            for process in (each for each in self._proc.iterdir() if each.name.isdigit()):
                for kind in KINDS:
                    self._keep(kind, process / kind)
            self.rounds += 1

    def _keep(self, kind: str, path: Path) -> None:
        try:
            self._read[kind].add(path.read_bytes())
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return  # it has ended, or is somebody else's
