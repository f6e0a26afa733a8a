"""Files that are written under another name first: whoever reads one finds all of it, or what was there before."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

_OWNER_ONLY: Final = 0o600


@contextmanager
def whole_file(path: Path) -> Generator[TextIO]:
    """A text file for its owner only, which takes the place of `path` when the block has ended well.

    What is no file, such as a pipe or a terminal, cannot be replaced and is written as it is. Raises `OSError`.
    """
    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8") as stream:
            yield stream
        return
    path = path.resolve()  # a link stays one, and what it leads to is replaced
    # By the process's number, so that two that write the same file do not take each other's draft for their own.
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    draft.unlink(missing_ok=True)
    try:
        with os.fdopen(
            os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY), "w", encoding="utf-8"
        ) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
