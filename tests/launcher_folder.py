"""The bench of the example's launcher: a folder, and the program that takes jobs from it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.fixtures_launchers import Premises

EXEMPT: Mapping[str, str] = MappingProxyType({})
EXAMPLE = Path(__file__).parents[1] / "examples" / "launcher"


@dataclass
class FolderBench:
    """A host that takes one job at a time, several times."""

    options: Mapping[str, Any]
    queues: bool = True
    environment: frozenset[str] = frozenset()
    takers: list[subprocess.Popen[bytes]] = field(default_factory=list["subprocess.Popen[bytes]"])

    def hold(self) -> None:
        """See `LauncherBench.hold`."""
        for taker in self.takers:
            taker.kill()
            taker.wait()
        self.takers.clear()

    def let_go(self) -> None:
        """See `LauncherBench.let_go`."""
        program = [sys.executable, str(EXAMPLE / "take_jobs.py"), str(self.options["jobs"])]
        self.takers.extend(subprocess.Popen(program, stdin=subprocess.DEVNULL) for _ in range(3))


def installed(folder: Path) -> tuple[str, str]:
    """Folders for the import path with which Tenure knows the example, as if it were installed."""
    info = folder / "folder_launcher-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: folder-launcher\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tenure.launchers]\nfolder = folder_launcher:create\n")
    return str(folder), str(EXAMPLE)


@contextmanager
def open_bench(premises: Premises) -> Generator[FolderBench]:
    """See `fixtures_launchers.BenchModule`."""
    jobs = premises.folder / "jobs"
    jobs.mkdir()
    bench = FolderBench({"jobs": str(jobs)})
    bench.let_go()
    try:
        yield bench
    finally:
        bench.hold()
