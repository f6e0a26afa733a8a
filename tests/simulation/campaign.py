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
from multiprocessing import get_context
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, final

from tenure.coordinator.store.database import Database
from tests.simulation.checker import check
from tests.simulation.executions import NORTH
from tests.simulation.history import Answered, DirectiveRow, Fault, LeaseRow, Outcome, Quarantined, Started
from tests.simulation.liar import SITE
from tests.simulation.world import Plan, World

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.simulation.history import Fact

_LARGEST_CHUNK: Final = 200
_SMALLEST_CHUNK: Final = 20
_FOLLOWED: Final = MappingProxyType({"killed": "killed    ", "no_group": "no group  of "})
"""What came of strikes, and is counted by its detail."""


@final
@dataclass(slots=True)
class Tally:
    """What happened in some histories."""

    seeds: int = 0
    attempts: int = 0
    simulated_ms: int = 0
    seen: Counter[str] = field(default_factory=Counter[str])
    failed: dict[int, list[str]] = field(default_factory=dict[int, list[str]])

    def add(self, other: Tally) -> None:
        """Take in what happened in others."""
        self.seeds += other.seeds
        self.attempts += other.attempts
        self.simulated_ms += other.simulated_ms
        self.seen.update(other.seen)
        self.failed.update(other.failed)

    def note(self, facts: Sequence[Fact]) -> None:
        """Count what is in a history."""
        self.seeds += 1
        self.simulated_ms += facts[-1].at
        for fact in facts:
            if isinstance(fact, Started):
                self.attempts += 1
            name = _name(fact)
            if name:
                self.seen[name] += 1


def _name(fact: Fact) -> str:
    """Under which name a fact is counted; "" when it is not."""
    name = ""
    match fact:
        case Fault():
            name = f"{_FOLLOWED[fact.kind]}{fact.detail}" if fact.kind in _FOLLOWED else f"fault     {fact.kind}"
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
            try:
                facts, problems = run_seed(replace(plan, seed=seed), folders)
            except Exception as error:  # noqa: BLE001 - the campaign goes on, and names the seed
                tally.failed[seed] = [f"the simulation itself broke: {type(error).__name__}: {error}"]
                continue
            tally.note(facts)
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
