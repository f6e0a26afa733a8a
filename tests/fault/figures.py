"""Figures of fault tests: collected per fault, merged over tests, shown as one table and kept as JSON.

`python -m tests.fault.figures build/faults.json docs/faults.md` puts them into the docs.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.fault.instrument import Findings

_HEAD = (
    "fault", "trials", "runs", "overlaps", "lost", "twice", "unallowed", "false deaths",
    "noticed p50", "p99", "limit", "serves p50", "p99", "closest", "ran on", "under way", "from spool",
)  # fmt: skip
SERVE_LIMIT_MS = 10_000
"""How long a new task may take to its result once broker and coordinator are there again."""
WAKINGS = 10
"""How often something has to be woken, one after the other, until a loss is on record or a task has its result."""
_COUNTS = (
    "executions", "overlaps", "lost", "duplicates", "unallowed", "false_deaths", "under_way", "from_spool",
)  # fmt: skip
_BEGIN = "<!-- figures -->"
_END = "<!-- end of figures -->"


@dataclass
class Figures:
    """What was measured under one fault; None and no times at all for what was not. Times are in milliseconds."""

    fault: str
    trials: int = 0
    executions: int | None = None
    """This and the next four come from the checker."""
    overlaps: int | None = None
    lost: int | None = None
    duplicates: int | None = None
    unallowed: int | None = None
    false_deaths: int | None = None
    """Counted where every worker was alive all the time."""
    notice_limit_ms: float = 0
    notice_ms: list[float] = field(default_factory=list[float])
    """From the fault until the loss was on record."""
    serve_ms: list[float] = field(default_factory=list[float])
    """From the return of the broker or coordinator until a new task had its result."""
    closest_ms: float | None = None
    ran_on_ms: float | None = None
    """The longest time that something ran on after its suspended host had woken."""
    under_way: int | None = None
    """Trials in which the outage began before the result was accepted, so that it had to go through it."""
    from_spool: int | None = None
    """Trials whose result was in the spool of a host that was rebooted, and nowhere else."""
    delay_ms: float = 0
    """How late processes were woken meanwhile, because the machine had other things to do."""

    def add(self, findings: Findings) -> None:
        """Count one trial."""
        self.trials += 1
        self.executions = _sum(self.executions, findings.executions)
        self.overlaps = _sum(self.overlaps, len(findings.overlaps))
        self.lost = _sum(self.lost, len(findings.lost))
        self.duplicates = _sum(self.duplicates, len(findings.duplicates))
        self.unallowed = _sum(self.unallowed, len(findings.unallowed))
        self.closest_ms = _smallest(findings.closest_ms, self.closest_ms)

    def add_false_deaths(self, count: int) -> None:
        """Count executions that were given up although their worker was alive; 0 says that there was none."""
        self.false_deaths = _sum(self.false_deaths, count)

    def add_outage(self, *, under_way: bool, from_spool: bool | None) -> None:
        """Count what one trial's result went through; None where there is no reboot."""
        self.under_way = _sum(self.under_way, under_way)
        self.from_spool = _sum(self.from_spool, from_spool)

    def merge(self, other: "Figures") -> None:
        """Take in what another test measured under the same fault."""
        self.trials += other.trials
        for name in _COUNTS:
            setattr(self, name, _sum(getattr(self, name), getattr(other, name)))
        self.notice_limit_ms = max(self.notice_limit_ms, other.notice_limit_ms)
        self.notice_ms += other.notice_ms
        self.serve_ms += other.serve_ms
        self.closest_ms = _smallest(self.closest_ms, other.closest_ms)
        self.delay_ms = max(self.delay_ms, other.delay_ms)
        self.ran_on_ms = max((each for each in (self.ran_on_ms, other.ran_on_ms) if each is not None), default=None)

    def too_late(self) -> list[str]:
        """Which of the promised times were not kept, though the machine had time for it.

        What a busy machine takes by waking everyone late is measured beside the times, and not held against them.
        """
        noticed_ms, serves_ms = percentile(self.notice_ms, 99), percentile(self.serve_ms, 99)
        lost_ms = WAKINGS * self.delay_ms
        where = f"{self.fault}, on a machine that wakes everyone {self.delay_ms:.0f} ms late"
        found: list[str] = []
        if noticed_ms is not None and noticed_ms > self.notice_limit_ms + lost_ms:
            found.append(f"{where}: noticed after {noticed_ms:.0f} ms, the limit is {self.notice_limit_ms:.0f} ms")
        if serves_ms is not None and serves_ms > SERVE_LIMIT_MS + lost_ms:
            found.append(f"{where}: served again after {serves_ms:.0f} ms, the limit is {SERVE_LIMIT_MS} ms")
        return found


def _sum(*counts: int | None) -> int | None:
    known = [each for each in counts if each is not None]
    return sum(known) if known else None


def _smallest(*times_ms: float | None) -> float | None:
    return min((each for each in times_ms if each is not None), default=None)


def merged(properties: Iterable[dict[str, Any]]) -> list[Figures]:
    """One `Figures` per fault, in order of name."""
    found: dict[str, Figures] = {}
    for one in properties:
        figures = Figures(**one)
        if figures.fault in found:
            found[figures.fault].merge(figures)
        else:
            found[figures.fault] = figures
    return [found[fault] for fault in sorted(found)]


def percentile(values: Sequence[float], percent: int) -> float | None:
    """The smallest value that is not below that share of the values."""
    if not values:
        return None
    return sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]


def table(everything: Sequence[Figures]) -> list[str]:
    """The figures as lines of text with columns."""
    rows = [_HEAD, *(_row(figures) for figures in everything)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    return [
        "  ".join(cell.ljust(width) if column == 0 else cell.rjust(width) for column, (cell, width) in enumerate(pairs))
        for pairs in (list(zip(row, widths, strict=True)) for row in rows)
    ]


def read(path: Path) -> list[dict[str, Any]]:
    """What an earlier run kept; nothing when there was none."""
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def write(everything: Sequence[Figures], path: Path) -> None:
    """Keep the figures as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(figures) for figures in everything], indent=1) + "\n")


def into_page(everything: Sequence[Figures], page: Path) -> None:
    """Replace the lines between the page's two marks by the figures as a table."""
    rows = [_HEAD, ("---", *["--:"] * (len(_HEAD) - 1)), *(_row(figures) for figures in everything)]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    before, _, rest = page.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    page.write_text("\n".join([before + _BEGIN, "", *lines, "", _END + after]))


def _row(figures: Figures) -> tuple[str, ...]:
    counts = [figures.trials, *(getattr(figures, name) for name in _COUNTS)]
    times = (
        percentile(figures.notice_ms, 50),
        percentile(figures.notice_ms, 99),
        figures.notice_limit_ms if figures.notice_ms else None,
        percentile(figures.serve_ms, 50),
        percentile(figures.serve_ms, 99),
        figures.closest_ms,
        figures.ran_on_ms,
    )
    seconds = ["-" if time is None else f"{time / 1000:.2f} s" for time in times]
    numbers = ["-" if count is None else str(count) for count in counts]
    return (figures.fault, *numbers[:-2], *seconds, *numbers[-2:])


if __name__ == "__main__":
    into_page(merged(read(Path(sys.argv[1]))), Path(sys.argv[2]))
