"""How runners, children and commands are started: interpreters, environments and folders."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from tenure.processes.interpreters import import_path, python_argv

if TYPE_CHECKING:
    from tenure.protocol.envelope import CommandWork
    from tenure.protocol.worker_messages import Binding
    from tenure.workers.options import WorkerOptions

_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


@final
@dataclass(frozen=True, slots=True)
class Launch:
    """What every start on this worker has in common."""

    options: WorkerOptions
    folder: Path
    """The worker's own folder; task folders are below it."""
    runners_lock: int

    def runner_argv(self, control: int) -> list[str]:
        """The runner's command line; `control` and the lock must be inherited."""
        return [*self._python("tenure.workers.runner"), str(control), str(self.runners_lock), str(os.getpid())]

    def runner_env(self) -> dict[str, str]:
        """The runner's environment. Tasks of the same user can read it, so it holds no more than theirs."""
        return {**self._inherited(), **import_path(())}

    def child_argv(self) -> list[str]:
        """The child's command line, without the descriptors that the runner appends."""
        allowed = [part for module in self.options.allow for part in ("--allow", module)]
        return [*self._python("tenure.workers.child"), *allowed]

    def child_env(self) -> dict[str, str]:
        """The child's environment."""
        return {**self._inherited(), **import_path(self.options.import_path)}

    def command_env(self, binding: Binding, work: CommandWork) -> dict[str, str]:
        """A command's environment: the allow-list, who it is, and what the submitter added."""
        return {
            **self._inherited(),
            "TENURE_TASK_ID": binding.task_id,
            "TENURE_ATTEMPT": str(binding.attempt),
            "TENURE_FENCE": str(binding.fence),
            **dict(work.env),
        }

    def task_folder(self, name: str) -> Path:
        """A folder of that name for one start; the runner makes and removes it."""
        return self.folder / "tasks" / name

    def kept_folder(self, name: str) -> Path:
        """Where a task folder that is to be kept is moved in the end; the next agent leaves it alone."""
        return self.folder / "kept" / name

    def secret_file(self, name: str) -> Path:
        """The file of a secret that this host knows."""
        # A mounted secret is a link to its newest version; what is copied is the file itself.
        return ((self.options.secrets_dir or self.folder / "secrets") / name).resolve()

    def _python(self, module: str) -> list[str]:
        return python_argv(self.options.python, module)

    def _inherited(self) -> dict[str, str]:
        return {"PATH": _DEFAULT_PATH, **dict(self.options.environment)}
