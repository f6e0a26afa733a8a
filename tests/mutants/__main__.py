"""Break each rule in turn, and see whether the tests notice: `python -m tests.mutants`, or `make mutants`.

Each mutant is the package, copied and changed in one rule. It is killed when a unit test or a simulated history fails.
One that survives is a rule that nothing holds, and fails the run; so does one that could not be tried.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, get_args

from tests.mutants import (
    acceptance,
    audit,
    campaigns,
    cancellations,
    decisions,
    executors,
    files,
    lifetimes,
    limits,
    principals,
    rights,
    sites,
    words,
    workers,
)
from tests.mutants.bench import Ask, Bench

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutants.bench import Death
    from tests.mutants.mutant import Mutant

MUTANTS: Final = (
    *acceptance.MUTANTS,
    *campaigns.MUTANTS,
    *audit.MUTANTS,
    *cancellations.MUTANTS,
    *decisions.MUTANTS,
    *executors.MUTANTS,
    *files.MUTANTS,
    *lifetimes.MUTANTS,
    *limits.MUTANTS,
    *principals.MUTANTS,
    *rights.MUTANTS,
    *sites.MUTANTS,
    *words.MUTANTS,
    *workers.MUTANTS,
)
_WIDTH: Final = 30


def main(arguments: list[str]) -> int:
    """Examine all mutants, or those that are named; 1 when one survives or could not be tried."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Break each rule and see who notices.")
    parser.add_argument("--seeds", type=int, default=400, help="how many histories a mutant has to survive")
    parser.add_argument("--jobs", type=int, default=2, help="how many mutants at a time")
    parser.add_argument(
        "--ask",
        choices=get_args(Ask),
        default="first",
        help="the tests first and then the simulation (default), both always, or one of them alone",
    )
    parser.add_argument("names", nargs="*", help="only these mutants")
    options = parser.parse_args(arguments)
    chosen = [mutant for mutant in MUTANTS if not options.names or mutant.name in options.names]
    with tempfile.TemporaryDirectory(prefix="tenure-mutants-") as folder:
        benches: SimpleQueue[Bench] = SimpleQueue()
        for number in range(options.jobs):
            benches.put(Bench(Path(folder) / str(number), options.seeds))
        bench = benches.get()
        untouched = bench.untouched("both" if options.ask == "first" else options.ask)
        if untouched.killed or untouched.broken:
            _say(f"The package as it is does not pass: {untouched}")
            return 1
        witnesses = bench.witnesses(chosen)
        benches.put(bench)
        with ThreadPoolExecutor(options.jobs) as pool:
            deaths = list(pool.map(partial(_report, benches, options.ask, witnesses), chosen))
    return _sum_up(chosen, deaths)


def _report(benches: SimpleQueue[Bench], ask: Ask, witnesses: dict[str, list[str]], mutant: Mutant) -> Death:
    bench = benches.get()
    try:
        death = bench.examine(mutant, ask, witnesses.get(mutant.name, ()))
    finally:
        benches.put(bench)
    _say(f"{mutant.name:<{_WIDTH}} {str(death)[:200]}")
    return death


def _sum_up(chosen: Sequence[Mutant], deaths: Sequence[Death]) -> int:
    """Say how the mutants were noticed, and which were not."""
    of = dict(zip((mutant.name for mutant in chosen), deaths, strict=True))
    by = Counter(death.first.how for death in deaths if death.killed)
    _say(f"{sum(by.values())} of {len(of)} mutants killed: {', '.join(f'{n} by {how}' for how, n in by.most_common())}")
    broken = [name for name, death in of.items() if death.broken]
    survivors = [name for name, death in of.items() if not death.killed and not death.broken]
    if survivors:
        _say(f"Survivors: {', '.join(survivors)}")
    if broken:
        _say(f"Broken, and so not tried: {', '.join(broken)}")
    return 1 if survivors or broken else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
