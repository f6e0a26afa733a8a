"""Fleets to harm, the instrument that watches them, and the table of what was measured."""

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import pytest

from tests.fault.figures import Figures, merged, read, table, write
from tests.fault.trial import Trials

_PROPERTY = "fault_figures"


@pytest.fixture
def trials(tmp_path: Path, record_property: Callable[[str, object], None]) -> Iterator[Trials]:
    """What a test of one fault works with; its figures go into the table, also when it fails.

    A promised time that was not kept fails the test, too.
    """
    trials = Trials(tmp_path)
    try:
        yield trials
    finally:
        trials.close()
        for figures in trials.figures.values():
            figures.delay_ms = trials.instrument.delay_ms()
            record_property(_PROPERTY, asdict(figures))
    late = [problem for figures in trials.figures.values() for problem in figures.too_late()]
    assert not late, late


@pytest.fixture
def reconnect_trials() -> int:
    """How many reconnects the long run makes."""
    return int(os.environ.get("RECONNECT_TRIALS", "500"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if hasattr(terminalreporter.config, "workerinput"):
        return  # the process that started this one sums up for all
    # The figures are complete when a test is torn down; reports of that which passed are filed under "".
    reports = [report for filed in terminalreporter.stats.values() for report in filed]
    ends = [each for each in reports if isinstance(each, pytest.TestReport) and each.when == "teardown"]
    found = [cast("dict[str, Any]", value) for end in ends for name, value in end.user_properties if name == _PROPERTY]
    if not found:
        return
    path = os.environ.get("FAULT_FIGURES")
    kept = read(Path(path)) if path else []
    everything: list[Figures] = merged([*kept, *found])
    terminalreporter.section("faults")
    for line in table(everything):
        terminalreporter.write_line(line)
    if path:
        write(everything, Path(path))
        terminalreporter.write_line(f"written to {path}")
