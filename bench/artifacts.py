"""A large file through a store of artifacts, by a porter: rate of each step, and the porter's peak memory.

Prints one JSON line per store. The object store is moto's server on this machine: its rate says more about it than
about Tenure; the memory is what this is for.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench.fleet import show
from tenure.artifacts.jobs import Collect, Fetch, Promote, StagingPlace, Verify
from tenure.artifacts.porter_link import PorterLink
from tenure.artifacts.porter_orders import PorterSettings
from tenure.clock import SystemClock
from tenure.protocol.artifact import Input
from tests.fixtures_artifacts import BUCKET, launch_s3

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tenure.artifacts.jobs import Ended, Job

MIB = 1024 * 1024
PLACE = StagingPlace(task_id="0" * 26, fence=1, nonce="a" * 16)


def main() -> None:
    """Measure the stores that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stores", nargs="*", default=["folder", "s3"], help="folder, s3")
    parser.add_argument("--mib", type=int, default=2_048, help="size of the file")
    parser.add_argument("--under", type=Path, default=None, help="folder for files and stores")
    options = parser.parse_args()
    for name in options.stores:
        with (
            tempfile.TemporaryDirectory(prefix="tenure-bench-", dir=options.under) as folder,
            STORES[name](Path(folder)) as settings,
        ):
            measure(name, settings, Path(folder), options.mib)


@contextmanager
def folder_store(folder: Path) -> Iterator[PorterSettings]:
    """A folder on the disk that this runs on."""
    (folder / "store").mkdir()
    yield PorterSettings(address=str(folder / "store"))


@contextmanager
def s3_store(folder: Path) -> Iterator[PorterSettings]:
    """An S3-compatible server on this machine."""
    server = launch_s3(folder)
    try:
        yield PorterSettings(address=f"s3://{BUCKET}/bench", options=server.options)
    finally:
        server.stop()


def measure(name: str, settings: PorterSettings, folder: Path, mib: int) -> None:
    """Collect, verify, promote and fetch one file."""
    outputs = folder / "outputs"
    outputs.mkdir()
    with (outputs / "large").open("wb") as file:
        for number in range(mib):
            file.write(hashlib.sha256(b"%d" % number).digest() * (MIB // 32))
    link = PorterLink(settings, SystemClock())
    seconds: dict[str, float] = {}
    began = time.perf_counter()
    collected = do(link, Collect(number=1, place=PLACE, folder=str(outputs), most_files=10))
    seconds["collect"] = time.perf_counter() - began
    if collected.bundle is None:
        raise SystemExit("nothing was collected")
    steps: list[Job] = [
        Verify(number=2, place=PLACE, bundle=collected.bundle),
        Promote(number=3, place=PLACE, bundle=collected.bundle, last=True),
        Fetch(number=4, folder=str(folder / "new"), wanted=(Input(path="in", content=collected.bundle),)),
    ]
    for job in steps:
        began = time.perf_counter()
        do(link, job)
        seconds[job.kind] = time.perf_counter() - began
    status = Path(f"/proc/{link.pid}/status").read_text().splitlines()
    peak_kib = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    link.close()
    show(
        {
            "what": "artifacts",
            "store": name,
            "mib": mib,
            **{f"{step}_mib_per_second": round(mib / took) for step, took in seconds.items()},
            "porter_peak_mib": round(peak_kib / 1024),
        }
    )


def do(link: PorterLink, job: Job) -> Ended:
    """Wait for one job; it must have gone well."""
    link.submit(job)
    while not (ended := link.ended()):
        time.sleep(0.01)
    if ended[0].problem is not None:
        raise SystemExit(ended[0].problem.message)
    return ended[0]


STORES = {"folder": folder_store, "s3": s3_store}

if __name__ == "__main__":
    main()
