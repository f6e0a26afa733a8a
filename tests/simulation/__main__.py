"""Run simulations from the command line; see `campaign.py` and docs/simulation.md."""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace

from tenure.clock import SystemEntropy
from tests.simulation.campaign import Folders, Tally, problems_of, quiet_logs, run_many, run_seed
from tests.simulation.history import render
from tests.simulation.profile import KINDS
from tests.simulation.world import Plan

_MOST_SHOWN = 20
_NEVER_STRUCK_FROM = 1_000
"""From this many seeds on, a fault that never struck is a mistake of the simulation."""


def main(arguments: list[str]) -> int:
    """What the command line asks for; 1 when an invariant was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Search for broken invariants.")
    parser.add_argument("--seeds", type=int, default=2_000, help="how many histories")
    parser.add_argument("--base", type=int, default=None, help="the first seed; drawn and printed when not given")
    parser.add_argument("--processes", type=int, default=None, help="how many processes; one per processor by default")
    parser.add_argument("--until-failure", action="store_true", help="stop at the first history that fails")
    parser.add_argument("--seed", type=int, default=None, help="replay this one seed")
    parser.add_argument("--only", default="", help="let exactly these faults strike, separated by commas")
    parser.add_argument("--without", default="", help="replay without these faults, separated by commas")
    parser.add_argument("--trace", action="store_true", help="print everything that happened in the replayed seed")
    options = parser.parse_args(arguments)
    _order_sets()
    plan = Plan(options.seed or 0, frozenset(_names(options.without)), _names(options.only))
    if options.seed is not None:
        return _replay(plan, trace=options.trace)
    base = SystemEntropy().below(10**9) if options.base is None else options.base
    if options.until_failure:
        return _first_failure(base, options.seeds)
    return _search(replace(plan, seed=base), options.seeds, options.processes)


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _order_sets() -> None:
    """Begin anew with ordered hashes: the order of a set must be the same when a seed is replayed."""
    if sys.flags.hash_randomization:
        env = os.environ | {"PYTHONHASHSEED": "0"}  # noqa: TID251 - for this program alone
        os.execve(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], env)  # noqa: S606


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _replay(plan: Plan, *, trace: bool) -> int:
    quiet_logs()
    folders = Folders()
    try:
        facts, problems = run_seed(plan, folders)
    finally:
        folders.close()
    if trace:
        for fact in facts:
            _say(render(fact))
    for problem in problems:
        _say(f"seed {plan.seed}: {problem}")
    if not problems:
        _say(f"seed {plan.seed}: all invariants hold")
    return 1 if problems else 0


def _search(plan: Plan, seeds: int, processes: int | None) -> int:
    base = plan.seed
    _say(f"{seeds} histories from base seed {base}")
    began = time.perf_counter()  # noqa: TID251 - how fast the machine is, not a part of any history
    tally = Tally()
    shown = 0
    for part in run_many(plan, seeds, processes):
        tally.add(part)
        for seed, problems in part.failed.items():
            shown += 1
            if shown <= _MOST_SHOWN:
                _say(f"seed {seed} FAILED: {problems[0]}")
        if tally.seeds // 5_000 > (tally.seeds - part.seeds) // 5_000:
            _say(f"  {tally.seeds} histories, {len(tally.failed)} failed")
    took_s = time.perf_counter() - began  # noqa: TID251 - same
    _table(tally)
    for line in tally.figures():
        _say(f"  {line}")
    unlearned = list(tally.unlearned(plan)) if seeds >= _NEVER_STRUCK_FROM else []
    if unlearned:
        _say(f"Nothing was learned here: {'; '.join(unlearned)}")
    _say(
        f"{tally.seeds} histories in {took_s:.0f} s ({tally.seeds / took_s:.1f} a second), "
        f"{tally.attempts} executions ({tally.attempts / took_s:.0f} a second), "
        f"{tally.simulated_ms / 3_600_000:.1f} simulated hours, {len(tally.failed)} failed (base seed {base})"
    )
    for seed in sorted(tally.failed)[:3]:
        _explain(replace(plan, seed=seed))
    return 1 if tally.failed or unlearned else 0


def _first_failure(base: int, seeds: int) -> int:
    """In this process, one seed after the other."""
    quiet_logs()
    folders = Folders()
    try:
        for seed in range(base, base + seeds):
            problems = problems_of(Plan(seed), folders)
            if problems:
                _say(f"seed {seed} FAILED: {problems[0]}")
                return 1
    finally:
        folders.close()
    return 0


def _table(tally: Tally) -> None:
    for name, count in sorted(tally.seen.items()):
        _say(f"  {count:>9} {name}")


def _explain(plan: Plan) -> None:
    """Say what broke, with as few faults as it takes."""
    quiet_logs()
    folders = Folders()
    try:
        without = _shrunk(plan, folders)
        problems = problems_of(replace(plan, without=without), folders)
    finally:
        folders.close()
    _say(f"\nseed {plan.seed} breaks, also without the faults named here:")
    for problem in problems[:5]:
        _say(f"  {problem}")
    switch = f" --without {','.join(sorted(without))}" if without else ""
    switch += f" --only {','.join(plan.only)}" if plan.only else ""
    _say(f"  replay: {sys.executable} -m tests.simulation --seed {plan.seed}{switch} --trace")


def _shrunk(plan: Plan, folders: Folders) -> frozenset[str]:
    """Which faults can be switched off with the seed still failing."""
    without: frozenset[str] = frozenset()
    for kind in KINDS:
        fewer = without | {kind}
        if problems_of(replace(plan, without=fewer), folders):
            without = fewer
    return without


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
