"""Where one attempt works: its slot, its folder, and its place in the store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from tenure.artifacts.jobs import Collect, Fetch, Save, StagingPlace
from tenure.protocol.artifact import Input as Content

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.artifacts.jobs import Job
    from tenure.protocol.worker_messages import Binding
    from tenure.workers.options import WorkerOptions
    from tenure.workers.provision import Provision


@final
@dataclass(frozen=True, slots=True)
class Workplace:
    """One attempt's slot, number, binding, folder, how many files it may leave, and the site that it is run at."""

    slot: int
    call: int
    binding: Binding
    folder: Path
    most_files: int
    site: str

    @property
    def states(self) -> Path:
        """A folder of the agent's own, for checkpoints that are told and not written."""
        return self.folder.with_name(f"{self.folder.name}.states")

    def fetch(self, provision: Provision) -> Callable[[int], Job]:
        """The job that brings inputs and checkpoint into the folder."""
        wanted = [(f"inputs/{one.path}", one.content) for one in provision.inputs]
        if provision.checkpoint is not None:
            wanted.append(("checkpoint", provision.checkpoint.bundle))
        return lambda number: Fetch(
            number=number,
            folder=str(self.folder),
            wanted=tuple(Content(path=path, content=content) for path, content in wanted),
        )

    def collect(self) -> Callable[[int], Job]:
        """The job that stages the outputs."""
        return lambda number: Collect(
            number=number, place=self._staging(), folder=str(self.folder / "outputs"), most_files=self.most_files
        )

    def save(self, folder: Path, path: str) -> Callable[[int], Job]:
        """The job that stages a checkpoint."""
        return lambda number: Save(
            number=number, place=self._staging(), folder=str(folder), path=path, most_files=self.most_files
        )

    def has_outputs(self) -> bool:
        """Whether there is anything to collect; what is no plain folder is for the porter to judge."""
        outputs = self.folder / "outputs"
        try:
            if outputs.is_dir() and not outputs.is_symlink():
                return next(outputs.iterdir(), None) is not None
            return outputs.is_symlink() or outputs.exists()
        except OSError:
            return True

    def _staging(self) -> StagingPlace:
        binding = self.binding
        return StagingPlace(site=self.site, task_id=binding.task_id, fence=binding.fence, nonce=binding.nonce)


def most_output_files(provision: Provision, options: WorkerOptions) -> int:
    """How many files an attempt may leave among its outputs."""
    limits = (provision.limits.files, options.limits.files, options.output_files)
    return min(limit for limit in limits if limit is not None)
