"""The largest Lyapunov exponent of the Lorenz system over 64 values of rho, on a fleet.

Start a fleet in this folder (`tenure up --allow lorenz`), then in another terminal `python sweep.py`. Results go to
lorenz.csv, the picture to lorenz.png. Started again, finished values are not computed again: each has a key.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import TYPE_CHECKING

from lorenz import Exponent, exponent
from rich.progress import Progress

import tenure
from tenure.client.calls import Call

if TYPE_CHECKING:
    from collections.abc import Sequence

PUBLISHED = (28.0, 0.9056)
"""J. C. Sprott, "Chaos and Time-Series Analysis" (2003)."""


def main() -> None:
    """Sweep, tell, write and plot."""
    parser = argparse.ArgumentParser(description="Sweep rho on a fleet.")
    parser.add_argument("--points", type=int, default=64, help="rho = 1, 2, ... up to this")
    parser.add_argument("--steps", type=int, default=600_000, help="steps per point")
    parser.add_argument("--retries", type=int, default=0, help="repeat lost attempts up to that often without asking")
    parser.add_argument("--out", type=Path, default=Path("lorenz.csv"))
    arguments = parser.parse_args()

    try:
        rows, lost = sweep(arguments.points, arguments.steps, arguments.retries)
    except tenure.TenureError as error:
        raise SystemExit(f"sweep: {error}") from None
    except KeyboardInterrupt:
        raise SystemExit("Interrupted. The tasks go on; start it again for their results.") from None
    write(rows, arguments.out)
    plot(rows, arguments.out.with_suffix(".png"))
    classic = next((row["exponent"] for row in rows if row["rho"] == PUBLISHED[0]), None)
    print(f"{len(rows)} results in {arguments.out}, picture in {arguments.out.with_suffix('.png')}")
    if classic is not None:
        print(f"rho = 28: {classic:.2f} (published: {PUBLISHED[1]})")
    if lost:
        print(f"{len(lost)} without a result. Why: tenure explain {lost[0]}")
        raise SystemExit(1)


def sweep(points: int, steps: int, retries: int) -> tuple[list[Exponent], list[str]]:
    """The results in order of rho, and the ids of tasks that have none."""
    calls = [Call(exponent, (float(rho),), {"steps": steps}, f"lorenz-{rho}-{steps}") for rho in range(1, points + 1)]
    found: list[Exponent] = []
    lost: list[str] = []
    with tenure.Client() as fleet, Progress() as progress:
        handles = fleet.using(run="lorenz", retry=tenure.Retry(lost=retries)).submit_many(calls)
        bar = progress.add_task("sweeping rho", total=len(handles))
        for handle in tenure.as_completed(handles):
            try:
                found.append(handle.result())
            except tenure.TaskError as error:
                lost.append(handle.task_id)
                progress.console.print(f"rho = {handle.args[0]:g}: {error}")
            progress.advance(bar)
    return sorted(found, key=lambda row: row["rho"]), lost


def write(rows: Sequence[Exponent], path: Path) -> None:
    """Write a CSV with one line per value of rho."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(Exponent.__annotations__))
        writer.writeheader()
        writer.writerows(rows)


def plot(rows: Sequence[Exponent], path: Path) -> None:
    """Draw exponent against rho; says so when matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("No picture: matplotlib is not installed (pip install matplotlib)")
        return
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.axhline(0, color="0.6", linewidth=0.8)
    axes.plot([row["rho"] for row in rows], [row["exponent"] for row in rows], ".-", linewidth=0.8)
    axes.plot(*PUBLISHED, "x", color="tab:red", markersize=9, label="published: 0.9056 at rho = 28")
    axes.set(xlabel="rho", ylabel="largest Lyapunov exponent", title="Lorenz system, sigma = 10, beta = 8/3")
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
