"""How many whole lives of tasks per second the coordinator alone manages: submitted, offered, finished, told.

The broker is in memory, the database is on disk with every commit synced. Run it from the repository's root:
`python -m tests.coordinator_bench [tasks] [--profile] [--granted]`.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
import tempfile
import time
from pathlib import Path

from tenure.clock import SystemClock
from tests.scripted_fleet import Hand, ScriptedFleet, ScriptedWorker, envelope

WINDOW = 2_000
PER_REPORT = 100


def main(arguments: list[str]) -> None:
    """Print the rate, and where the time goes when asked."""
    tasks = next((int(word) for word in arguments if word.isdigit()), 20_000)
    start = "granted" if "--granted" in arguments else "claimed"
    profile = cProfile.Profile()
    with tempfile.TemporaryDirectory(dir=".") as folder, ScriptedFleet(Path(folder)) as fleet:
        wall_ms, cpu_ms = run(fleet, tasks, start, profile if "--profile" in arguments else None)
    rates = f"{tasks * 1000 / wall_ms:,.0f} tasks/s, {tasks * 1000 / cpu_ms:,.0f} per second of processor time"
    print(f"{tasks} tasks that start when {start}: {rates}")  # noqa: T201 - for a person
    if "--profile" in arguments:
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)


def run(fleet: ScriptedFleet, tasks: int, start: str, profile: cProfile.Profile | None) -> tuple[int, int]:
    """Milliseconds in the coordinator, by the clock and by the processor, without the scripted worker and client."""
    worker = fleet.worker(slots=WINDOW)
    spent = [0, 0]

    def turn() -> None:
        began_ms, began_ns = SystemClock().elapsed_ms(), time.process_time_ns()
        if profile is not None:
            profile.enable()
        fleet.step()
        if profile is not None:
            profile.disable()
        spent[0] += SystemClock().elapsed_ms() - began_ms
        spent[1] += (time.process_time_ns() - began_ns) // 1_000_000

    for _ in range(tasks // 1_000):
        fleet.client.send(fleet.client.submission(*[envelope(start=start)] * 1_000))
        turn()
    done = 0
    while done < tasks:
        hands = worker.take(limit=WINDOW)
        if start == "granted":
            report(worker, hands, finished=False)
            turn()
        report(worker, hands, finished=True)
        turn()
        done += len(hands)
        worker.hands.clear()
    return spent[0], spent[1]


def report(worker: ScriptedWorker, hands: list[Hand], *, finished: bool) -> None:
    """Claims or results, many to a report."""
    for at in range(0, len(hands), PER_REPORT):
        part = hands[at : at + PER_REPORT]
        worker.send(*(worker.finished(hand) if finished else worker.claimed(hand) for hand in part))


if __name__ == "__main__":
    main(sys.argv[1:])
