"""What `import tenure` loads."""

import subprocess
import sys
from pathlib import Path

import pytest

import tenure

ROOT = Path(__file__).parents[2]


def loaded_by(statement: str) -> set[str]:
    script = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize("statement", ["import tenure", "import tenure; tenure.task(capability='a')"])
def test_a_module_of_tasks_stays_cheap_to_import(statement: str) -> None:
    heavy = {"pydantic", "pydantic_core", "redis", "hiredis", "asyncio", "concurrent", "sqlite3", "rich", "click"}
    assert not loaded_by(statement) & heavy


def test_a_client_over_its_own_connections_needs_no_driver() -> None:
    assert not loaded_by("import tenure; tenure.Client, tenure.FleetExecutor") & {"redis", "pydantic_settings"}


def test_errors_are_named_without_another_import() -> None:
    assert "tenure" in loaded_by("import tenure; tenure.errors.TaskFailed")


@pytest.mark.parametrize("name", tenure.__all__)
def test_every_exported_name_exists(name: str) -> None:
    assert getattr(tenure, name) is not None
