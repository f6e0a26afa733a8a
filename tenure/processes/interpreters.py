"""How another process of Tenure is started: the interpreter's command line, and where it finds the package."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path


def python_argv(python: str, module: str) -> list[str]:
    """The command line that runs a module of the package."""
    # -P: the folder that it starts in may belong to a task and must not be imported from.
    return [python, "-P", "-m", module]


def import_path(folders: tuple[str, ...] = ()) -> dict[str, str]:
    """The variable that lets it import from these folders, and the package from where this process has it."""
    home = str(Path(__file__).parents[2])
    installed = home in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    # An installed package is found anyway; naming its folder would put it before the standard library.
    path = os.pathsep.join([*folders, *([] if installed else [home])])
    return {"PYTHONPATH": path} if path else {}
