"""Many seeds: run, checked, counted; over all processors, one process each.

python -m tests.simulation --seeds 2000            new seeds, their base is printed
python -m tests.simulation --seed 123 --trace      one seed again, with everything that happened
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from tenure.coordinator.store.database import Database
from tests.simulation.checker import Checker, check
from tests.simulation.executions import NORTH
from tests.simulation.history import Answered, DirectiveRow, Fault, LeaseRow, Outcome, Quarantined, Started
from tests.simulation.liar import SITE
from tests.simulation.profile import KINDS, START_POINTS, WORK_POINTS
from tests.simulation.world import Plan, World

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.simulation.history import Fact

_LARGEST_CHUNK: Final = 200
_SMALLEST_CHUNK: Final = 20
_COUNTED_FROM: Final = 2_000
"""From this many seeds on, what is told in figures must all have happened."""
_GROUPS: Final = ("assignments", "inbox", "rpc")
_JUDGED: Final = ("executions", "pairs")
STARTS: Final = ("claimed", "granted", "exclusive")
"""How tasks start; see `TaskPlan`."""


@final
@dataclass(slots=True)
class Tally:
    """What happened in some histories."""

    seeds: int = 0
    attempts: int = 0
    simulated_ms: int = 0
    seen: Counter[str] = field(default_factory=Counter[str])
    killed: Counter[str] = field(default_factory=Counter[str])
    """How often the coordinator was killed at which point."""
    judged: Counter[tuple[str, str, bool]] = field(default_factory=Counter[tuple[str, str, bool]])
    """See `Checker.judged`."""
    failed: dict[int, list[str]] = field(default_factory=dict[int, list[str]])

    def unlearned(self, plan: Plan) -> Iterator[str]:
        """What a long run should have shown, and this one has not."""
        for kind in plan.only or KINDS:
            if kind not in plan.without and not self.seen[f"fault     {kind}"]:
                yield f"{kind} never struck"
        if not (plan.only or plan.without) and self.seeds >= _COUNTED_FROM:
            yield from (what for what, count in self._counts().items() if not count)

    def _counts(self) -> dict[str, int]:
        """What is counted, by what is to be said when there was none of it."""
        killed = {f"no coordinator was killed {point}": self.killed[point] for point in (*START_POINTS, *WORK_POINTS)}
        met = {f"nobody met a lost group of {what}": self.seen[f"no group  of {what}"] for what in _GROUPS}
        judged = {
            f"no {what} of {kind} tasks were judged by the rule of overlaps": self.judged[what, kind, True]
            for what, kind in product(_JUDGED, STARTS)
        }
        return killed | met | judged

    def figures(self) -> Iterator[str]:
        """Where the coordinator was killed, and how many executions, and pairs of one task, could be judged."""
        if self.killed:
            yield "killed: " + ", ".join(f"{count} {point}" for point, count in self.killed.most_common())
        for what in _JUDGED:
            kinds = [f"{kind} {self.judged[what, kind, True]}/{self.judged[what, kind, False]}" for kind in STARTS]
            yield f"{what} judged/voided by the rule of overlaps: {', '.join(kinds)}"

    def add(self, other: Tally) -> None:
        """Take in what happened in others."""
        self.seeds += other.seeds
        self.attempts += other.attempts
        self.simulated_ms += other.simulated_ms
        self.seen.update(other.seen)
        self.killed.update(other.killed)
        self.judged.update(other.judged)
        self.failed.update(other.failed)

    def note(self, facts: Sequence[Fact]) -> None:
        """Count what is in a history."""
        self.seeds += 1
        self.simulated_ms += facts[-1].at
        for fact in facts:
            if isinstance(fact, Started):
                self.attempts += 1
            if isinstance(fact, Fault) and fact.kind == "coordinator_crash":
                self.killed[fact.detail] += 1
            name = _name(fact)
            if name:
                self.seen[name] += 1


def _name(fact: Fact) -> str:
    """Under which name a fact is counted; "" when it is not."""
    name = ""
    match fact:
        case Fault(kind="no_group"):
            name = f"no group  of {fact.detail}"
        case Fault() if fact.kind != "stopped":
            name = f"fault     {fact.kind}"
        case Answered():
            name = f"answer    {fact.answer} {fact.reason}"
        case LeaseRow() if fact.cause:
            name = f"lease     {fact.state} {fact.cause}"
        case Quarantined():
            name = f"evidence  {fact.reason}"
        case DirectiveRow():
            name = f"directive {fact.state} {fact.reason}"
        case Outcome():
            name = f"outcome   {fact.state}"
        case _:
            pass
    return name.rstrip()


@final
class Folders:
    """A place in memory for databases and spools, and a database to copy instead of making one each time."""

    def __init__(self) -> None:
        memory = Path("/dev/shm")  # noqa: S108 - tmpfs, so that no sync costs anything
        self.root = Path(tempfile.mkdtemp(prefix="tenure-simulation-", dir=memory if memory.is_dir() else None))
        template = self.root / "template.db"
        with Database(template) as store:
            store.run("create_world", ("main", 1_700_000_000_000))
            for site in (SITE, NORTH):
                store.run("add_site", (site, "lab", 1_700_000_000_000))
            store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._template = template.read_bytes()
        self.folder = self.root / "history"

    def fresh(self) -> Path:
        """An empty folder with a database of the current schema."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        (self.folder / "fleet.db").write_bytes(self._template)
        return self.folder

    def close(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.root, ignore_errors=True)


def run_seed(plan: Plan, folders: Folders) -> tuple[list[Fact], list[str]]:
    """One history and its problems."""
    facts = World(plan, folders.fresh()).run()
    return facts, check(facts)


def problems_of(plan: Plan, folders: Folders) -> list[str]:
    """What is wrong with a history; a simulation that breaks is a problem, too."""
    try:
        _, problems = run_seed(plan, folders)
    except Exception as error:  # noqa: BLE001 - the campaign goes on, and names the seed
        return [f"the simulation itself broke: {type(error).__name__}: {error}"]
    return problems


def quiet_logs() -> None:
    """The fleet's own log is no help here; the trace is."""
    logging.disable(logging.CRITICAL)


def run_seeds(seeds: Iterable[int], plan: Plan) -> Tally:
    """Several histories with the faults of the plan, one after the other."""
    quiet_logs()
    tally = Tally()
    folders = Folders()
    try:
        for seed in seeds:
            checker = Checker()
            try:
                facts = World(replace(plan, seed=seed), folders.fresh()).run()
                problems = checker.check(facts)
            except Exception as error:  # noqa: BLE001 - the campaign goes on, and names the seed
                tally.failed[seed] = [f"the simulation itself broke: {type(error).__name__}: {error}"]
                continue
            tally.note(facts)
            tally.judged.update(checker.judged)
            if problems:
                tally.failed[seed] = problems
    finally:
        folders.close()
    return tally


def run_many(plan: Plan, seeds: int, processes: int | None = None) -> Iterator[Tally]:
    """So many seeds from that of the plan on, in chunks, over all processors; in order of completion."""
    base = plan.seed
    count = processes or os.cpu_count() or 1
    size = max(_SMALLEST_CHUNK, min(_LARGEST_CHUNK, seeds // (50 * count)))
    chunks = [range(at, min(at + size, base + seeds)) for at in range(base, base + seeds, size)]
    with get_context("spawn").Pool(count, gc.freeze) as pool:  # what was imported is never garbage
        yield from pool.imap_unordered(partial(run_seeds, plan=plan), chunks)
