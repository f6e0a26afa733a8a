"""Takes jobs from a shared folder and runs them, one after the other: `take_jobs.py JOBS`. One per slot of a host."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

STEP_S = 0.2


def take(jobs: Path) -> Path | None:
    """A job that nobody else has taken."""
    for job in sorted(jobs.glob("*/job.json")):
        try:
            taken = os.open(job.parent / "taken", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except (FileExistsError, FileNotFoundError):
            continue
        with os.fdopen(taken, "w") as file:
            file.write(f"taken by {socket.gethostname()}")
        return job.parent
    return None


def run(job: Path) -> None:
    """Run it to its end, or until it is cancelled, and say how it has ended."""
    said = json.loads((job / "job.json").read_text())
    (job / "ended.new").write_text(str(exit_code(job, said["argv"], said["environment"])))
    (job / "ended.new").rename(job / "ended")


def exit_code(job: Path, argv: list[str], environment: dict[str, str]) -> int:
    """Run it, and answer its exit code; 127 when this host cannot run it."""
    try:
        process = subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        print(f"{argv[0]} cannot be started here: {error}", file=sys.stderr)
        return 127
    while process.poll() is None:
        if (job / "cancel").exists():
            process.terminate()
        time.sleep(STEP_S)
    return process.returncode


def main() -> None:
    """Go on until somebody ends this."""
    jobs = Path(sys.argv[1])
    while jobs.exists():
        job = take(jobs)
        if job is None:
            time.sleep(STEP_S)
        else:
            run(job)


if __name__ == "__main__":
    main()
