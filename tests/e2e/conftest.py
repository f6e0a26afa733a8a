"""The parity suite: its cases by launcher, so that each fleet comes up once, and the table of what came of them."""

import pytest

from tests.parity_table import CASES, columns

_SUITE = "test_launcher_parity.py::test_"
_IN_SHORT = ("success", "lost_executor", "nothing_left")
"""The cases that a short run has on every launcher but the site; the local one has all of them each time."""
_WORDS = {"passed": "yes", "failed": "NO", "skipped": "skipped"}


def _case_of(nodeid: str) -> tuple[str, str]:
    """Case and launcher; where tests run side by side, the name of their group follows the bracket."""
    case, _, rest = nodeid.partition(_SUITE)[2].partition("[")
    return case, rest.partition("]")[0]


def pytest_itemcollected(item: pytest.Item) -> None:
    case, launcher = _case_of(item.nodeid)
    if not case:
        return
    item.add_marker(pytest.mark.xdist_group(f"launcher {launcher}"))
    if launcher == "site" or (launcher != "local" and case not in _IN_SHORT):
        item.add_marker(pytest.mark.slow)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """After they were shuffled: the cases of one launcher follow each other, in the places that cases have."""
    places = [index for index, item in enumerate(items) if _SUITE in item.nodeid]
    by_launcher = sorted((items[index] for index in places), key=lambda item: item.nodeid.partition("[")[2])
    for index, item in zip(places, by_launcher, strict=True):
        items[index] = item


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if hasattr(terminalreporter.config, "workerinput"):
        return  # the process that started this one sums up for all
    cells: dict[tuple[str, str], str] = {}
    for filed in terminalreporter.stats.values():
        for report in filed:
            if isinstance(report, pytest.TestReport) and _SUITE in report.nodeid:
                case, launcher = _case_of(report.nodeid)
                # A test that could not be set up has no call, and one that was has more than one report.
                if case in CASES and (report.when == "call" or report.outcome != "passed"):
                    cells[case, launcher] = _WORDS[report.outcome]
    if cells:
        terminalreporter.section("launchers")
        for line in columns(cells):
            terminalreporter.write_line(line)
