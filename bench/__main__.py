"""Throughput, latency and broker memory of a fleet on this machine. Prints one JSON line per measurement."""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path

from bench.fleet import broker_memory, fleet, left_on_streams, show
from bench.work import noop
from tenure import Client, as_completed


def main() -> None:
    """Run what was asked for, each on a fleet of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["calls", "latency", "backlog"], help="calls, latency, backlog")
    parser.add_argument("--tasks", type=int, default=20_000, help="no-op calls to run")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--start", choices=["claimed", "granted"], default="claimed")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    for what in options.what:
        with tempfile.TemporaryDirectory(prefix="tenure-bench-") as folder:
            data = Path(folder) / "data"
            workers = 0 if what == "backlog" else options.workers
            with fleet(data, workers=workers, slots=options.slots) as url:
                MEASUREMENTS[what](url, data, options)


def calls(url: str, data: Path, options: argparse.Namespace) -> None:
    """End-to-end rate of no-op calls, submit to last result, and what they leave behind."""
    for _ in range(options.repeats):
        with Client(url) as client:
            began = time.perf_counter()
            handles = client.using(start=options.start).map(noop, range(options.tasks), ["x" * 64] * options.tasks)
            submitted = time.perf_counter()
            right = sum(handle.result()["i"] == handle.args[0] for handle in as_completed(handles))
            ended = time.perf_counter()
        show(
            {
                "what": "calls",
                "start": options.start,
                "tasks": options.tasks,
                "seconds": round(ended - began, 2),
                "submit_seconds": round(submitted - began, 2),
                "per_second": round(options.tasks / (ended - began)),
                "right_results": right,
                "left_on_streams": sum(length + pending for length, pending in left_on_streams(url).values()),
            }
        )
    with sqlite3.connect(f"file:{data / 'tenure.db'}?mode=ro", uri=True) as database:
        (tasks, results), *_ = database.execute(
            "SELECT (SELECT COUNT(*) FROM task), (SELECT COUNT(DISTINCT task_id) FROM result)"
        ).fetchall()
    show({"what": "accepted", "tasks": tasks, "results": results})


def latency(url: str, _data: Path, _options: argparse.Namespace) -> None:
    """Idle round trip: submit one call, wait for its result, in sequence."""
    for start in ("claimed", "granted"):
        times: list[float] = []
        with Client(url) as client:
            submitter = client.using(start=start)
            for i in range(220):
                began = time.perf_counter()
                submitter.submit(noop, i, "x").result()
                times.append((time.perf_counter() - began) * 1000)
        times = sorted(times[20:])
        p50, p99 = statistics.median(times), times[int(len(times) * 0.99)]
        show({"what": "latency", "start": start, "p50_ms": round(p50, 2), "p99_ms": round(p99, 2)})


def backlog(url: str, _data: Path, _options: argparse.Namespace) -> None:
    """What 100,000 queued tasks do to the broker's memory, with no worker to take them."""
    count = 100_000
    before = broker_memory(url)
    with Client(url) as client:
        began = time.perf_counter()
        client.map(noop, range(count), ["x" * 64] * count)
        seconds = time.perf_counter() - began
    after = broker_memory(url)
    show(
        {
            "what": "backlog",
            "tasks": count,
            "submit_per_second": round(count / seconds),
            "memory_before": before,
            "memory_after": after,
        }
    )


MEASUREMENTS = {"calls": calls, "latency": latency, "backlog": backlog}

if __name__ == "__main__":
    main()
