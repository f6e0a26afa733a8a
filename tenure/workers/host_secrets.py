"""The secrets that this host knows: one file each, named like the secret. Values are never read here."""

from __future__ import annotations

import re
import stat
from typing import TYPE_CHECKING, Final

from tenure.errors import InvalidSettings

if TYPE_CHECKING:
    from pathlib import Path

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def known_secrets(folder: Path | None) -> frozenset[str]:
    """The names of the secrets in that folder; names that begin with a dot are left out.

    Raises:
        InvalidSettings: the folder cannot be read, or something in it is no secret that is safe to give away.
    """
    if folder is None:
        return frozenset()
    try:
        return frozenset(_checked(file) for file in sorted(folder.iterdir()) if not file.name.startswith("."))
    except OSError as error:
        message = f"the secrets in {folder} cannot be read: {error.strerror}"
        raise InvalidSettings(message, "Name a folder that holds one file per secret") from error


def secret_labels(names: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """The labels by which the coordinator finds a worker that knows these secrets."""
    return tuple((f"secret:{name}", "yes") for name in sorted(names))


def _checked(file: Path) -> str:
    if not _NAME.fullmatch(file.name):
        raise InvalidSettings(
            f"{file} cannot be a secret", "Use up to 64 letters, digits, '.', '_' and '-' as its name"
        )
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise InvalidSettings(f"{file} is no file", "A folder of secrets holds one file per secret and nothing else")
    if status.st_mode & _OTHERS:
        raise InvalidSettings(f"{file} can be read or changed by others", f"Run `chmod 600 {file}`")
    return file.name
