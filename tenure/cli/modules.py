"""Whether the modules that a worker may call are there, said when it starts rather than when a task fails."""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from tenure.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence


def require_modules(names: Sequence[str]) -> None:
    """Look for the modules in this folder and on Python's path, importing nothing.

    Raises:
        UsageError: one of them cannot be found.
    """
    folder = str(Path.cwd())
    for name in names:
        top = name.partition(".")[0]
        # The finders as well: a package that was installed in place may be known to a finder of its own only.
        known = PathFinder.find_spec(top, [folder, *sys.path]) or any(
            finder.find_spec(top, None) for finder in sys.meta_path
        )
        if not known:
            raise UsageError(
                f"there is no module {name} in {folder} or on Python's path",
                "Start the worker in the folder that holds it, or install it",
            )
