"""Which tests run what a mutant changes: they are asked first, for one of them is the likeliest to notice.

Learned from one run of the tests over the package as it is, with `coverage` and a context per test. This only orders: a
mutant that its witnesses do not notice meets all the other tests, and then the simulation.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Final, final

from coverage import CoverageData

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.mutants.mutant import Edit

MEASURED: Final = "[run]\nsource = tenure\ndynamic_context = test_function\n"
"""What `coverage` is to be told."""
MOST: Final = 60
_QUICK: Final = "tests.unit."
"""Where tests are that take little time each; the others are asked with all that remain."""
_STATEMENT: Final = "-- name: "
_CONSTANT: Final = re.compile(r"\b_?[A-Z][A-Z_]{2,}\b")


@final
class Witnesses:
    """The tests by the lines that they run.

    Args:
        measured: the file that `coverage` wrote.
        package: the folder of the package that was measured.
    """

    def __init__(self, measured: Path, package: Path) -> None:
        data = CoverageData(str(measured))
        data.read()
        self._package = package
        self._tests: dict[str, Mapping[int, Sequence[str]]] = {}
        self._reach: Counter[str] = Counter()
        for file in data.measured_files():
            by_line = {
                line: [test for test in tests if test.startswith(_QUICK)]
                for line, tests in data.contexts_by_lineno(file).items()
            }
            self._tests[file] = by_line
            self._reach.update(test for tests in by_line.values() for test in tests)

    def of(self, edits: Iterable[Edit]) -> list[str]:
        """Tests as pytest names them, at most `MOST`; first those that run little else, being to the point."""
        found = {test for edit in edits for test in self._of(edit)}
        return [_node(test) for test in sorted(found, key=lambda test: (self._reach[test], test))[:MOST]]

    def _of(self, edit: Edit) -> Iterator[str]:
        path = self._package / edit.file
        text = path.read_text(encoding="utf-8")
        at = text.index(edit.old)
        if path.suffix == ".sql":
            name = text[:at].rpartition(_STATEMENT)[2].partition("\n")[0].strip()
            yield from self._where(f'"{name}"')
            return
        first = text.count("\n", 0, at) + 1
        lines = range(first, first + edit.old.rstrip().count("\n") + 1)
        by_line = self._tests.get(str(path), {})
        if not (found := [test for line in lines for test in by_line.get(line, ())]):
            for name in _CONSTANT.findall("\n".join(text.splitlines()[lines.start - 1 : lines.stop - 1])):
                found += self._where(name)
        yield from found

    def _where(self, word: str) -> list[str]:
        """The tests that run a line with that word."""
        return [
            test
            for file, by_line in self._tests.items()
            for number, line in enumerate(_lines(file), start=1)
            if word in line
            for test in by_line.get(number, ())
        ]


@cache
def _lines(file: str) -> tuple[str, ...]:
    with open(file, encoding="utf-8") as text:  # noqa: PTH123 - the name is that of the measurement
        return tuple(text.read().splitlines())


def _node(test: str) -> str:
    """`tests.unit.test_leases.test_a_lease` is `tests/unit/test_leases.py::test_a_lease`."""
    module, _, name = test.rpartition(".")
    return f"{module.replace('.', '/')}.py::{name}"
