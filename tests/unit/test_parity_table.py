"""The table in docs/launchers.md says what the parity suite asks, and the suite asks what the table says."""

import ast
from pathlib import Path

import pytest

from tests.fixtures_launchers import COLUMNS, bench_module
from tests.fixtures_parity import PASSWORD, SECRET, holders
from tests.parity_table import CASES, in_page, lines, promised

ROOT = Path(__file__).parents[2]


def test_the_table_in_the_docs_is_what_the_suite_has() -> None:
    """Written by `python -m tests.parity_table docs/launchers.md`."""
    assert list(in_page((ROOT / "docs" / "launchers.md").read_text())) == lines(promised())


def test_every_case_is_a_test_and_every_test_a_case() -> None:
    suite = ast.parse((ROOT / "tests" / "e2e" / "test_launcher_parity.py").read_text())
    tests = {node.name for node in suite.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}

    assert tests == {f"test_{case}" for case in CASES}


def test_only_cases_that_there_are_are_exempt() -> None:
    for name in COLUMNS:
        module = bench_module(name)
        assert module is None or module.EXEMPT.keys() <= CASES.keys()


@pytest.mark.parametrize("value", [PASSWORD, f"redis://:{PASSWORD}@127.0.0.1:6379/0", f"a:{SECRET}:b", f"x {SECRET}"])
def test_the_case_of_the_environment_finds_a_secret_also_inside_of_a_value(value: str) -> None:
    """It compared whole words once, and would have let an address with the password pass."""
    assert holders({"PATH": "/bin", "TENURE_BROKER_URL": value}, PASSWORD, SECRET) == ["TENURE_BROKER_URL"]


def test_the_case_of_the_environment_lets_one_without_a_secret_be() -> None:
    assert not holders({"PATH": "/bin", "HOME": "/parity"}, PASSWORD, SECRET)
