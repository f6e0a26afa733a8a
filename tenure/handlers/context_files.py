"""The files of a running task: its folder, its checkpoints, its secrets.

Loads nothing heavy, because users' modules import `tenure.handlers.context`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, final

from tenure.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from tempfile import TemporaryDirectory

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_WITH_FILES: Final = "Submit it with files=True, or with inputs or secrets"


class TaskFiles:
    """The part of a task's context that has to do with files.

    Args:
        folder: the task's own folder; None when it has none.
        checkpoint: what an earlier attempt has saved.
        secrets: the files of those that the task names.
        save: tells that a checkpoint is whole.
    """

    def __init__(
        self,
        folder: Path | None,
        checkpoint: Path | None,
        secrets: Mapping[str, Path],
        save: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._checkpoint = checkpoint
        self._secrets = secrets
        self._save = save

    @property
    def folder(self) -> Path:
        """The task's own folder, removed when it is over. Raises `UsageError` when the task has none."""
        if self._folder is None:
            raise UsageError("this task has no folder of its own", _WITH_FILES)
        return self._folder

    @property
    def inputs(self) -> Path:
        """The folder of what the task was submitted with."""
        return self.folder / "inputs"

    @property
    def outputs(self) -> Path:
        """The folder of what the task leaves: kept when it returns, and with its result only."""
        return self.folder / "outputs"

    @property
    def checkpoint(self) -> Path | None:
        """What an earlier attempt of this task has saved last; None when there is nothing."""
        return self._checkpoint

    def save_checkpoint(self, name: str) -> None:
        """Keep the file or folder `checkpoint/<name>` for a later attempt. It must stay as it is from now on."""
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} cannot name a checkpoint", "Use up to 64 letters, digits, '.', '_' and '-'")
        if not (self.folder / "checkpoint" / name).exists():
            raise UsageError(f"there is no checkpoint/{name}", f"Write {self.folder / 'checkpoint' / name} first")
        self._save(name)

    def secret(self, name: str) -> str:
        """The value of a secret that the task names. Raises `UsageError` for any other."""
        file = self._secrets.get(name)
        if file is None:
            raise UsageError(f"this task names no secret {name!r}", f'Submit it with secrets=["{name}"]')
        return file.read_text(encoding="utf-8")


@final
class LooseFiles:
    """What takes the place of a task's folder outside a fleet: a temporary one, made at first need."""

    def __init__(self) -> None:
        self._temporary: TemporaryDirectory[str] | None = None

    def path(self) -> Path:
        """The folder."""
        from pathlib import Path
        from tempfile import TemporaryDirectory

        if self._temporary is None:
            self._temporary = TemporaryDirectory(prefix="tenure-")
            for name in ("inputs", "outputs", "checkpoint"):
                (Path(self._temporary.name) / name).mkdir()
        return Path(self._temporary.name)
