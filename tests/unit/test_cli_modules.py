"""Modules that workers may call are looked for when a worker starts."""

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from tenure.cli.modules import require_modules
from tenure.errors import UsageError


def test_a_module_that_is_nowhere_is_refused() -> None:
    with pytest.raises(UsageError, match="no module nosuchmodule"):
        require_modules(["json", "nosuchmodule"])


def test_a_module_of_this_folder_is_found_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rude_tasks.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)

    require_modules(["rude_tasks"])


def test_a_module_that_is_known_to_a_finder_of_its_own_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class InPlace:
        def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
            return ModuleSpec(name, None) if name == "installed_in_place" else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, InPlace()])

    require_modules(["installed_in_place", "sys"])
    with pytest.raises(UsageError, match="no module nosuchmodule"):
        require_modules(["nosuchmodule"])
