"""The table in docs/launchers.md says what the parity suite asks, and the suite asks what the table says."""

import ast
from pathlib import Path

from tests.fixtures_launchers import COLUMNS, bench_module
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
