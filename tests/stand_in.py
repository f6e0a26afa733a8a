"""Executors of launchers that are tested alone: what was started, with what, and the word that ends it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenure.clock import SystemClock, SystemEntropy, sortable_id
from tenure.launchers.base import ExecutorCommand, LauncherSettings, LaunchOrder
from tenure.protocol.launch import LaunchTicket
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.launchers.base import Handle, Launcher, Phase, Sighting

PROGRAM = str(Path(__file__).with_name("fixtures_executor_program.py").resolve())
PATIENCE_S = 30.0


@dataclass(frozen=True)
class StandIn:
    """The notes of all programs that were started with this folder."""

    folder: Path

    def command(self, *environment: tuple[str, str]) -> ExecutorCommand:
        """How one of them is started."""
        return ExecutorCommand((sys.executable, "-S", PROGRAM, str(self.folder)), ("--option",), environment)

    def settings(self, options: dict[str, Any], *environment: tuple[str, str]) -> LauncherSettings:
        """What a factory is given so that its launcher starts them."""
        private = self.folder / "launcher"
        private.mkdir(exist_ok=True)
        return LauncherSettings(self.command(*environment), private, SystemClock(), SystemEntropy(), options)

    def notes(self) -> list[dict[str, Any]]:
        """What each of them noted at its start, the first one first."""
        paths = sorted(self.folder.glob("*.started"), key=lambda path: path.stat().st_mtime_ns)
        return [json.loads(path.read_text()) for path in paths]

    def wait_for_start(self, count: int = 1) -> int:
        """The process id of the newest, once `count` have started."""
        wait_until(lambda: len(self.notes()) >= count, f"{count} executors have started", PATIENCE_S)
        assert len(self.notes()) == count
        return int(self.notes()[-1]["pid"])

    def end(self, code: int = 0) -> None:
        """Let those that run, and every later one, end with that exit code."""
        (self.folder / "code.new").write_text(str(code))
        (self.folder / "code.new").rename(self.folder / "code")


def order(task_id: str = "", fence: int = 1, **more: Any) -> LaunchOrder:
    """An order for a task of its own."""
    ticket = LaunchTicket(
        namespace="test",
        site="compute",
        parent="w1",
        capability="cpu",
        entry="1-1",
        world="w",
        run="r",
        task_id=task_id or sortable_id(SystemClock().now_ms(), SystemEntropy()),
        attempt=1,
        fence=fence,
        digest="a" * 64,
        ttl_ms=5_000,
    )
    return LaunchOrder(ticket, **more)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for_end(pid: int) -> None:
    """Return once the process is over."""
    wait_until(lambda: not is_alive(pid), f"process {pid} is over", PATIENCE_S)


def wait_for_phase(launcher: Launcher[Any], handle: Handle, phase: Phase) -> Sighting:
    """The first sighting of that phase."""
    return wait_for_sighting(launcher, handle, lambda seen: seen.phase is phase, f"it is {phase}")


def wait_for_sighting(
    launcher: Launcher[Any], handle: Handle, wanted: Callable[[Sighting], bool], description: str
) -> Sighting:
    """The first sighting that is wanted."""
    seen: list[Sighting] = []

    def look() -> bool:
        seen[:] = [launcher.probe(handle)]
        return wanted(seen[0])

    try:
        wait_until(look, description, PATIENCE_S)
    except AssertionError:
        raise AssertionError(f"{description}: never; the last sighting was {seen}") from None
    return seen[0]
