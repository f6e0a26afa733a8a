"""A launcher of your own: jobs are files in a folder that hosts share, and whoever runs `take_jobs.py` takes them.

A job is a folder below JOBS with `job.json` in it. Who takes it makes `taken`, and `ended` holds the exit code;
`cancel` says that it is not wanted any more. Making a file that must not exist yet is what decides who was first.
"""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tenure.errors import LaunchRefused, SubstrateUnreachable
from tenure.launchers.base import ExecutorCommand, Handle, LauncherSettings, LaunchOrder, Phase, Sighting
from tenure.launchers.options import LauncherOptions, read_options
from tenure.protocol.worker_messages import Cause


class FolderOptions(LauncherOptions):
    """The launcher's options: `--launcher-option jobs=/shared/jobs`."""

    jobs: Path


@dataclass(frozen=True)
class FolderPlan:
    """One job."""

    name: str
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]

    def shown(self) -> str:
        """The job as it is written into its file."""
        return json.dumps({"argv": list(self.argv), "environment": dict(self.environment)}, indent=2)


def create(settings: LauncherSettings) -> FolderLauncher:
    """What the entry point names."""
    return FolderLauncher(settings.executor, read_options(FolderOptions, "folder", settings.options).jobs)


class FolderLauncher:
    """See `tenure.launchers.base.Launcher`."""

    name = "folder"

    def __init__(self, executor: ExecutorCommand, jobs: Path) -> None:
        self.executor = executor
        self.jobs = jobs

    def render(self, order: LaunchOrder) -> FolderPlan:
        """The job of an assignment."""
        return FolderPlan(order.ticket.name, self.executor.argv(order.ticket), self.executor.environment)

    def launch(self, plan: FolderPlan) -> Handle:
        """Put the job there, unless it is there already, in whatever state it is."""
        job = self.jobs / plan.name
        try:
            job.mkdir(mode=0o700, exist_ok=True)
            if not (job / "job.json").exists():
                (job / "job.new").write_text(plan.shown())
                (job / "job.new").rename(job / "job.json")
        except FileNotFoundError as error:
            raise LaunchRefused(f"there is no folder {self.jobs}", "Make it on the shared disk") from error
        except OSError as error:
            raise SubstrateUnreachable(f"{self.jobs} cannot be written: {error.strerror}") from error
        return Handle(launcher=self.name, name=plan.name)

    def probe(self, handle: Handle) -> Sighting:
        """What the files say."""
        job = self.jobs / handle.name
        try:
            if not self.jobs.exists():
                return Sighting(Phase.UNKNOWN, detail=f"{self.jobs} is not there")
            if (job / "ended").exists():
                return self._ended((job / "ended").read_text())
            if (job / "taken").exists():
                return Sighting(Phase.RUNNING, detail=(job / "taken").read_text())
        except OSError as error:
            return Sighting(Phase.UNKNOWN, detail=f"{job} cannot be read: {error.strerror}")
        return Sighting(Phase.STARTING if (job / "job.json").exists() else Phase.MISSING)

    def cancel(self, handle: Handle) -> None:
        """Take the job in the place of everybody else; whoever has it already looks for `cancel`."""
        job = self.jobs / handle.name
        if not job.exists():
            return
        try:
            (job / "cancel").touch()
            with suppress(FileExistsError):
                (job / "taken").touch(exist_ok=False)
                (job / "ended.new").write_text("cancelled")
                (job / "ended.new").rename(job / "ended")
        except OSError as error:
            raise SubstrateUnreachable(f"{job} cannot be written: {error.strerror}") from error

    def clear(self, handle: Handle) -> None:
        """Remove the job."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self.jobs / handle.name)

    def close(self) -> None:
        """There is nothing to let go of."""

    @staticmethod
    def _ended(code: str) -> Sighting:
        # The exit code was waited for, or nothing was ever started: both are proof.
        if code == "cancelled":
            return Sighting(Phase.ENDED, Cause.EXECUTOR_REMOVED, "cancelled before anybody took it", proved=True)
        if code == "0":
            return Sighting(Phase.ENDED, proved=True)
        return Sighting(Phase.ENDED, Cause.EXECUTOR_DIED, f"it has ended with exit code {code}", proved=True)
