"""The launcher `local`: one process of this host per assignment, each in a session of its own.

An executor outlives the worker that started it: a worker's next agent finds it again by its number and the time of its
start. While this process is its parent, its end is known by the status that was waited for; afterwards only that it is
gone. Each launch has a folder, which holds its record and what it has printed, until it is cleared away.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from tenure.errors import LaunchRefused, SubstrateUnreachable
from tenure.launchers.base import Handle, Phase, Sighting
from tenure.launchers.local_ends import ending
from tenure.launchers.local_plan import LocalOptions, LocalPlan, render
from tenure.launchers.local_process import LocalProcess
from tenure.launchers.options import read_options
from tenure.processes.watching import ProcessMark, started_with, this_place

if TYPE_CHECKING:
    from tenure.launchers.base import Launcher, LauncherSettings, LaunchOrder

_NAME: Final = "local"
_RECORD: Final = "address"
_PRINTED: Final = "printed.txt"


def create(settings: LauncherSettings) -> Launcher[LocalPlan]:
    """The launcher; see `LauncherFactory`."""
    return LocalLauncher(settings, read_options(LocalOptions, _NAME, settings.options))


@final
class LocalLauncher:
    """See `Launcher`."""

    def __init__(self, settings: LauncherSettings, options: LocalOptions) -> None:
        self._executor = settings.executor
        self._clock = settings.clock
        self._grace_ms = options.grace
        self._folder = settings.folder / "local"
        self._place = this_place()
        self._processes: dict[str, LocalProcess] = {}

    @property
    def name(self) -> str:
        """See `Launcher.name`."""
        return _NAME

    def render(self, order: LaunchOrder) -> LocalPlan:
        """See `Launcher.render`."""
        return render(order, self._executor)

    def launch(self, plan: LocalPlan) -> Handle:
        """See `Launcher.launch`."""
        folder = self._folder / plan.name
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            address = self._known(plan, folder) or self._start(plan, folder)
        except OSError as error:
            self._remove(folder)
            place = f"{error.filename}: " if error.filename else ""
            message = f"no process can be started here: {place}{error.strerror}"
            raise LaunchRefused(message, "See what this host lacks") from error
        return Handle(launcher=_NAME, name=plan.name, address=address)

    def probe(self, handle: Handle) -> Sighting:
        """See `Launcher.probe`. Also kills what was cancelled and has not ended in time."""
        process = self._processes.get(handle.name) or self._adopted(handle)
        if process is None:
            return Sighting(Phase.MISSING, detail=f"this host knows no executor {handle.name}")
        if process.look():
            process.insist(self._clock.elapsed_ms(), self._grace_ms)
            return Sighting(Phase.RUNNING, detail=f"process {process.mark.pid}")
        return ending(process, self._folder / handle.name / _PRINTED)

    def cancel(self, handle: Handle) -> None:
        """See `Launcher.cancel`: SIGTERM, and SIGKILL when that was not enough."""
        process = self._processes.get(handle.name) or self._adopted(handle)
        if process is not None and process.look():
            process.end(self._clock.elapsed_ms(), self._grace_ms)

    def clear(self, handle: Handle) -> None:
        """See `Launcher.clear`. Ends what its executor, killed from outside, may have left behind."""
        process = self._processes.get(handle.name)
        if process is not None:
            if process.look():
                raise SubstrateUnreachable(f"the executor {handle.name} still runs")
            process.end_leftovers()
            del self._processes[handle.name]
        self._remove(self._folder / handle.name)

    def close(self) -> None:
        """See `Launcher.close`. Executors run on."""
        self._processes.clear()

    def _known(self, plan: LocalPlan, folder: Path) -> str | None:
        """The address of what was started before. What cannot be looked up now may run, and keeps its record."""
        try:
            return self._recorded(folder) or self._found(plan, folder)
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            message = f"it cannot be read whether {plan.name} was started: {place}{error.strerror}"
            raise SubstrateUnreachable(message, "It is tried again") from error

    def _recorded(self, folder: Path) -> str | None:
        """The address that an earlier launch has left."""
        try:
            return (folder / _RECORD).read_text(encoding="ascii")
        except FileNotFoundError:
            return None

    def _found(self, plan: LocalPlan, folder: Path) -> str | None:
        """The address of a process that was started before its record could be written."""
        mark = started_with(plan.ticket, os.getuid())
        return None if mark is None else self._record(folder, mark)

    def _start(self, plan: LocalPlan, folder: Path) -> str:
        process = LocalProcess.start(plan.argv, dict(plan.environment), folder / _PRINTED)
        try:
            address = self._record(folder, process.mark)
        except OSError:
            # Without a record it would be started again by the next agent, and looked after by nobody until then.
            process.end(self._clock.elapsed_ms(), 0)
            process.wait()
            raise
        self._processes[plan.name] = process
        return address

    def _record(self, folder: Path, mark: ProcessMark) -> str:
        address = f"{mark.pid}/{mark.start_ticks}@{self._place}"
        fresh = folder / f"{_RECORD}.new"
        fresh.write_text(address, encoding="ascii")
        fresh.rename(folder / _RECORD)
        return address

    def _adopted(self, handle: Handle) -> LocalProcess | None:
        """What an earlier agent has started; None when nobody here can tell."""
        mark, at, place = handle.address.partition("@")
        pid, slash, start_ticks = mark.partition("/")
        if not at or not slash or place != self._place or not (pid.isdigit() and start_ticks.isdigit()):
            return None
        process = LocalProcess(ProcessMark(int(pid), int(start_ticks)))
        if not process.look() and not (self._folder / handle.name).exists():
            return None
        self._processes[handle.name] = process
        return process

    def _remove(self, folder: Path) -> None:
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise SubstrateUnreachable(f"{folder} cannot be removed: {error.strerror}") from error
