"""The table of launchers and cases: what the parity suite asks of each, and which of it cannot be where.

`python -m tests.parity_table docs/launchers.md` puts it into the page; a test compares the two. After a run of the
suite, `tests/e2e/conftest.py` prints the same table with what came of each case.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from tests.fixtures_launchers import COLUMNS, bench_module

CASES: Mapping[str, str] = MappingProxyType(
    {
        "success": "a value comes back",
        "failure": "a task that fails has failed, and is not lost",
        "timeout": "a task that runs too long is ended",
        "cancel_waiting": "cancelled while the substrate lets it wait: it never runs",
        "cancel_running": "cancelled while it runs: its process is gone before that is said",
        "progress": "how far it is can be read",
        "outputs": "files that it leaves are in the store",
        "lost_executor": "executor killed: the lease is released with its cause well before its ttl, one directive, "
        "one execution per attempt",
        "second_executor": "a second executor of the same ticket runs nothing",
        "stale_result": "a result from before is quarantined",
        "environment": "no secret of the host in environment or command line",
        "worker_killed": "worker killed: the executor runs on and is found again",
        "nothing_left": "nothing is left: no process, note, or key",
    }
)
"""Each case of the suite, by the name of its test, and what holds then."""

_BEGIN = "<!-- parity -->"
_END = "<!-- end of parity -->"
_NOT_YET = "no bench yet"


def promised() -> dict[tuple[str, str], str]:
    """What the suite asks, by case and launcher: "yes", or why it cannot be."""
    found: dict[tuple[str, str], str] = {}
    for name in COLUMNS:
        module = bench_module(name)
        for case in CASES:
            found[case, name] = _NOT_YET if module is None else module.EXEMPT.get(case, "yes")
    return found


def lines(cells: Mapping[tuple[str, str], str]) -> list[str]:
    """The table as Markdown."""
    head = ["case", *(f"`{name}`" for name in COLUMNS)]
    rows = [[words, *(cells.get((case, name), "-") for name in COLUMNS)] for case, words in CASES.items()]
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]


def columns(cells: Mapping[tuple[str, str], str]) -> list[str]:
    """The table for a terminal."""
    rows = [["case", *COLUMNS], *([case, *(cells.get((case, name), "-") for name in COLUMNS)] for case in CASES)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def in_page(page: str) -> Sequence[str]:
    """The table that stands in that page."""
    _, _, rest = page.partition(_BEGIN)
    return rest.partition(_END)[0].strip().splitlines()


def into_page(page: Path) -> None:
    """Replace the lines between the page's two marks."""
    before, _, rest = page.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    page.write_text("\n".join([before + _BEGIN, "", *lines(promised()), "", _END + after]))


if __name__ == "__main__":
    into_page(Path(sys.argv[1]))
